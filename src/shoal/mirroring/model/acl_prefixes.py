r"""ACLs by prefix: an expression such as ``shop\..*`` also selects topics that are created later."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from .acls import Acl
from .topics import TopicSelection

__all__ = ["by_prefix", "prefixes_of"]

#: Literal characters, then anything. Any other expression selects less than its prefix would allow.
_PREFIX = re.compile(r"((?:[\w-]|\\[.-])+)\.[*+]")

#: Names for the rest of a topic, to find out how a rename treats it.
_RESTS = ("a1", "zz.9")


def prefixes_of(selection: TopicSelection) -> dict[str, str]:
    """
    Return the prefixes of the copies' names by those of the topics' names.

    An expression has one if it selects all topics that begin alike, and a rename keeps what follows.

    """
    if selection.exclude:
        return {}
    found = {}
    for expression in selection.expressions:
        if match := _PREFIX.fullmatch(expression):
            prefix = re.sub(r"\\(.)", r"\1", match[1])
            copies = {selection.destination_of(prefix + rest).removesuffix(rest) for rest in _RESTS}
            if len(copies) == 1:
                found[prefix] = copies.pop()
    return found


def by_prefix(acls: Iterable[Acl], prefixes: Mapping[str, str], *, creates: bool) -> list[Acl]:
    """
    Return the ACLs with those for the topics of a prefix in one.

    Args:
        acls: The ACLs by names.
        prefixes: See :func:`prefixes_of`.
        creates: Whether topics are created later.

    """
    by_cluster = {"source": list(prefixes), "destination": list(prefixes.values())}
    found = []
    for acl in acls:
        covering = [
            each
            for each in by_cluster[acl.cluster]
            if acl.resource_type == "topic" and acl.resource.startswith(each)
        ]
        found.append(replace(acl, resource=covering[0], is_prefix=True) if covering else acl)
    if creates:
        later = {each.resource for each in found if each.is_prefix and each.cluster == "destination"}
        found += [Acl("destination", "topic", each, "CREATE", is_prefix=True) for each in sorted(later)]
    # Of each kind of resource together, and each once.
    return list(dict.fromkeys(found))

r"""ACLs by prefix: an expression such as ``shop\..*`` also selects topics that are created later."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..model.options import MirrorOptions
from ..model.topics import TopicSelection
from .acls import Acl, acl_commands

__all__ = ["by_prefix", "commands_of", "prefixes_of"]

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


def commands_of(
    acls: Iterable[Acl], options: MirrorOptions, *, is_own: bool = False, creates: bool | None = None
) -> list[str]:
    """
    Return the commands that grant a mirror its ACLs, by prefix if an expression selects its topics.

    Args:
        acls: The ACLs by names.
        options: The options of the mirror.
        is_own: Whether to name the principals by which this process logs in.
        creates: Whether later topics are created; by default if the mirror runs on.

    """
    sides = options.source, options.destination
    creates = not options.once if creates is None else creates
    return acl_commands(
        by_prefix(acls, prefixes_of(options.topics), creates=creates),
        {each.name: each.servers for each in sides},
        [each.name for each in sides if each.security is not None],
        {each.name: each.principal for each in sides} if is_own else {},
    )

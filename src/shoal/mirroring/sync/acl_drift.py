"""
The ACLs that the destination needs so that clients can go on there. The module sends no requests.

``--sync-acls read`` keeps what lets consumers go on: READ and DESCRIBE of the mirrored topics, and of groups.
``--sync-acls all`` keeps each operation on the mirrored topics, and the same of groups. ALL becomes READ and
DESCRIBE if only these are kept.

No principal gets more at the destination than at the source, and other topics stay as they are:

- A literal ACL of a mirrored topic is one of its copy.
- A prefix stays a prefix if ``--rename`` maps it to one: each mirrored topic that begins with it keeps the
  rest of its name behind one new prefix. Otherwise each of these topics gets an ACL of its own.
- An ACL of all topics (``*``) becomes one of each mirrored topic.
- ACLs of groups keep their names, but those of the mirror's own group.
- A denial is kept as an allowance is. It is created first, so that no moment is without it.

ACLs are created, and never deleted: those that say more of a copy than the source's are
:attr:`AclDrift.surplus`, also if the source has no ACL of the topic left. ACLs of all topics (``*``) and of
groups may be the destination's own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ...client.acls import AclBinding, AclOperation, PatternType, Resource
from ..model.follow_options import KeptAcls

__all__ = ["AclDrift", "acl_drift", "translate_acls"]

_ALL_NAMES = "*"
_TO_READ = (AclOperation.READ, AclOperation.DESCRIBE)


@dataclass(frozen=True, slots=True)
class AclDrift:
    """
    The difference of the destination's ACLs from those that follow from the source's.

    Attributes:
        missing: The ACLs to create, denials first.
        surplus: The ACLs of copies, by name or by prefix, that no ACL of the source asks for, sorted.

    """

    missing: tuple[AclBinding, ...]
    surplus: tuple[AclBinding, ...]


def acl_drift(
    wanted: Collection[AclBinding],
    present: Collection[AclBinding],
    copies: Collection[str],
    kept: KeptAcls,
) -> AclDrift:
    """
    Compare the translated ACLs with those of the destination.

    Args:
        wanted: See :func:`translate_acls`.
        present: The ACLs of topics and groups at the destination.
        copies: The names of the mirrored topics at the destination.
        kept: As for ``wanted``: other operations are no surplus.

    """
    asked = _asked_patterns(wanted)
    surplus = (
        each
        for each in present
        if each.resource is Resource.TOPIC
        and each not in wanted
        and (kept is KeptAcls.ALL or each.operation in (*_TO_READ, AclOperation.ALL))
        and not all(_is_asked(each, copy, asked) for copy in _covered(each, copies))
    )
    missing = (each for each in wanted if each not in present and not _is_covered(each, present))
    return AclDrift(tuple(sorted(missing, key=_denials_first)), tuple(sorted(surplus)))


def _asked_patterns(wanted: Iterable[AclBinding]) -> Mapping[AclBinding, Collection[AclBinding]]:
    """Return the ACLs of topics by what they say, whichever topics they name."""
    asked: dict[AclBinding, list[AclBinding]] = defaultdict(list)
    for each in wanted:
        if each.resource is Resource.TOPIC:
            asked[_of_any_topic(each)].append(each)
    return asked


def _of_any_topic(binding: AclBinding) -> AclBinding:
    return replace(binding, pattern=PatternType.LITERAL, name="")


def _is_asked(binding: AclBinding, copy: str, asked: Mapping[AclBinding, Collection[AclBinding]]) -> bool:
    """Whether an ACL of the source says the same of a copy, or of ALL operations on it."""
    same = _of_any_topic(binding)
    return any(
        _covered(each, (copy,))
        for operation in (binding.operation, AclOperation.ALL)
        for each in asked.get(replace(same, operation=operation), ())
    )


def _denials_first(binding: AclBinding) -> tuple[bool, AclBinding]:
    return binding.allows, binding


def _is_covered(binding: AclBinding, others: Collection[AclBinding]) -> bool:
    """Whether another one says the same of ALL operations."""
    return replace(binding, operation=AclOperation.ALL) in others


def translate_acls(
    bindings: Iterable[AclBinding], names: Mapping[str, str], own_group: str, kept: KeptAcls
) -> frozenset[AclBinding]:
    """
    Return the ACLs that the destination should have.

    Args:
        bindings: The source's ACLs of topics and groups.
        names: The mirrored topics: their names at the destination, by those at the source.
        own_group: The mirror's group, which stays at the source.
        kept: The operations to keep.

    """
    wanted: set[AclBinding] = set()
    for binding in bindings:
        if binding.resource is Resource.TOPIC:
            for operation in _operations(binding.operation, kept):
                wanted.update(_on_copies(replace(binding, operation=operation), names))
        elif not _is_of_group(binding, own_group):
            # Groups of the destination keep their other operations (DELETE) to its own administrators.
            for operation in _operations(binding.operation, KeptAcls.READ):
                wanted.add(replace(binding, operation=operation))
    return frozenset(wanted)


def _is_of_group(binding: AclBinding, group: str) -> bool:
    return binding.pattern is PatternType.LITERAL and binding.name == group


def _operations(operation: AclOperation, kept: KeptAcls) -> Collection[AclOperation]:
    if kept is KeptAcls.ALL:
        return (operation,)
    if operation is AclOperation.ALL:
        return _TO_READ
    return (operation,) if operation in _TO_READ else ()


def _on_copies(binding: AclBinding, names: Mapping[str, str]) -> Iterator[AclBinding]:
    """Yield the ACLs of the copies that follow from one of topics."""
    is_of_all = binding.pattern is PatternType.LITERAL and binding.name == _ALL_NAMES
    covered = list(names) if is_of_all else _covered(binding, names)
    if binding.pattern is PatternType.PREFIXED:
        prefix = _new_prefix(binding.name, [(name, names[name]) for name in covered])
        if prefix is not None:
            yield replace(binding, name=prefix)
            return
    for name in covered:
        yield replace(binding, pattern=PatternType.LITERAL, name=names[name])


def _covered(binding: AclBinding, names: Collection[str]) -> Collection[str]:
    """Return the names that an ACL has, or begins."""
    if binding.pattern is PatternType.PREFIXED:
        return [name for name in names if name.startswith(binding.name)]
    return [binding.name] if binding.name in names else []


def _new_prefix(prefix: str, covered: Collection[tuple[str, str]]) -> str | None:
    """Return the one prefix that all copies have in its place; None if there is none, or no topic."""
    prefixes = {copy.removesuffix(name[len(prefix) :]) for name, copy in covered}
    if len(prefixes) != 1:
        return None
    (new,) = prefixes
    keeps_rest = all(new + name[len(prefix) :] == copy for name, copy in covered)
    return new if new and keeps_rest else None

"""
The ACLs that the destination needs so that clients can go on there. The module sends no requests.

``--sync-acls read`` keeps what lets consumers go on: READ and DESCRIBE of the mirrored topics, and of the
groups that ``--groups`` selects.
``--sync-acls all`` keeps each operation on the mirrored topics, and the same of groups. ALL becomes READ and
DESCRIBE if only these are kept.

No principal gets more at the destination than at the source, and other topics and groups stay as they are.
So each ACL that shoal creates is literal:

- An ACL of topics becomes one of the copy of each mirrored topic that it covers, by name, by prefix, or as
  ``*``. A topic that is mirrored later gets its ACLs in the next round.
- An ACL of groups becomes one of each selected group that it covers, without the mirror's own group, and
  never ``*``.
- A denial is kept as an allowance is. It is created first, so that no moment is without it.

A prefix never stays a prefix. At the destination it would also cover topics that are no copies, now or later:
the cluster does not reserve the names that ``--rename`` makes, and another user may create one of them.

ACLs are created, and never deleted: those that say more of a copy than the source's are
:attr:`AclDrift.surplus`, also if the source has no ACL of the topic left. ACLs of all topics (``*``) and of
groups may be the destination's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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
    surplus = (
        each
        for each in present
        if each.resource is Resource.TOPIC
        and each.name != _ALL_NAMES
        and each not in wanted
        and (kept is KeptAcls.ALL or each.operation in (*_TO_READ, AclOperation.ALL))
        and not all(_is_asked(each, copy, wanted) for copy in _covered(each, copies))
    )
    missing = (each for each in wanted if each not in present and not _is_covered(each, present))
    return AclDrift(tuple(sorted(missing, key=_denials_first)), tuple(sorted(surplus)))


def _is_asked(binding: AclBinding, copy: str, wanted: Collection[AclBinding]) -> bool:
    """Whether an ACL of the source says the same of a copy, or of ALL operations on it."""
    same = _literal(binding, copy)
    return same in wanted or _is_covered(same, wanted)


def _literal(binding: AclBinding, name: str) -> AclBinding:
    return replace(binding, pattern=PatternType.LITERAL, name=name)


def _denials_first(binding: AclBinding) -> tuple[bool, AclBinding]:
    return binding.allows, binding


def _is_covered(binding: AclBinding, others: Collection[AclBinding]) -> bool:
    """Whether another one says the same of ALL operations."""
    return replace(binding, operation=AclOperation.ALL) in others


def translate_acls(
    bindings: Iterable[AclBinding], names: Mapping[str, str], groups: Collection[str], kept: KeptAcls
) -> frozenset[AclBinding]:
    """
    Return the ACLs that the destination should have.

    Args:
        bindings: The source's ACLs of topics and groups.
        names: The mirrored topics: their names at the destination, by those at the source.
        groups: The groups whose ACLs follow. A group that is named ``*`` is left out: its ACL is one of all.
        kept: The operations to keep.

    """
    wanted: set[AclBinding] = set()
    for binding in bindings:
        is_of_topic = binding.resource is Resource.TOPIC
        for name in _covered(binding, names if is_of_topic else groups):
            # Groups of the destination keep their other operations (DELETE) to its own administrators.
            for operation in _operations(binding.operation, kept if is_of_topic else KeptAcls.READ):
                literal = _literal(binding, names[name] if is_of_topic else name)
                wanted.add(replace(literal, operation=operation))
    return frozenset(each for each in wanted if each.name != _ALL_NAMES)


def _operations(operation: AclOperation, kept: KeptAcls) -> Collection[AclOperation]:
    if kept is KeptAcls.ALL:
        return (operation,)
    if operation is AclOperation.ALL:
        return _TO_READ
    return (operation,) if operation in _TO_READ else ()


def _covered(binding: AclBinding, names: Collection[str]) -> Collection[str]:
    """Return the names that an ACL has, or begins; all of them for ``*``."""
    if binding.pattern is PatternType.PREFIXED:
        return [name for name in names if name.startswith(binding.name)]
    if binding.name == _ALL_NAMES:
        return names
    return [binding.name] if binding.name in names else []

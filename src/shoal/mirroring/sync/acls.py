"""
The ACLs that the destination needs so that clients can go on there, and one round that creates them.

``--sync acls`` keeps what lets consumers go on: READ and DESCRIBE of the mirrored topics, and of the
groups that ``--groups`` selects.
``--sync all-acls`` keeps each operation on the mirrored topics, and the same of groups. ALL becomes READ and
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

An ACL is missing if no other one at the destination has its effect. As in Kafka's authorizers, READ, WRITE,
DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS. For denials only ALL implies
another operation. ACLs are created, and never deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...client.acls import AclBinding, AclOperation, PatternType, Resource, create_acls, describe_acls
from ...client.cluster import Cluster
from ...client.groups import list_groups
from ...errors import BrokerError
from ..model.follow_options import FollowOptions, GroupSelection
from ..model.text import first_few
from .follow_report import FollowReport

__all__ = [
    "MissingAcls",
    "follow_acls",
    "lacking",
    "mirror_principals",
    "missing_at_destination",
    "translate_acls",
]

_ALL_NAMES = "*"
_ALL_PRINCIPALS = "User:*"
_TO_READ = (AclOperation.READ, AclOperation.DESCRIBE)
_DESCRIBING = (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)


class MissingAcls(NamedTuple):
    """
    The ACLs that the destination lacks, denials first, and all of topics and groups at the source.

    Attributes:
        missing: The literal ACLs.

    """

    missing: Sequence[AclBinding]
    at_source: frozenset[AclBinding]


def missing_at_destination(
    source: Cluster,
    destination: Cluster,
    names: Mapping[str, str],
    own_group: str,
    follow: FollowOptions,
    selection: GroupSelection | None = None,
) -> MissingAcls:
    """
    Compare the ACLs of mirrored topics and selected groups.

    Args:
        names: The mirrored topics: their names at the destination, by those at the source.
        own_group: The mirror's group, which stays at the source.
        selection: The groups whose ACLs follow; None for none.

    Raises:
        BrokerError: A cluster has no authorizer (SECURITY_DISABLED), or does not let this principal describe
            its ACLs.
        Disconnected: A cluster does not respond.

    """
    here, there = _all_of(source), _all_of(destination)
    groups = () if selection is None else _selected_groups(source, here, selection, own_group)
    return MissingAcls(lacking(translate_acls(here, names, groups, has_all=follow.has_all_acls), there), here)


def follow_acls(
    source: Cluster,
    destination: Cluster,
    names: Mapping[str, str],
    own_group: str,
    follow: FollowOptions,
    selection: GroupSelection | None = None,
    *,
    changes: bool,
) -> FollowReport:
    """
    Create the ACLs of :func:`missing_at_destination`, or only find them.

    A denial is created before any permission, and if one is refused, no permission follows.

    Args:
        changes: Whether to create them.

    """
    missing = missing_at_destination(source, destination, names, own_group, follow, selection).missing
    created: list[AclBinding] = []
    refused: Mapping[AclBinding, BrokerError] = {}
    for allows in (False, True) if changes else ():
        some = [each for each in missing if each.allows is allows]
        if some and not refused:
            refused = create_acls(destination, some)
            created += [each for each in some if each not in refused]
    return FollowReport(
        [f"ACLs created at the destination: {first_few(created)}"] if created else [],
        [f"{each}: only at the source" for each in missing if each not in created],
        list(refused.values()),
    )


def translate_acls(
    bindings: Iterable[AclBinding], names: Mapping[str, str], groups: Collection[str], *, has_all: bool
) -> frozenset[AclBinding]:
    """
    Return the ACLs that the destination should have.

    Args:
        bindings: The source's ACLs of topics and groups.
        names: The mirrored topics: their names at the destination, by those at the source.
        groups: The groups whose ACLs follow. A group that is named ``*`` is left out: its ACL is one of all.
        has_all: Whether ACLs of topics keep their operations, whatever they are; otherwise READ and DESCRIBE.

    """
    wanted: set[AclBinding] = set()
    for binding in bindings:
        is_of_topic = binding.resource is Resource.TOPIC
        for name in _covered(binding, names if is_of_topic else groups):
            # Groups of the destination keep their other operations (DELETE) to its own administrators.
            for operation in _operations(binding.operation, has_all=has_all and is_of_topic):
                literal = names[name] if is_of_topic else name
                wanted.add(replace(binding, pattern=PatternType.LITERAL, name=literal, operation=operation))
    return frozenset(each for each in wanted if each.name != _ALL_NAMES)


def _operations(operation: AclOperation, *, has_all: bool) -> Collection[AclOperation]:
    if has_all:
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


def lacking(wanted: Iterable[AclBinding], present: Iterable[AclBinding]) -> list[AclBinding]:
    """Return the literal ACLs whose effect no ACL that is present has, denials first."""
    by_name: dict[tuple[Resource, str | None], list[AclBinding]] = defaultdict(list)
    for each in present:
        by_name[each.resource, each.name if each.pattern is PatternType.LITERAL else None].append(each)
    missing = [
        each
        for each in wanted
        if not any(
            _implies(acl, each)
            for name in (each.name, _ALL_NAMES, None)
            for acl in by_name.get((each.resource, name), ())
        )
    ]
    return sorted(missing, key=lambda each: (each.allows, each))


def _implies(present: AclBinding, wanted: AclBinding) -> bool:
    """Whether an ACL has the effect of a literal one on the same kind of resource."""
    operations = [wanted.operation, AclOperation.ALL]
    if wanted.allows and wanted.operation is AclOperation.DESCRIBE:
        operations += _DESCRIBING
    if wanted.allows and wanted.operation is AclOperation.DESCRIBE_CONFIGS:
        operations.append(AclOperation.ALTER_CONFIGS)
    return (
        present.allows is wanted.allows
        and present.principal in (wanted.principal, _ALL_PRINCIPALS)
        and present.host in (wanted.host, "*")
        and present.operation in operations
        and _has_name(present, wanted.name)
    )


def _has_name(acl: AclBinding, name: str) -> bool:
    if acl.pattern is PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, _ALL_NAMES)


def mirror_principals(source: Collection[AclBinding], group: str) -> frozenset[str]:
    """
    Return the principals that the source allows to hold the mirror's group.

    A prefix or ``*`` may also allow a consumer to hold it. Then the principal counts only if it may describe
    configurations of topics, which a mirror needs and a consumer does not.
    """
    holders = [
        each
        for each in source
        if each.resource is Resource.GROUP
        and each.allows
        and each.principal != _ALL_PRINCIPALS
        and each.operation in (AclOperation.READ, AclOperation.ALL)
        and _has_name(each, group)
    ]
    describing = {
        each.principal
        for each in source
        if each.resource is Resource.TOPIC and each.allows and each.operation is AclOperation.DESCRIBE_CONFIGS
    }
    return frozenset(
        each.principal
        for each in holders
        if (each.pattern, each.name) == (PatternType.LITERAL, group) or each.principal in describing
    )


def _all_of(cluster: Cluster) -> frozenset[AclBinding]:
    return frozenset().union(*(describe_acls(cluster, resource) for resource in Resource))


def _selected_groups(
    source: Cluster, bindings: Collection[AclBinding], selection: GroupSelection, own_group: str
) -> frozenset[str]:
    """
    Return the selected groups: those that the source lists, and those that an ACL names.

    If a broker does not answer, its groups get their ACLs in a later round.
    """
    named = {
        each.name
        for each in bindings
        if each.resource is Resource.GROUP and each.pattern is PatternType.LITERAL
    }
    found = named.union(list_groups(source).groups)
    return frozenset(name for name in found if name != own_group and selection.matches(name))

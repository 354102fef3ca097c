"""
ACLs by their effect, for the gate *in step*. The module sends no requests.

``--sync-acls`` compares ACLs as they are written. A cut-over asks for less: the permissions of the source's
clients at the destination, however they are granted there. As in Kafka's authorizers, READ, WRITE, DELETE and
ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS. For denials only ALL implies another
operation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...client.acls import AclBinding, AclOperation, PatternType, Resource

__all__ = ["lacking", "mirror_principals"]

_ALL_NAMES = "*"
_ALL_PRINCIPALS = "User:*"
_DESCRIBING = (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)


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


def lacking(
    wanted: Iterable[AclBinding], present: Collection[AclBinding], principals: Collection[str]
) -> list[AclBinding]:
    """
    Return the ACLs whose effect the destination lacks.

    Args:
        wanted: The ACLs that it should have.
        present: The ACLs that it has.
        principals: The principals of the mirror, which need not continue there.

    """
    return [
        each
        for each in wanted
        if each.principal not in principals and not any(_implies(other, each) for other in present)
    ]


def _implies(present: AclBinding, wanted: AclBinding) -> bool:
    return (
        (present.resource, present.allows) == (wanted.resource, wanted.allows)
        and present.principal in (wanted.principal, _ALL_PRINCIPALS)
        and present.host in (wanted.host, "*")
        and present.operation in _implying(wanted)
        and _covers(present, wanted)
    )


def _implying(wanted: AclBinding) -> Collection[AclOperation]:
    found = [wanted.operation, AclOperation.ALL]
    if wanted.allows and wanted.operation is AclOperation.DESCRIBE:
        found += _DESCRIBING
    if wanted.allows and wanted.operation is AclOperation.DESCRIBE_CONFIGS:
        found.append(AclOperation.ALTER_CONFIGS)
    return found


def _covers(present: AclBinding, wanted: AclBinding) -> bool:
    """Whether an ACL has each name that another one has."""
    if wanted.pattern is PatternType.LITERAL or present.pattern is PatternType.PREFIXED:
        return _has_name(present, wanted.name)
    return present.name == _ALL_NAMES


def _has_name(acl: AclBinding, name: str) -> bool:
    if acl.pattern is PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, _ALL_NAMES)

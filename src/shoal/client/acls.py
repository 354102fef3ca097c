"""ACLs of topics and groups: describe and create (KIP-140; prefixes by KIP-290)."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import BrokerError, ProtocolError, raise_for
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from .cluster import Cluster

__all__ = ["AclBinding", "AclOperation", "PatternType", "Resource", "create_acls", "describe_acls"]

#: In filters: any pattern, operation or permission.
_ANY = 1

_DENY, _ALLOW = 2, 3

#: One request has some 100 KB.
_CREATED_AT_ONCE = 1000


class Resource(enum.IntEnum):
    """Kafka's number of a type of resources (``ResourceType``)."""

    TOPIC = 2
    GROUP = 3


class PatternType(enum.IntEnum):
    """Kafka's number of a type of patterns (``PatternType``)."""

    LITERAL = 3
    PREFIXED = 4


class AclOperation(enum.IntEnum):
    """Kafka's number of an operation on topics or groups (``AclOperation``)."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11


_PATTERNS, _OPERATIONS = frozenset(PatternType), frozenset(AclOperation)


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """
    A permission of one principal.

    Attributes:
        resource: The type of the resources.
        pattern: How ``name`` names them.
        name: A name, a prefix, or as a literal ``*`` for all.
        principal: As ``User:alice``; ``User:*`` for all.
        host: An address; ``*`` for all.
        allows: Whether it is allowed; a denial has precedence.

    """

    resource: Resource
    pattern: PatternType
    name: str
    principal: str
    host: str
    operation: AclOperation
    allows: bool

    def __str__(self) -> str:
        """Return a sentence without its period: ``User:alice may READ topic orders``."""
        verb = "may" if self.allows else "may not"
        kind = self.resource.name.lower() + ("s" if self.pattern is PatternType.PREFIXED else "")
        prefix = "with prefix " if self.pattern is PatternType.PREFIXED else ""
        host = "" if self.host == "*" else f" from {self.host}"
        return f"{self.principal} {verb} {self.operation.name} {kind} {prefix}{self.name}{host}"


def describe_acls(cluster: Cluster, resource: Resource) -> frozenset[AclBinding]:
    """
    Return the ACLs of all resources of a type; those of an operation that shoal does not know are left out.

    Raises:
        BrokerError: The cluster has no authorizer (SECURITY_DISABLED), or this principal may not describe
            the cluster.

    """
    response = cluster.ask_anyone(
        ApiKey.DESCRIBE_ACLS,
        resource_type_filter=resource,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    raise_for(
        response.error_code, f"the ACLs of {cluster}", response.error_message, "DESCRIBE on the cluster"
    )
    return frozenset(
        AclBinding(
            resource,
            PatternType(found.pattern_type),
            found.resource_name,
            acl.principal,
            acl.host,
            AclOperation(acl.operation),
            acl.permission_type == _ALLOW,
        )
        for found in response.resources
        for acl in found.acls
        if found.pattern_type in _PATTERNS and acl.operation in _OPERATIONS
    )


def create_acls(cluster: Cluster, bindings: Iterable[AclBinding]) -> dict[AclBinding, BrokerError]:
    """
    Create ACLs; one that exists already stays as it is.

    Returns:
        The error of each that the cluster refuses.

    Raises:
        ProtocolError: The answer has fewer results than the request.

    """
    creation = request_class(ApiKey.CREATE_ACLS).AclCreation
    wanted = list(bindings)
    refused = {}
    for start in range(0, len(wanted), _CREATED_AT_ONCE):
        some = wanted[start : start + _CREATED_AT_ONCE]
        creations = [
            creation(
                resource_type=each.resource,
                resource_name=each.name,
                resource_pattern_type=each.pattern,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=_ALLOW if each.allows else _DENY,
            )
            for each in some
        ]
        results = cluster.ask_anyone(ApiKey.CREATE_ACLS, creations=creations).results
        if len(results) != len(some):
            raise ProtocolError(
                f"creating {len(some)} ACLs on {cluster}: an answer with {len(results)} results"
            )
        for each, result in zip(some, results, strict=True):
            if result.error_code:
                where = f"creating the ACL that {each} on {cluster}"
                refused[each] = BrokerError(
                    result.error_code, where, result.error_message, "ALTER on the cluster"
                )
    return refused

"""The ACLs that this principal lacks, as the clusters report them (KIP-430)."""

from __future__ import annotations

from collections.abc import Sequence

from ...client.broker_state import group_operations, topic_operations
from ...client.cluster import Cluster
from ..model.acls import Acl

__all__ = ["missing_acls"]


def missing_acls(acls: Sequence[Acl], source: Cluster, destination: Cluster) -> tuple[Acl, ...]:
    """
    Return the ACLs that this principal lacks, as far as the clusters say so.

    The clusters return the operations on topics that exist, and on groups.

    Raises:
        Disconnected: A cluster does not answer.

    """
    allowed: dict[tuple[str, str, str], frozenset[str] | None] = {}
    for name, cluster in (("source", source), ("destination", destination)):
        topics = {acl.resource for acl in acls if (acl.cluster, acl.resource_type) == (name, "topic")}
        for topic, operations in topic_operations(cluster, topics).items():
            allowed[name, "topic", topic] = operations
        for group in {acl.resource for acl in acls if (acl.cluster, acl.resource_type) == (name, "group")}:
            allowed[name, "group", group] = group_operations(cluster, group)
    return tuple(
        acl
        for acl in acls
        if (operations := allowed.get((acl.cluster, acl.resource_type, acl.resource))) is not None
        and acl.operation not in operations
    )

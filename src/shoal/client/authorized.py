"""The operations that a cluster allows this principal (KIP-430)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..error_codes import ErrorCode
from ..errors import Disconnected
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from .cluster import Cluster

__all__ = ["group_operations", "topic_operations"]

#: The bits of Kafka's AclOperation.
_OPERATIONS = {
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
}

_REFUSED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})


def topic_operations(cluster: Cluster, topics: Iterable[str]) -> dict[str, frozenset[str] | None]:
    """
    Return the allowed operations by topic; None if the cluster does not return them.

    Brokers return them since Kafka 2.3, and only for topics that exist.

    Raises:
        Disconnected: The cluster does not answer.

    """
    topic = request_class(ApiKey.METADATA).MetadataRequestTopic
    response = cluster.ask_anyone(
        ApiKey.METADATA,
        topics=[topic(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    return {each.name: _read(each.error_code, each.authorized_operations) for each in response.topics}


def group_operations(cluster: Cluster, group: str) -> frozenset[str] | None:
    """
    Return the allowed operations of a group; None if the cluster does not return them.

    Sends the request to each broker, not to the group's coordinator: see
    :func:`~.coordinator.has_coordinator`.

    """
    for node_id in cluster.metadata.brokers:
        try:
            response = cluster.connection(node_id).request(
                ApiKey.DESCRIBE_GROUPS, groups=[group], include_authorized_operations=True
            )
        except Disconnected:
            continue
        for described in response.groups:
            described = _read(described.error_code, described.authorized_operations)
            if described is not None:
                return described
    return None


def _read(error_code: int, bits: Any) -> frozenset[str] | None:
    """Read a set of bits; None if the broker is too old or returns none."""
    if error_code in _REFUSED:
        return frozenset()
    if error_code or not isinstance(bits, (set, frozenset)):
        return None
    return frozenset(_OPERATIONS[bit] for bit in bits if bit in _OPERATIONS)

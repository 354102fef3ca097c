"""The APIs and versions that the gateway serves, by passing them through or by translation."""

from __future__ import annotations

from collections.abc import Mapping, Set

from ..protocol.apis import ApiKey
from ..protocol.fetch import MAGIC_2_FROM

__all__ = ["REWRITTEN", "TRANSLATED", "allowed_apis", "name_of", "served_versions"]

#: The newest version of each API that is served: those that producers and consumers use. Up to these
#: versions, only the answers of :data:`REWRITTEN` have brokers' addresses. So Produce ends at 9: KIP-951 adds
#: the new leader's address in v10. Fetch ends at 14, the last version with the replica id at its beginning
#: (KIP-903), where :mod:`.replica_ids` reads it. So Fetch through the gateway lists topics by id, while
#: Produce, which does so from 13 on, lists them by name.
#:
#: No APIs between brokers and of administrators: clients without a login act as the upstream user, who may be
#: authorized for them, and ACLs, logins and settings would outlive the gateway.
_NEWEST: Mapping[int, int] = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 14,
    ApiKey.LIST_OFFSETS: 11,
    ApiKey.METADATA: 13,
    ApiKey.OFFSET_COMMIT: 10,
    ApiKey.OFFSET_FETCH: 10,
    ApiKey.FIND_COORDINATOR: 6,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.DESCRIBE_GROUPS: 6,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,  # from 4 on for brokers only
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 4,  # from 5 on together with Produce 12 (KIP-890)
    ApiKey.TXN_OFFSET_COMMIT: 4,  # from 5 on, too
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.DESCRIBE_CLUSTER: 2,
    68: 1,  # ConsumerGroupHeartbeat
    69: 1,  # ConsumerGroupDescribe
}

#: The APIs that write records.
_WRITING = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
    }
)

#: The APIs whose answers have brokers' addresses.
REWRITTEN = frozenset({ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER})

#: The APIs that the gateway serves from version 0 on, by translation if the cluster does not support it. The
#: number is the oldest version that the gateway sends instead.
TRANSLATED: Mapping[int, int] = {
    ApiKey.PRODUCE: 7,  # the oldest version of the encoder
    ApiKey.FETCH: MAGIC_2_FROM,
    ApiKey.LIST_OFFSETS: 2,  # the first one with an isolation level
    ApiKey.METADATA: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 1,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    ApiKey.DESCRIBE_CONFIGS: 1,
}


def allowed_apis(*, read_only: bool, create_topics: bool) -> frozenset[int]:
    """Return the keys of the APIs that clients may use, besides ApiVersions and those of a login."""
    denied = _WRITING if read_only else frozenset()
    return frozenset(_NEWEST) - denied - (frozenset() if create_topics else {ApiKey.CREATE_TOPICS})


def served_versions(
    broker_versions: Mapping[int, tuple[int, int]], allowed: Set[int]
) -> dict[int, tuple[int, int]]:
    """
    Return the oldest and the newest version of each API that a client may ask for.

    Args:
        broker_versions: The versions that the broker supports.
        allowed: The keys of the APIs that clients may use.

    """
    served = {}
    for api_key in allowed & broker_versions.keys():
        broker_oldest, broker_newest = broker_versions[api_key]
        if broker_oldest <= _NEWEST[api_key]:
            oldest = 0 if api_key in TRANSLATED else broker_oldest
            served[int(api_key)] = (oldest, min(_NEWEST[api_key], broker_newest))
    return served


def name_of(api_key: int) -> str:
    """Return an API's name, or its number if it has none here."""
    try:
        return ApiKey(api_key).name
    except ValueError:
        return f"API {api_key}"

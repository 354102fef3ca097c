"""Which requests the gateway serves: what passes through, and what it translates besides."""

from __future__ import annotations

from collections.abc import Mapping

from ..protocol.apis import ApiKey

__all__ = ["OLDEST_TRANSLATED", "REWRITTEN", "name_of", "served_versions"]

#: The newest version of each API that is served. Up to these, no answer names a broker's address, but
#: those of :data:`REWRITTEN`; so Produce ends at 9 (KIP-951 put the new leader's address into what follows).
#: Fetch ends at 14, the last version with the replica id at its beginning (KIP-903), where
#: :mod:`.replica_ids` reads it. So Fetch lists topics by id through the gateway, and Produce, which does from
#: 13 on, lists them by name. And what brokers ask of each other is not served at all: it is none of a
#: client's business, and a gateway's principal may be allowed it. Share groups name addresses as well.
#:
#: Delegation tokens (38 to 41) and SCRAM users (50, 51) are not served either: a client of the gateway shows
#: no login, and would leave with a credential of the upstream user that is valid at the cluster itself.
#: Kafka refuses tokens to connections without a login for the same reason.
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
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,  # from 4 on it is the brokers' own
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 4,  # from 5 on it goes with Produce 12 (KIP-890)
    ApiKey.TXN_OFFSET_COMMIT: 4,  # so does this
    29: 3,  # DescribeAcls
    30: 3,  # CreateAcls
    31: 3,  # DeleteAcls
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_CONFIGS: 2,
    34: 2,  # AlterReplicaLogDirs
    35: 4,  # DescribeLogDirs
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DELETE_GROUPS: 2,
    43: 2,  # ElectLeaders
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    45: 1,  # AlterPartitionReassignments
    46: 0,  # ListPartitionReassignments
    47: 0,  # OffsetDelete
    48: 1,  # DescribeClientQuotas
    49: 1,  # AlterClientQuotas
    55: 1,  # DescribeQuorum: from 2 on it names the controllers' addresses
    57: 2,  # UpdateFeatures
    ApiKey.DESCRIBE_CLUSTER: 2,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 2,
    68: 1,  # ConsumerGroupHeartbeat
    69: 1,  # ConsumerGroupDescribe
    71: 0,  # GetTelemetrySubscriptions
    72: 0,  # PushTelemetry
    74: 1,  # ListConfigResources
    75: 0,  # DescribeTopicPartitions
}

#: Whose answers name brokers' addresses.
REWRITTEN = frozenset({ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER})

#: The oldest version of each API that a request is translated from, where the cluster does not speak it.
OLDEST_TRANSLATED: Mapping[int, int] = {
    ApiKey.PRODUCE: 0,
    ApiKey.FETCH: 0,
    ApiKey.LIST_OFFSETS: 0,
    ApiKey.METADATA: 0,
    ApiKey.OFFSET_COMMIT: 0,
    ApiKey.OFFSET_FETCH: 0,
    ApiKey.CREATE_TOPICS: 0,
    ApiKey.DELETE_TOPICS: 0,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 0,
    ApiKey.DESCRIBE_CONFIGS: 0,
}


def served_versions(broker_versions: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """
    Return the oldest and the newest version of each API that a client may ask for.

    Args:
        broker_versions: Those of the broker behind it.

    """
    served = {}
    for api_key, newest in _NEWEST.items():
        if api_key in broker_versions:
            broker_oldest, broker_newest = broker_versions[api_key]
            if broker_oldest <= newest:
                oldest = OLDEST_TRANSLATED.get(api_key, broker_oldest)
                served[int(api_key)] = (min(oldest, broker_oldest), min(newest, broker_newest))
    return served


def name_of(api_key: int) -> str:
    """Return an API's name, as far as it has one here."""
    try:
        return ApiKey(api_key).name
    except ValueError:
        return f"API {api_key}"

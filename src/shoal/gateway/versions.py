"""The APIs and versions that the gateway serves, by passing them through or by translation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..protocol.apis import ApiKey

__all__ = ["API_NAMES", "OLDEST_TRANSLATED", "REWRITTEN", "name_of", "served_versions"]


class _ServedApi(NamedTuple):
    """An API's name in Kafka's protocol, and the newest version that is served."""

    name: str
    newest: int


#: The newest version of each API that is served. Up to these versions, only the answers of :data:`REWRITTEN`
#: have brokers' addresses. So Produce ends at 9: KIP-951 adds the new leader's address in v10.
#: Fetch ends at 14, the last version with the replica id at its beginning (KIP-903), where
#: :mod:`.replica_ids` reads it. So Fetch through the gateway lists topics by id, while Produce, which does so
#: from 13 on, lists them by name. Requests between brokers are not served: the upstream user may be
#: authorized for them, and clients do not need them. Share groups are not served, because their answers have
#: addresses.
#:
#: Delegation tokens (38 to 41) and SCRAM users (50, 51) are not served either. A client of the gateway may
#: have no login, and would get a credential of the upstream user that is valid at the cluster itself.
#: Kafka refuses tokens to connections without a login for the same reason. :mod:`.broker_configs` refuses the
#: other way to such a credential.
_APIS: Mapping[int, _ServedApi] = {
    ApiKey.PRODUCE: _ServedApi("Produce", 9),
    ApiKey.FETCH: _ServedApi("Fetch", 14),
    ApiKey.LIST_OFFSETS: _ServedApi("ListOffsets", 11),
    ApiKey.METADATA: _ServedApi("Metadata", 13),
    ApiKey.OFFSET_COMMIT: _ServedApi("OffsetCommit", 10),
    ApiKey.OFFSET_FETCH: _ServedApi("OffsetFetch", 10),
    ApiKey.FIND_COORDINATOR: _ServedApi("FindCoordinator", 6),
    ApiKey.JOIN_GROUP: _ServedApi("JoinGroup", 9),
    ApiKey.HEARTBEAT: _ServedApi("Heartbeat", 4),
    ApiKey.LEAVE_GROUP: _ServedApi("LeaveGroup", 5),
    ApiKey.SYNC_GROUP: _ServedApi("SyncGroup", 5),
    ApiKey.DESCRIBE_GROUPS: _ServedApi("DescribeGroups", 6),
    ApiKey.LIST_GROUPS: _ServedApi("ListGroups", 5),
    ApiKey.CREATE_TOPICS: _ServedApi("CreateTopics", 7),
    ApiKey.DELETE_TOPICS: _ServedApi("DeleteTopics", 6),
    ApiKey.DELETE_RECORDS: _ServedApi("DeleteRecords", 2),
    ApiKey.INIT_PRODUCER_ID: _ServedApi("InitProducerId", 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _ServedApi("OffsetForLeaderEpoch", 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: _ServedApi("AddPartitionsToTxn", 3),  # from 4 on for brokers only
    ApiKey.ADD_OFFSETS_TO_TXN: _ServedApi("AddOffsetsToTxn", 4),
    ApiKey.END_TXN: _ServedApi("EndTxn", 4),  # from 5 on together with Produce 12 (KIP-890)
    ApiKey.TXN_OFFSET_COMMIT: _ServedApi("TxnOffsetCommit", 4),  # from 5 on, too
    29: _ServedApi("DescribeAcls", 3),
    30: _ServedApi("CreateAcls", 3),
    31: _ServedApi("DeleteAcls", 3),
    ApiKey.DESCRIBE_CONFIGS: _ServedApi("DescribeConfigs", 4),
    ApiKey.ALTER_CONFIGS: _ServedApi("AlterConfigs", 2),
    34: _ServedApi("AlterReplicaLogDirs", 2),
    35: _ServedApi("DescribeLogDirs", 4),
    ApiKey.CREATE_PARTITIONS: _ServedApi("CreatePartitions", 3),
    ApiKey.DELETE_GROUPS: _ServedApi("DeleteGroups", 2),
    43: _ServedApi("ElectLeaders", 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _ServedApi("IncrementalAlterConfigs", 1),
    45: _ServedApi("AlterPartitionReassignments", 1),
    46: _ServedApi("ListPartitionReassignments", 0),
    47: _ServedApi("OffsetDelete", 0),
    48: _ServedApi("DescribeClientQuotas", 1),
    49: _ServedApi("AlterClientQuotas", 1),
    55: _ServedApi("DescribeQuorum", 1),  # from 2 on with the controllers' addresses
    57: _ServedApi("UpdateFeatures", 2),
    ApiKey.DESCRIBE_CLUSTER: _ServedApi("DescribeCluster", 2),
    ApiKey.DESCRIBE_PRODUCERS: _ServedApi("DescribeProducers", 0),
    ApiKey.DESCRIBE_TRANSACTIONS: _ServedApi("DescribeTransactions", 0),
    ApiKey.LIST_TRANSACTIONS: _ServedApi("ListTransactions", 2),
    68: _ServedApi("ConsumerGroupHeartbeat", 1),
    69: _ServedApi("ConsumerGroupDescribe", 1),
    71: _ServedApi("GetTelemetrySubscriptions", 0),
    72: _ServedApi("PushTelemetry", 0),
    74: _ServedApi("ListConfigResources", 1),
    75: _ServedApi("DescribeTopicPartitions", 0),
}

#: The names of all APIs that the gateway can serve, by key.
API_NAMES: Mapping[int, str] = {int(api_key): api.name for api_key, api in _APIS.items()}

#: The APIs whose answers have brokers' addresses.
REWRITTEN = frozenset({ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER})

#: The oldest version of each translated API, for clusters that do not support it.
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


def served_versions(
    broker_versions: Mapping[int, tuple[int, int]], allowed: Collection[int] = API_NAMES.keys()
) -> dict[int, tuple[int, int]]:
    """
    Return the oldest and the newest version of each API that a client may ask for.

    Args:
        broker_versions: The versions that the broker supports.
        allowed: The keys of the APIs that clients may use.

    """
    served = {}
    for api_key, (_, newest) in _APIS.items():
        if api_key in broker_versions and api_key in allowed:
            broker_oldest, broker_newest = broker_versions[api_key]
            if broker_oldest <= newest:
                oldest = OLDEST_TRANSLATED.get(api_key, broker_oldest)
                served[int(api_key)] = (min(oldest, broker_oldest), min(newest, broker_newest))
    return served


def name_of(api_key: int) -> str:
    """Return an API's name, or its number if it has none here."""
    try:
        return ApiKey(api_key).name
    except ValueError:
        return f"API {api_key}"

"""
The APIs that the broker serves, each with its versions and the function that handles it.

The versions are Kafka 4.1's, as far as the broker has them. Kafka 4 removed older ones (KIP-896), so a client
that is too old for it fails here, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from shoal.protocol.apis import ApiKey

from ..state import Api
from . import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_producers,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
)

__all__ = ["APIS"]


def _table(*apis: Api) -> Mapping[ApiKey, Api]:
    return {api.key: api for api in apis}


APIS = _table(
    Api(ApiKey.PRODUCE, 3, 13, produce.handle),
    Api(ApiKey.FETCH, 4, 13, fetch.handle),
    Api(ApiKey.LIST_OFFSETS, 1, 8, list_offsets.handle),
    Api(ApiKey.METADATA, 0, 12, metadata.handle),
    Api(ApiKey.OFFSET_COMMIT, 2, 9, offset_commit.handle),
    Api(ApiKey.OFFSET_FETCH, 1, 9, offset_fetch.handle),
    Api(ApiKey.FIND_COORDINATOR, 0, 4, find_coordinator.handle),
    Api(ApiKey.JOIN_GROUP, 0, 9, join_group.handle),
    Api(ApiKey.HEARTBEAT, 0, 4, heartbeat.handle),
    Api(ApiKey.LEAVE_GROUP, 0, 5, leave_group.handle),
    Api(ApiKey.SYNC_GROUP, 0, 5, sync_group.handle),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6, describe_groups.handle),
    Api(ApiKey.LIST_GROUPS, 0, 5, list_groups.handle),
    Api(ApiKey.API_VERSIONS, 0, 4, api_versions.handle),
    Api(ApiKey.CREATE_TOPICS, 2, 7, create_topics.handle),
    Api(ApiKey.DELETE_TOPICS, 1, 6, delete_topics.handle),
    Api(ApiKey.DELETE_RECORDS, 0, 2, delete_records.handle),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, init_producer_id.handle),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, offset_for_leader_epoch.handle),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 3, add_partitions_to_txn.handle),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, add_offsets_to_txn.handle),
    Api(ApiKey.END_TXN, 0, 4, end_txn.handle),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 4, txn_offset_commit.handle),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, describe_configs.handle),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, alter_configs.handle),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, create_partitions.handle),
    Api(ApiKey.DELETE_GROUPS, 0, 2, delete_groups.handle),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, incremental_alter_configs.handle),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, describe_cluster.handle),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, describe_producers.handle),
)

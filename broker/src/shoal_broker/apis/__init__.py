"""
The APIs that the broker serves, each with its versions and the function that handles it.

The versions are Kafka 4.1's, as far as the broker has them. Kafka 4 removed older ones (KIP-896), so a client
that is too old for it fails here, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from shoal.protocol.apis import ApiKey

from ..state import Api
from . import cluster, configs, fetch, group_offsets, groups, offsets, produce, topics, transactions

__all__ = ["APIS"]

APIS: Mapping[ApiKey, Api] = {
    api.key: api
    for api in (
        Api(ApiKey.PRODUCE, 3, 13, produce.produce),
        Api(ApiKey.FETCH, 4, 13, fetch.fetch),
        Api(ApiKey.LIST_OFFSETS, 1, 8, offsets.list_offsets),
        Api(ApiKey.METADATA, 0, 12, cluster.metadata),
        Api(ApiKey.OFFSET_COMMIT, 2, 9, group_offsets.offset_commit),
        Api(ApiKey.OFFSET_FETCH, 1, 9, group_offsets.offset_fetch),
        Api(ApiKey.FIND_COORDINATOR, 0, 4, cluster.find_coordinator),
        Api(ApiKey.JOIN_GROUP, 0, 9, groups.join_group),
        Api(ApiKey.HEARTBEAT, 0, 4, groups.heartbeat),
        Api(ApiKey.LEAVE_GROUP, 0, 5, groups.leave_group),
        Api(ApiKey.SYNC_GROUP, 0, 5, groups.sync_group),
        Api(ApiKey.DESCRIBE_GROUPS, 0, 6, groups.describe_groups),
        Api(ApiKey.LIST_GROUPS, 0, 5, groups.list_groups),
        Api(ApiKey.API_VERSIONS, 0, 4, cluster.api_versions),
        Api(ApiKey.CREATE_TOPICS, 2, 7, topics.create_topics),
        Api(ApiKey.DELETE_TOPICS, 1, 5, topics.delete_topics),
        Api(ApiKey.DELETE_RECORDS, 0, 2, topics.delete_records),
        Api(ApiKey.INIT_PRODUCER_ID, 0, 5, transactions.init_producer_id),
        Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, offsets.offset_for_leader_epoch),
        Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 3, transactions.add_partitions_to_txn),
        Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, transactions.add_offsets_to_txn),
        Api(ApiKey.END_TXN, 0, 4, transactions.end_txn),
        Api(ApiKey.TXN_OFFSET_COMMIT, 0, 4, group_offsets.txn_offset_commit),
        Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, configs.describe_configs),
        Api(ApiKey.ALTER_CONFIGS, 0, 2, configs.alter_configs),
        Api(ApiKey.CREATE_PARTITIONS, 0, 3, topics.create_partitions),
        Api(ApiKey.DELETE_GROUPS, 0, 2, groups.delete_groups),
        Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, configs.incremental_alter_configs),
        Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, cluster.describe_cluster),
        Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, transactions.describe_producers),
        Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, transactions.describe_transactions),
        Api(ApiKey.LIST_TRANSACTIONS, 0, 0, transactions.list_transactions),
    )
}

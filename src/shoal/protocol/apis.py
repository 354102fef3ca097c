"""Kafka's API keys, and the versions of each that shoal's client supports."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from ..errors import ProtocolError

__all__ = ["CLIENT_VERSIONS", "ApiKey", "pick_version"]


class ApiKey(enum.IntEnum):
    """Kafka's number of each API."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


#: The oldest and newest version of each API that the client supports.
#: Produce and Fetch end at 13, the first that lists topics by id.
#: Produce begins at 7, the first that accepts zstd.
#: OffsetFetch ends at 8, the first of which a request names several groups.
CLIENT_VERSIONS: Mapping[ApiKey, tuple[int, int]] = {
    ApiKey.PRODUCE: (7, 13),
    ApiKey.FETCH: (4, 13),
    ApiKey.LIST_OFFSETS: (1, 8),
    ApiKey.METADATA: (1, 12),
    ApiKey.OFFSET_COMMIT: (2, 8),
    ApiKey.OFFSET_FETCH: (1, 8),
    ApiKey.FIND_COORDINATOR: (0, 4),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 4),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 5),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (3, 4),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.SASL_HANDSHAKE: (1, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.DESCRIBE_QUORUM: (1, 1),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 0),
}


def pick_version(api_key: ApiKey, broker_versions: Mapping[int, tuple[int, int]], address: str) -> int:
    """
    Return the newest version of an API that both sides support.

    Args:
        broker_versions: The oldest and newest version of each API, from ApiVersions.
        address: The broker's address, for the error.

    Raises:
        ProtocolError: There is none.

    """
    oldest, newest = CLIENT_VERSIONS[api_key]
    if api_key not in broker_versions:
        raise ProtocolError(f"the broker at {address} has no {api_key.name}")
    broker_oldest, broker_newest = broker_versions[api_key]
    version = min(newest, broker_newest)
    if version < max(oldest, broker_oldest):
        raise ProtocolError(
            f"the broker at {address} speaks {api_key.name} {broker_oldest} to {broker_newest}, "
            f"shoal {oldest} to {newest}"
        )
    return version

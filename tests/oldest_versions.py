"""The versions of requests that Kafka 4 removed (KIP-896)."""

from __future__ import annotations

from shoal.protocol.apis import ApiKey

__all__ = ["OLDEST_IN_KAFKA_4"]

#: The oldest version of each API of which Kafka 3.9 serves older ones, and Kafka 4 does not. Kafka 4.1
#: announces Produce from v0 on, although it refuses v0 to v2.
OLDEST_IN_KAFKA_4 = {
    ApiKey.PRODUCE: 3,
    ApiKey.FETCH: 4,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 1,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.DELETE_TOPICS: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    ApiKey.DESCRIBE_CONFIGS: 1,
}

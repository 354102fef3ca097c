"""The settings of a raw producer, by the properties of Java's producer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...errors import ConfigError
from ...protocol.produce import MOST_IN_FLIGHT
from ...records import Codec
from ..config import KNOWN_PROPERTIES, ClientConfig
from ..properties import (
    Property,
    boolean,
    bytes_only,
    integer,
    java,
    most_decompressed,
    one_of,
    read_into,
    table_of,
    written,
)

__all__ = ["PRODUCER_PROPERTIES", "ProducerSettings"]

_WHERE = "the producer's configuration"

_SERIALIZER = bytes_only("org.apache.kafka.common.serialization.ByteArraySerializer")

_INT64_MAX = 2**63 - 1


def _acks(value: str) -> str:
    if one_of("all", "-1", "0", "1")(value) in ("0", "1"):
        raise ValueError("is not supported: the producer waits for all in-sync replicas. Set it to all")
    return value


def _idempotence(value: str) -> bool:
    if not boolean(value):
        raise ValueError("is not supported: the producer writes each batch once. Remove it")
    return True


def _codec(value: str) -> Codec:
    return Codec[one_of("none", "gzip", "snappy", "lz4", "zstd")(value).upper()]


def _partitioner(value: str) -> str:
    raise ValueError(
        "is not supported: the producer hashes keys by murmur2, and spreads records without a key. Remove it"
    )


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """
    A raw producer's configuration.

    Attributes:
        sends_at_flush: Whether records wait for a flush, or until they fill a batch.

    """

    client: ClientConfig
    sends_at_flush: bool = False
    send_raw_bytes: bool = java("send.raw.bytes", "false", boolean)
    batch_size: int = java("batch.size", "16384", integer())
    buffer_memory: int = java("buffer.memory", "33554432", integer(0, _INT64_MAX))
    compression_type: Codec = java("compression.type", "none", _codec)
    delivery_timeout_ms: int = java("delivery.timeout.ms", "120000", integer())
    max_block_ms: int = java("max.block.ms", "60000", integer(0, _INT64_MAX))
    max_in_flight: int = java("max.in.flight.requests.per.connection", "5", integer(1, MOST_IN_FLIGHT))
    max_request_size: int = java("max.request.size", "1048576", integer(1))
    metadata_max_age_ms: int = java("metadata.max.age.ms", "300000", integer(1))
    retries: int = java("retries", "2147483647", integer())
    retry_backoff_ms: int = java("retry.backoff.ms", "100", integer(1))
    retry_backoff_max_ms: int = java("retry.backoff.max.ms", "1000", integer(1))
    max_decompressed_bytes: int = most_decompressed()
    acks: str = java("acks", "all", _acks)
    enable_idempotence: bool = java("enable.idempotence", "true", _idempotence)
    linger_ms: int = java("linger.ms", "0", integer())  # it has no effect
    partitioner_class: str | None = java("partitioner.class", None, _partitioner)
    key_serializer: str | None = java("key.serializer", None, _SERIALIZER)
    value_serializer: str | None = java("value.serializer", None, _SERIALIZER)

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> ProducerSettings:
        """
        Read the properties of a Java producer.

        Raises:
            ConfigError: A property is unknown or not supported, a value is invalid, or values contradict each
                other.

        """
        given = written(properties, PRODUCER_PROPERTIES.keys() | KNOWN_PROPERTIES, _WHERE)
        client, _ = ClientConfig.from_properties("destination", given, where=_WHERE)
        read = read_into(cls, given, _WHERE, client=client)
        least = client.request_timeout_ms
        if read.delivery_timeout_ms < least and "delivery.timeout.ms" in given:
            raise ConfigError(
                f"{_WHERE}: delivery.timeout.ms={read.delivery_timeout_ms} must be at least "
                f"request.timeout.ms, {least}"
            )
        return replace(
            read,
            delivery_timeout_ms=max(read.delivery_timeout_ms, least),
            retry_backoff_max_ms=max(read.retry_backoff_ms, read.retry_backoff_max_ms),
        )


#: The properties that the producer reads.
PRODUCER_PROPERTIES: Mapping[str, Property] = table_of(ProducerSettings)

"""The settings of a raw producer, by the properties of Java's producer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import ConfigError
from ...protocol.produce import MOST_IN_FLIGHT
from ...records import Codec
from ..config import ClientConfig
from ..properties import (
    DECOMPRESSED_LIMIT,
    MOST_DECOMPRESSED,
    Property,
    boolean,
    bytes_only,
    integer,
    one_of,
    read_properties,
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


#: The properties that the producer reads, with their defaults. ``linger.ms`` has no effect.
PRODUCER_PROPERTIES: Mapping[str, Property] = {
    "acks": Property("all", _acks),
    "batch.size": Property("16384", integer()),
    "buffer.memory": Property("33554432", integer(0, _INT64_MAX)),
    "compression.type": Property("none", _codec),
    "delivery.timeout.ms": Property("120000", integer()),
    "enable.idempotence": Property("true", _idempotence),
    "key.serializer": Property(None, _SERIALIZER),
    "linger.ms": Property("0", integer()),
    "max.block.ms": Property("60000", integer(0, _INT64_MAX)),
    "max.in.flight.requests.per.connection": Property("5", integer(1, MOST_IN_FLIGHT)),
    "max.request.size": Property("1048576", integer(1)),
    "metadata.max.age.ms": Property("300000", integer(1)),
    "partitioner.class": Property(None, _partitioner),
    "retries": Property("2147483647", integer()),
    "retry.backoff.max.ms": Property("1000", integer(1)),
    "retry.backoff.ms": Property("100", integer(1)),
    "send.raw.bytes": Property("false", boolean),
    MOST_DECOMPRESSED: DECOMPRESSED_LIMIT,
    "value.serializer": Property(None, _SERIALIZER),
}


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """
    The values of a raw producer's properties, by the properties' names.

    Attributes:
        sends_at_flush: Whether records wait for a flush, or until they fill a batch.

    """

    client: ClientConfig
    send_raw_bytes: bool
    batch_size: int
    buffer_memory: int
    compression_type: Codec
    delivery_timeout_ms: int
    max_block_ms: int
    max_in_flight: int
    max_request_size: int
    metadata_max_age_ms: int
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    max_decompressed_bytes: int
    sends_at_flush: bool = False

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> ProducerSettings:
        """
        Read the properties of a Java producer.

        Raises:
            ConfigError: A property is unknown or not supported, a value is invalid, or values contradict each
                other.

        """
        values, written = read_properties(properties, PRODUCER_PROPERTIES, _WHERE)
        client, _ = ClientConfig.from_properties("destination", written, where=_WHERE)
        delivery_ms, least = values["delivery.timeout.ms"], client.request_timeout_ms
        if delivery_ms < least and "delivery.timeout.ms" in written:
            raise ConfigError(
                f"{_WHERE}: delivery.timeout.ms={delivery_ms} must be at least request.timeout.ms, {least}"
            )
        return cls(
            client,
            values["send.raw.bytes"],
            values["batch.size"],
            values["buffer.memory"],
            values["compression.type"],
            max(delivery_ms, least),
            values["max.block.ms"],
            values["max.in.flight.requests.per.connection"],
            values["max.request.size"],
            values["metadata.max.age.ms"],
            values["retries"],
            values["retry.backoff.ms"],
            max(values["retry.backoff.ms"], values["retry.backoff.max.ms"]),
            values[MOST_DECOMPRESSED],
        )

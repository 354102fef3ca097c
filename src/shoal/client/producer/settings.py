"""The settings of a raw producer, by the properties of Java's producer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import ConfigError
from ...protocol.produce import MOST_IN_FLIGHT
from ...records import Codec
from ..config import ClientConfig
from ..produce import ACKS_ALL
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


def _acks(value: str) -> int:
    return {"all": ACKS_ALL, "-1": ACKS_ALL, "0": 0, "1": 1}[one_of("all", "-1", "0", "1")(value)]


def _codec(value: str) -> Codec:
    return Codec[one_of("none", "gzip", "snappy", "lz4", "zstd")(value).upper()]


def _refused(value: str) -> str:
    raise ValueError(
        "is not supported: the producer hashes keys by murmur2, and spreads records without a key. Remove it"
    )


#: The properties that the producer reads, with their defaults.
PRODUCER_PROPERTIES: Mapping[str, Property] = {
    "acks": Property("all", _acks),
    "batch.size": Property("16384", integer()),
    "buffer.memory": Property("33554432", integer(0, _INT64_MAX)),
    "compression.type": Property("none", _codec),
    "delivery.timeout.ms": Property("120000", integer()),
    "enable.idempotence": Property(None, boolean),
    "key.serializer": Property(None, _SERIALIZER),
    "linger.ms": Property("5", integer()),
    "max.block.ms": Property("60000", integer(0, _INT64_MAX)),
    "max.in.flight.requests.per.connection": Property("5", integer(1)),
    "max.request.size": Property("1048576", integer()),
    "metadata.max.age.ms": Property("300000", integer(1)),
    "partitioner.class": Property(None, _refused),
    "partitioner.ignore.keys": Property("false", boolean),
    "retries": Property("2147483647", integer()),
    "retry.backoff.max.ms": Property("1000", integer(1)),
    "retry.backoff.ms": Property("100", integer(1)),
    "send.raw.bytes": Property("false", boolean),
    MOST_DECOMPRESSED: DECOMPRESSED_LIMIT,
    "shoal.multi.batch": Property("auto", one_of("auto", "off")),
    "value.serializer": Property(None, _SERIALIZER),
}


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The values of a raw producer's properties, by the properties' names."""

    client: ClientConfig
    send_raw_bytes: bool
    acks: int
    enable_idempotence: bool
    batch_size: int
    buffer_memory: int
    compression_type: Codec
    delivery_timeout_ms: int
    linger_ms: int
    max_block_ms: int
    max_in_flight: int
    max_request_size: int
    metadata_max_age_ms: int
    partitioner_ignore_keys: bool
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    max_decompressed_bytes: int
    multi_batch: bool

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
        idempotent = values["enable.idempotence"]
        obstacle = _obstacle(values)
        if idempotent and obstacle:
            raise ConfigError(f"{_WHERE}: enable.idempotence=true needs {obstacle}")
        if idempotent is None:
            # As in Java: a setting that rules out idempotence turns its default off.
            idempotent = obstacle is None
        least = values["linger.ms"] + client.request_timeout_ms
        if values["delivery.timeout.ms"] < least:
            if "delivery.timeout.ms" in written:
                raise ConfigError(
                    f"{_WHERE}: delivery.timeout.ms={values['delivery.timeout.ms']} must be at least "
                    f"linger.ms + request.timeout.ms, {least}"
                )
            values["delivery.timeout.ms"] = least
        return cls(
            client,
            values["send.raw.bytes"],
            values["acks"],
            idempotent,
            values["batch.size"],
            values["buffer.memory"],
            values["compression.type"],
            values["delivery.timeout.ms"],
            values["linger.ms"],
            values["max.block.ms"],
            values["max.in.flight.requests.per.connection"],
            values["max.request.size"],
            values["metadata.max.age.ms"],
            values["partitioner.ignore.keys"],
            values["retries"],
            values["retry.backoff.ms"],
            max(values["retry.backoff.ms"], values["retry.backoff.max.ms"]),
            values[MOST_DECOMPRESSED],
            # Compare-and-append needs sequences.
            values["shoal.multi.batch"] == "auto" and values["send.raw.bytes"] and idempotent,
        )


def _obstacle(values: Mapping[str, object]) -> str | None:
    """Return the requirement of an idempotent producer that these values violate, or None."""
    if values["acks"] != ACKS_ALL:
        return "acks=all"
    if values["retries"] == 0:
        return "retries above 0"
    in_flight = values["max.in.flight.requests.per.connection"]
    assert isinstance(in_flight, int)
    if in_flight > MOST_IN_FLIGHT:
        return f"max.in.flight.requests.per.connection of at most {MOST_IN_FLIGHT}"
    return None

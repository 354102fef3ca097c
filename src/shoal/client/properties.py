"""
Java's properties: the readers of their values, and dataclasses whose fields are properties.

A field that :func:`java` declares has the name of the property, its default as text, and its reader. So a
property stands in one place: in the dataclass that the code uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from ..errors import ConfigError, ExpandsTooFar, UnsupportedBatch
from ..nearest import did_you_mean
from ..records.compression import DEFAULT_LIMIT_BYTES

__all__ = [
    "NO_MEANING",
    "Property",
    "boolean",
    "bytes_only",
    "integer",
    "java",
    "most_decompressed",
    "names",
    "one_of",
    "read_into",
    "reason_with_property",
    "table_of",
    "text",
    "written",
]

#: Properties of Java's consumers and producers without an effect here: shoal has other settings for their
#: purpose, or no such feature.
NO_MEANING = frozenset(
    """
    acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset
    batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type
    compression.zstd.level connections.max.idle.ms delivery.timeout.ms enable.auto.commit
    enable.idempotence enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms
    fetch.min.bytes group.id group.instance.id group.protocol heartbeat.interval.ms key.deserializer
    key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records max.request.size metadata.max.age.ms
    metadata.max.idle.ms metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms partition.assignment.strategy partitioner.class receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms retries retry.backoff.max.ms retry.backoff.ms
    send.buffer.bytes session.timeout.ms socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms transaction.timeout.ms value.deserializer value.serializer
    check.crcs default.api.timeout.ms
    """.split()  # noqa: SIM905
)

S = TypeVar("S")

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Property:
    """
    One property.

    Attributes:
        default: The default as text; None if there is none.
        read: Converts the text; raises ValueError with a phrase about the problem.

    """

    name: str
    default: str | None
    read: Callable[[str], Any]

    def value_in(self, properties: Mapping[str, str], where: str) -> Any:
        """
        Return the property's value, or its default.

        Args:
            where: The source of the properties in errors.

        Raises:
            ConfigError: The value is invalid.

        """
        value = properties.get(self.name, self.default)
        try:
            return None if value is None else self.read(value.strip())
        except ValueError as error:
            raise ConfigError(f"{where}: {self.name}={value} {error}") from None


def text(value: str) -> str:
    """Read any text."""
    return value


def boolean(value: str) -> bool:
    """Read true or false."""
    if value.lower() not in ("true", "false"):
        raise ValueError("is neither true nor false. Set one of them")
    return value.lower() == "true"


def integer(smallest: int = 0, largest: int = _INT32_MAX) -> Callable[[str], int]:
    """Return a reader of whole numbers within bounds."""

    def read(value: str) -> int:
        digits = value.removeprefix("-")
        # Digits are checked first: Python itself refuses to read a number with thousands of them.
        if not digits.isdecimal() or len(digits) > 19 or not smallest <= int(value) <= largest:
            raise ValueError(f"is not a number from {smallest} to {largest}")
        return int(value)

    return read


def one_of(*values: str) -> Callable[[str], str]:
    """Return a reader of some words, in any case."""

    def read(value: str) -> str:
        if value.lower() not in values:
            raise ValueError(f"is none of {', '.join(values)}")
        return value.lower()

    return read


def bytes_only(java_class: str) -> Callable[[str], str]:
    """Accept only Java's serializer or deserializer of bytes: keys and values are bytes here."""

    def read(value: str) -> str:
        if value != java_class:
            raise ValueError(
                f"is not supported: keys and values are bytes here. Remove it, or set it to {java_class}"
            )
        return value

    return read


def names(value: str) -> tuple[str, ...]:
    """Read a list of names with commas between them."""
    return tuple(filter(None, (each.strip() for each in value.split(","))))


def java(name: str, default: str | None, read: Callable[[str], Any] = text) -> Any:
    """Declare a field of a dataclass as a property; the field's default is the property's."""
    declared = Property(name, default, read)
    return field(default=None if default is None else read(default), metadata={"property": declared})


_MOST_DECOMPRESSED = "shoal.max.decompressed.bytes"


def most_decompressed() -> Any:
    """Declare the property for the largest batch that a raw client decodes and writes again."""
    return java(_MOST_DECOMPRESSED, str(DEFAULT_LIMIT_BYTES), integer(1, 2**40))


def reason_with_property(error: UnsupportedBatch) -> str:
    """Return an error's reason, with the property that sets the limit if the batch is above it."""
    return f"{error.reason} ({_MOST_DECOMPRESSED})" if isinstance(error, ExpandsTooFar) else error.reason


def table_of(*settings: type[Any]) -> dict[str, Property]:
    """Return the properties of dataclasses by their names."""
    declared = [
        each.metadata["property"] for cls in settings for each in fields(cls) if "property" in each.metadata
    ]
    return {each.name: each for each in declared}


def read_into(settings: type[S], properties: Mapping[str, str], where: str, **others: Any) -> S:
    """
    Make a dataclass whose fields are properties.

    Args:
        where: The source of the properties in errors.
        **others: The fields that are no properties.

    Raises:
        ConfigError: A value is invalid.

    """
    values = {
        each.name: each.metadata["property"].value_in(properties, where)
        for each in fields(settings)  # type: ignore[arg-type]
        if "property" in each.metadata
    }
    return settings(**values, **others)


def written(properties: Mapping[str, object], known: Iterable[str], where: str) -> dict[str, str]:
    """
    Return properties as text, without those that are None.

    A name that is not known is refused, with the most similar one: a typing error must not become a default.

    Args:
        properties: The properties by Java's names; values are texts or Python's own: True, 500, ["range"].
        known: The names that the caller knows.
        where: Their source in errors.

    Raises:
        ConfigError: A name is unknown.

    """
    if not isinstance(properties, Mapping):
        raise ConfigError(f"{where} is a dict of properties, not of type {type(properties).__name__}")
    known = frozenset(known)
    for name in properties:
        if name not in known:
            near = did_you_mean(str(name), known)
            raise ConfigError(f"{where}: there is no property {name!r}{near}")
    return {name: _as_text(value) for name, value in properties.items() if value is not None}


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)

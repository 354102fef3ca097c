"""
What consumers of a group tell each other: subscriptions and assignments.

The coordinator passes these bytes on and does not look into them. Kafka's
definitions are ``ConsumerProtocolSubscription.json`` and
``ConsumerProtocolAssignment.json``, versions 0 to 3; a version stands in front
(``ConsumerProtocol``). Newer versions only add fields at the end, so what is
newer is read as version 3, and what is behind that is left.

====  ==========================================
 v    a subscription gained
====  ==========================================
 0    topics, user data
 1    the partitions that the member owns
 2    the generation in which it got them
 3    its rack
====  ==========================================

An assignment has partitions and user data in all versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import ProtocolError
from .primitives import (
    INT16,
    INT32,
    read_array_length,
    read_nullable_string,
    read_record_set,
    read_string,
    unpack,
    write_string,
)

__all__ = [
    "CONSUMER_PROTOCOL_TYPE",
    "CONSUMER_PROTOCOL_VERSION",
    "NO_GENERATION",
    "Subscription",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
]

#: The type under which consumers join a group; Kafka's tools describe no other.
CONSUMER_PROTOCOL_TYPE = "consumer"

#: The newest that is written and understood.
CONSUMER_PROTOCOL_VERSION = 3

#: Stands for a generation where a member has none.
NO_GENERATION = -1

_NULL = b"\xff\xff\xff\xff"


@dataclass(frozen=True, slots=True)
class Subscription:
    """
    What a member wants, and what it has.

    Attributes:
        topics: Names.
        user_data: The assignor's own; None for null.
        owned: ``(topic, partition)`` that it owns, as it says.
        generation: In which it got them, or -1.
        rack: Where it runs, if it tells.

    """

    topics: Sequence[str]
    user_data: bytes | None = None
    owned: Sequence[tuple[str, int]] = ()
    generation: int = NO_GENERATION
    rack: str | None = None


def encode_subscription(subscription: Subscription, version: int = CONSUMER_PROTOCOL_VERSION) -> bytes:
    """Encode as Java's client does: topics and partitions in their order."""
    topics = sorted(subscription.topics)
    parts = [INT16.pack(version), INT32.pack(len(topics))]
    parts += [write_string(topic, compact=False) for topic in topics]
    parts.append(_write_bytes(subscription.user_data))
    if version >= 1:
        parts.append(_write_partitions(sorted(subscription.owned)))
    if version >= 2:
        parts.append(INT32.pack(subscription.generation))
    if version >= 3:
        parts.append(
            INT16.pack(-1) if subscription.rack is None else write_string(subscription.rack, compact=False)
        )
    return b"".join(parts)


def decode_subscription(data: bytes | memoryview) -> Subscription:
    """
    Decode what another member wrote.

    Raises:
        ProtocolError: It is cut short or malformed.

    """
    buffer = memoryview(data)
    version, position = _read_version(buffer)
    count, position = read_array_length(buffer, position, compact=False)
    topics = []
    for _ in range(count):
        topic, position = read_string(buffer, position, compact=False)
        topics.append(topic)
    user_data, position = _read_bytes(buffer, position)
    owned: list[tuple[str, int]] = []
    generation, rack = NO_GENERATION, None
    if version >= 1:
        owned, position = _read_partitions(buffer, position)
    if version >= 2:
        (generation,) = unpack(INT32, buffer, position)
        position += INT32.size
    if version >= 3:
        rack, position = read_nullable_string(buffer, position, compact=False)
    return Subscription(topics, user_data, owned, generation, rack or None)


def encode_assignment(
    partitions: Iterable[tuple[str, int]], version: int = CONSUMER_PROTOCOL_VERSION
) -> bytes:
    """Encode a member's part, without user data; topics in the order in which they come first."""
    return INT16.pack(version) + _write_partitions(partitions) + _NULL


def decode_assignment(data: bytes | memoryview) -> list[tuple[str, int]]:
    """
    Decode a member's part; of no bytes at all, nothing.

    Raises:
        ProtocolError: It is cut short or malformed.

    """
    buffer = memoryview(data)
    if not len(buffer):
        # A leader that does not know a member leaves it out, and the coordinator sends nothing.
        return []
    _, position = _read_version(buffer)
    partitions, position = _read_partitions(buffer, position)
    _read_bytes(buffer, position)
    return partitions


def _read_version(buffer: memoryview) -> tuple[int, int]:
    (version,) = unpack(INT16, buffer, 0)
    if version < 0:
        raise ProtocolError(f"version {version} of a consumer's subscription or assignment")
    return version, INT16.size


def _read_bytes(buffer: memoryview, position: int) -> tuple[bytes | None, int]:
    (length,) = unpack(INT32, buffer, position)
    data, position = read_record_set(buffer, position, compact=False)
    return (None if length < 0 else bytes(data)), position


def _write_bytes(data: bytes | None) -> bytes:
    return _NULL if data is None else INT32.pack(len(data)) + data


def _read_partitions(buffer: memoryview, position: int) -> tuple[list[tuple[str, int]], int]:
    partitions: list[tuple[str, int]] = []
    topics, position = read_array_length(buffer, position, compact=False)
    for _ in range(topics):
        topic, position = read_string(buffer, position, compact=False)
        count, position = read_array_length(buffer, position, compact=False)
        for _ in range(count):
            (number,) = unpack(INT32, buffer, position)
            position += INT32.size
            partitions.append((topic, number))
    return partitions, position


def _write_partitions(partitions: Iterable[tuple[str, int]]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    parts = [INT32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += [write_string(topic, compact=False), INT32.pack(len(numbers)), *map(INT32.pack, numbers)]
    return b"".join(parts)

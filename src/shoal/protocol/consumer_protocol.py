"""
Subscriptions and assignments, which the members of a group exchange through the coordinator.

The coordinator passes these bytes on without decoding them. Kafka's definitions are
``ConsumerProtocolSubscription.json`` and ``ConsumerProtocolAssignment.json``, versions 0 to 3.
The version comes first (``ConsumerProtocol``). Newer versions only add fields at the end: a newer version is
read as version 3, and the bytes after it are ignored.

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

#: The newest version that shoal writes and reads.
CONSUMER_PROTOCOL_VERSION = 3

#: The generation of a member that has none.
NO_GENERATION = -1

_NULL = b"\xff\xff\xff\xff"


@dataclass(frozen=True, slots=True)
class Subscription:
    """
    The topics that a member subscribes to, and the partitions that it owns.

    Attributes:
        topics: The names of the topics.
        user_data: Data of the assignor; None for null.
        owned: The partitions that the member owns, as ``(topic, partition)``; from v1 on.
        generation: The generation in which the member received them, or -1; from v2 on.
        rack: The rack of the member, or None; from v3 on.

    """

    topics: Sequence[str]
    user_data: bytes | None = None
    owned: Sequence[tuple[str, int]] = ()
    generation: int = NO_GENERATION
    rack: str | None = None


def encode_subscription(subscription: Subscription, version: int = CONSUMER_PROTOCOL_VERSION) -> bytes:
    """Encode a subscription as Java's client does: topics and partitions are sorted."""
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
    Decode a subscription of another member.

    Raises:
        ProtocolError: The bytes are incomplete or malformed.

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
    """Encode the assignment of a member without user data; topics in the order of their first partition."""
    return INT16.pack(version) + _write_partitions(partitions) + _NULL


def decode_assignment(data: bytes | memoryview) -> list[tuple[str, int]]:
    """
    Decode the assignment of a member; no bytes are an empty assignment.

    Raises:
        ProtocolError: The bytes are incomplete or malformed.

    """
    buffer = memoryview(data)
    if not len(buffer):
        # If a leader does not list a member, the coordinator sends it no bytes.
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

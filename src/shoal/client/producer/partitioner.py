"""The partition of a record, if the caller names none."""

from __future__ import annotations

import random

__all__ = ["StickyPartitions", "murmur2", "partition_of_key"]

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return Kafka's hash of a key (``Utils.murmur2``) as an unsigned number of 32 bits."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little")
        k = k * _M & _MASK
        k ^= k >> _R
        k = k * _M & _MASK
        h = h * _M & _MASK ^ k
    if whole < length:
        h ^= int.from_bytes(data[whole:], "little")
        h = h * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key as Java's producer does (``BuiltInPartitioner.partitionForKey``)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitions:
    """Partitions for records without a key: one until its batch is full, then another (KIP-480)."""

    def __init__(self) -> None:
        self._current: dict[str, int] = {}

    def get(self, topic: str, partitions: int) -> int:
        """Return a topic's current partition."""
        current = self._current.get(topic)
        if current is None or current >= partitions:
            current = self._current[topic] = random.randrange(partitions)  # noqa: S311 (balances)
        return current

    def move_on(self, topic: str, partitions: int) -> None:
        """Stick to another partition of the topic, if it has another."""
        before = self._current.get(topic)
        others = [number for number in range(partitions) if number != before]
        self._current[topic] = random.choice(others) if others else 0  # noqa: S311 (balances)

"""Verify a mirror between two embedded brokers, and damage it before."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import batches
from two_brokers import TwoBrokers, batches_of

from shoal.broker.log import Log
from shoal.mirroring.verify import PartitionReport, VerifyReport, verify

__all__ = ["flip", "partition", "rewrite", "verified"]


def verified(brokers: TwoBrokers, **options: object) -> VerifyReport:
    """Verify the topic ``topic`` with the group of the mirror."""
    settings = brokers.settings
    chosen = {"group": settings.group, "patience_s": 5.0, **options}
    return verify(settings.source, settings.destination, {"topic": "topic"}, **chosen)  # type: ignore[arg-type]


def partition(brokers: TwoBrokers, **options: object) -> PartitionReport:
    """Verify its one partition."""
    (report,) = verified(brokers, **options).partitions
    return report


def rewrite(brokers: TwoBrokers, edit: Callable[[list[bytearray]], Sequence[bytearray]]) -> None:
    """Put other batches into the destination's log, one behind the other."""
    before = brokers.destination.log("topic")
    after = Log(before.name, before.config)
    offset = 0
    for batch in edit([bytearray(batch.view) for batch in batches_of(before)]):
        struct.pack_into(">q", batch, 0, offset)
        offset += struct.unpack_from(">i", batch, 23)[0] + 1
        # Without a producer: its sequence is no more what it was.
        after.store(batches.patched(batch, 43, struct.pack(">qhi", -1, -1, -1)))
    brokers.destination.topics.topic("topic").logs[0] = after


def flip(log: Log, batch_index: int, position: int, bit: int = 0) -> None:
    """Flip one bit of a stored batch; negative positions count from its end."""
    segment = log._segments[0]
    end = segment.position(batch_index + 1)
    start = segment.position(batch_index)
    segment._buffer[(start if position >= 0 else end) + position] ^= 1 << bit

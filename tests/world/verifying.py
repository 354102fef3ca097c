"""Verify a mirror between two embedded brokers, after damage to it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from shoal.records import Codec
from shoal.verify import Difference, DifferenceKind, OffsetRange, PartitionReport, VerifyReport, verify
from shoal_broker.storage.log import Log
from tests.world import batches
from tests.world.batches import Content, encode
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of

__all__ = [
    "altered",
    "cut",
    "extra",
    "flip",
    "lay_out",
    "missing",
    "partition",
    "reordered",
    "rewrite",
    "verified",
]


def cut(items: Sequence[Content], *sizes: int, codec: Codec = Codec.NONE) -> list[bytearray]:
    """Build a batch of each of these numbers of records, and one of the rest."""
    built = []
    for size in (*sizes, len(items)):
        if items:
            built.append(encode(items[:size], codec))
        items = items[size:]
    return built


def lay_out(brokers: TwoBrokers, found: Sequence[bytearray], topic: str = "topic") -> None:
    """Replace the destination's log by these batches, one after the other."""
    before = brokers.destination.log(topic)
    after = Log(before.name, before.config)
    offset = 0
    for batch in found:
        struct.pack_into(">q", batch, 0, offset)
        offset += struct.unpack_from(">i", batch, 23)[0] + 1
        after.store(batch)
    brokers.destination.topics.topic(topic).logs[0] = after


def verified(brokers: TwoBrokers, topic: str = "topic", **options: object) -> VerifyReport:
    """Verify a topic with the group of the mirror."""
    settings = brokers.settings
    chosen: dict[str, Any] = {"group": settings.group, "patience_s": 5.0, **options}
    return verify(settings.source, settings.destination, {topic: topic}, **chosen)


def partition(brokers: TwoBrokers, **options: object) -> PartitionReport:
    """Verify its one partition."""
    (report,) = verified(brokers, "topic", **options).partitions
    return report


def _of_kind(report: PartitionReport, kind: DifferenceKind) -> list[Difference]:
    return [each for each in report.differences if each.kind is kind]


def missing(report: PartitionReport) -> list[OffsetRange]:
    """Return the source offsets that are not at the destination."""
    return [each.source for each in _of_kind(report, DifferenceKind.MISSING)]


def extra(report: PartitionReport) -> list[OffsetRange]:
    """Return the destination offsets that are not in the source."""
    return [each.destination for each in _of_kind(report, DifferenceKind.EXTRA)]


def altered(report: PartitionReport) -> list[tuple[OffsetRange, OffsetRange]]:
    """Return the source and destination offsets that hold different records."""
    return [(each.source, each.destination) for each in _of_kind(report, DifferenceKind.ALTERED)]


def reordered(report: PartitionReport) -> list[tuple[OffsetRange, OffsetRange]]:
    """Return the source offsets, and the destination offsets that hold them out of order."""
    return [(each.source, each.destination) for each in _of_kind(report, DifferenceKind.REORDERED)]


def rewrite(brokers: TwoBrokers, edit: Callable[[list[bytearray]], Sequence[bytearray]]) -> None:
    """Replace the batches in the destination's log, one after the other."""
    # Without a producer: its sequence does not match any more.
    lay_out(
        brokers,
        [
            batches.patched(batch, 43, struct.pack(">qhi", -1, -1, -1))
            for batch in edit(
                [bytearray(batch.view) for batch in batches_of(brokers.destination.log("topic"))]
            )
        ],
    )


def flip(log: Log, batch_index: int, position: int, bit: int = 0) -> None:
    """Flip one bit of a stored batch; negative positions count from its end."""
    log.flip_bit(batch_index, position, bit)

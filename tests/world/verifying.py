"""Verify a mirror between two embedded brokers, after damage to it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from shoal.records import Codec
from shoal.verify import Difference, DifferenceKind, OffsetRange, PartitionReport, VerifyReport, verify
from shoal_broker.storage.log import Log
from tests.world import batches
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of

__all__ = [
    "Item",
    "altered",
    "cut",
    "encode",
    "extra",
    "flip",
    "lay_out",
    "missing",
    "old_message",
    "old_wrapper",
    "partition",
    "reordered",
    "rewrite",
    "verified",
]


class Item(NamedTuple):
    """A record, without its place."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def encode(
    items: Sequence[Item],
    codec: Codec = Codec.NONE,
    *,
    base_offset: int = 0,
    deltas: Sequence[int] | None = None,
    flags: int = 0,
    size: int | None = None,
    append_time: int | None = None,
) -> bytearray:
    """Build a batch of some records.

    ``deltas`` are their offsets in it, if there are holes, and ``size``
    all its offsets. With ``append_time`` it is a LogAppendTime batch.
    """
    deltas = range(len(items)) if deltas is None else deltas
    base_timestamp = items[0].timestamp
    records = [
        batches.Record(item.value, item.key, item.headers, delta, item.timestamp - base_timestamp)
        for item, delta in zip(items, deltas, strict=True)
    ]
    return batches.raw_batch(
        batches.payload(records, codec),
        base_offset=base_offset,
        attributes=codec | flags | (0 if append_time is None else batches.LOG_APPEND_TIME),
        last_offset_delta=(deltas[-1] + 1 if size is None else size) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(item.timestamp for item in items) if append_time is None else append_time,
        records_count=len(items),
    )


def old_message(item: Item, magic: int, offset: int) -> bytearray:
    """Build a message of magic 0 or 1; it has no headers."""
    return batches.message(magic, item.value, key=item.key, offset=offset, timestamp=item.timestamp)


def old_wrapper(found: Sequence[Item], magic: int, codec: Codec, base_offset: int) -> bytearray:
    """Build a compressed message, its inner offsets absolute in magic 0 and relative in magic 1."""
    first = 0 if magic else base_offset
    inner = [bytes(old_message(item, magic, first + number)) for number, item in enumerate(found)]
    return batches.wrapper(magic, codec, inner, offset=base_offset + len(found) - 1)


def cut(items: Sequence[Item], *sizes: int, codec: Codec = Codec.NONE) -> list[bytearray]:
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

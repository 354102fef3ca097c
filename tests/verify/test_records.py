"""Batches that are not the same on both sides, and their records: no difference, or exactly one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.mirroring.model.copy_options import CopyOptions
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal.verify import DifferenceKind, Outcome, PartitionReport, Side
from shoal_broker import Broker
from tests.hostile.liar import saying
from tests.verify.campaign.logs import replaced
from tests.world.batches import Content, encode
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of, compacted
from tests.world.history import NOW_MS
from tests.world.verifying import altered, cut, lay_out, missing, verified

LEGACY_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def items(count: int, first: int = 0) -> list[Content]:
    """Return records that occur only once."""
    return [
        Content(NOW_MS + number, b"key %d" % number, b"value %d" % number, (("name", b"%d" % number),))
        for number in range(first, first + count)
    ]


def without_headers(found: Sequence[Content]) -> list[Content]:
    """Return them as messages of the old formats can hold them."""
    return [item._replace(headers=()) for item in found]


class Sides:
    """A source's log whose records a mirror has copied into the destination's, in other batches."""

    def __init__(self, brokers: TwoBrokers, topic: str = "topic") -> None:
        self.brokers = brokers
        self.topic = topic
        (self.history,) = brokers.topic(topic)
        self.write = self.history.write

    @property
    def items(self) -> list[Content]:
        """The records that the destination must have."""
        return self.history.uncommitted

    def plain(self, count: int, codec: Codec = Codec.NONE) -> None:
        self.write(items(count, len(self.items)), codec)

    def holed(self, deltas: Sequence[int], size: int, codec: Codec = Codec.NONE) -> None:
        self.write(items(len(deltas), len(self.items)), codec, deltas=deltas, size=size)

    def messages(self, count: int, magic: int, codec: Codec = Codec.NONE) -> None:
        self.history.messages(without_headers(items(count, len(self.items))), magic, codec)

    def mirror(self) -> None:
        assert self.brokers.run(self.brokers.ranges(self.topic)).complete

    def report(self, **options: object) -> PartitionReport:
        (report,) = verified(self.brokers, self.topic, **options).partitions
        return report


@pytest.fixture
def sides(brokers: TwoBrokers) -> Sides:
    return Sides(brokers)


def fill_with(kind: str, sides: Sides, codec: Codec) -> None:
    """Put a batch between two that are copied whole: one that is not."""
    sides.plain(3)
    if kind == "holes":
        sides.holed([1, 2, 5, 6, 7, 9], 12, codec)
    else:
        sides.messages(6, int(kind[-1]), codec)
    sides.plain(4, Codec.GZIP)


KINDS = [
    *(("holes", codec) for codec in Codec),
    *((kind, Codec.NONE) for kind in ("messages 0", "messages 1")),
    ("wrapper 0", Codec.LZ4),
    *(("wrapper 1", codec) for codec in LEGACY_CODECS),
]


@pytest.fixture(params=KINDS, ids=lambda each: f"{each[0]}-{each[1].name.lower()}")
def rebuilt(request: pytest.FixtureRequest, sides: Sides) -> Sides:
    """A mirror that had to rebuild something, with its position."""
    kind, codec = request.param
    fill_with(kind, sides, codec)
    sides.mirror()
    return sides


# Equal


def test_verify_accepts_both_times_of_a_log_append_time_batch(sides: Sides) -> None:
    found = items(4)
    appended = NOW_MS + 1000
    sides.write(found, Codec.LZ4, append_time=appended)
    sides.plain(2)
    sides.mirror()
    later = [item._replace(timestamp=appended) for item in found]
    for copy in (found, later, [*found[:2], *later[2:]]):
        lay_out(sides.brokers, cut([*copy, *sides.items[4:]], 4, codec=Codec.GZIP))
        assert sides.report().outcome is Outcome.EQUAL
    wrong = [found[0]._replace(timestamp=appended + 1), *found[1:]]
    lay_out(sides.brokers, cut([*wrong, *sides.items[4:]], 4, codec=Codec.GZIP))
    report = sides.report()
    assert altered(report) == [((0, 1), (0, 1))]
    assert "timestamp" in str(report.differences[0].detail)


# Compaction after the copy


@pytest.fixture(params=Side)
def cleaned(request: pytest.FixtureRequest, sides: Sides) -> Broker:
    """The broker that has removed a record whose key occurs again."""
    first = items(20)
    sides.write(first)
    sides.write([each._replace(timestamp=each.timestamp + 1000, value=b"later") for each in first])
    sides.mirror()
    broker: Broker = getattr(sides.brokers, request.param.value)
    log = broker.log("topic")
    left = [compacted(each, lambda offset: offset != 7) for each in batches_of(log)]
    replaced(broker, "topic", left, log.log_end_offset)
    return broker


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_gap_in_a_compacted_topic_is_no_difference(cleaned: Broker, sides: Sides, policy: str) -> None:
    cleaned.topics.alter(cleaned.topics.topic("topic"), {"cleanup.policy": policy})
    report = sides.report()
    assert (report.outcome, report.records, report.removed) == (Outcome.EQUAL, 39, 1)


def test_gap_in_a_topic_that_is_not_compacted_is_not_compared(cleaned: Broker, sides: Sides) -> None:
    report = sides.report()
    assert (report.outcome, report.records, report.removed) == (Outcome.NOT_COMPARED, 39, 0)
    (left_out,) = report.not_compared
    assert (left_out.records, "cleanup.policy" in left_out.reason) == (1, True)


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
)
def test_gap_in_a_topic_with_a_hidden_policy_counts_as_compaction(
    cleaned: Broker, sides: Sides, code: ErrorCode
) -> None:
    def refuse(message: Any) -> None:
        for each in message.results:
            each.error_code = code

    with saying(cleaned, ApiKey.DESCRIBE_CONFIGS, refuse):
        assert sides.report().outcome is Outcome.EQUAL


# Bounds


def test_verify_names_a_batch_that_is_too_large_as_not_compared(rebuilt: Sides) -> None:
    large = Content(NOW_MS, b"key", bytes(300_000))
    rebuilt.plain(2)
    rebuilt.write([large], Codec.GZIP)
    rebuilt.plain(2, Codec.LZ4)
    rebuilt.mirror()
    lay_out(rebuilt.brokers, cut(rebuilt.items, 3, 6, 4, 2, 1, codec=Codec.ZSTD))
    assert rebuilt.report().outcome is Outcome.EQUAL
    report = rebuilt.report(options=CopyOptions(max_decompressed_bytes=200_000))
    assert (report.outcome, report.records) == (Outcome.NOT_COMPARED, len(rebuilt.items) - 1)
    (left_out,) = report.not_compared
    offset = rebuilt.history.records[15].offset
    assert (left_out.source, left_out.destination) == ((offset, offset + 1), (15, 16))
    assert all(each in left_out.reason for each in (str(offset), "decoded"))
    assert re.search(r"maximum.*decompressed", left_out.reason)


def test_verify_leaves_out_records_of_a_batch_too_large_on_one_side(sides: Sides) -> None:
    found = [Content(NOW_MS + number, b"key", bytes(100_000)) for number in range(4)]
    sides.plain(2)
    sides.write(found, Codec.GZIP)
    sides.plain(2)
    sides.mirror()
    lay_out(sides.brokers, cut(sides.items, 2, 2, 2, codec=Codec.ZSTD))
    report = sides.report(options=CopyOptions(max_decompressed_bytes=300_000))
    assert (report.outcome, report.records, report.differences) == (Outcome.NOT_COMPARED, 4, ())
    assert [(each.source, each.destination) for each in report.not_compared] == [((2, 6), (2, 6))]


@pytest.mark.parametrize("count", [1_000, 40_000, 80_000])
def test_verify_names_a_large_batch_missing_in_a_recompressed_copy(sides: Sides, count: int) -> None:
    sizes = [*range(3, 9), count, *range(3, 9)]
    for size in sizes:
        sides.plain(size, Codec.SNAPPY)
    sides.mirror()
    del sizes[6]
    lay_out(sides.brokers, cut([*sides.items[:33], *sides.items[33 + count :]], *sizes, codec=Codec.GZIP))
    report = sides.report()
    assert (missing(report), report.records) == ([(33, 33 + count)], 66)
    assert len(report.differences) == 1


def test_copy_of_append_times_without_a_record_elsewhere_has_no_altered_times(brokers: TwoBrokers) -> None:
    # Another tool copies the times that consumers see. The difference is in a batch without an append time.
    created = [Content(NOW_MS + number, b"k%d" % number, b"value") for number in range(60)]
    parts = [(created[:20], NOW_MS + 5000), (created[20:25], None), (created[25:], NOW_MS + 9000)]
    (history,) = brokers.topic()
    copied: list[Content] = []
    for part, append_time in parts:
        history.write(part, append_time=append_time)
        copied += [each._replace(timestamp=append_time or each.timestamp) for each in part]
    del copied[22]
    lay_out(brokers, [encode(copied)])
    (report,) = verified(brokers, group="none").partitions
    assert [(each.kind, each.source) for each in report.differences] == [(DifferenceKind.MISSING, (22, 23))]

"""Batches that are not the same on both sides, and their records: no difference, or exactly one."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from shoal.mirroring.model.copy_options import CopyOptions
from shoal.records import Codec
from shoal.verify import DifferenceKind, Outcome, PartitionReport
from tests.world.batches import Content, encode
from tests.world.clusters import TwoBrokers
from tests.world.history import NOW_MS
from tests.world.verifying import altered, cut, extra, lay_out, missing, reordered, verified

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


def test_verify_accepts_append_times_behind_a_difference_before_any_of_them(sides: Sides) -> None:
    sides.plain(6)
    found = items(6, 6)
    appended = NOW_MS + 1000
    sides.write(found, Codec.LZ4, append_time=appended)
    sides.plain(3)
    sides.mirror()
    copy = [*sides.items[:6], *(item._replace(timestamp=appended) for item in found), *sides.items[12:]]
    copy[1] = copy[1]._replace(value=b"other")
    lay_out(sides.brokers, cut(copy, 4))
    report = sides.report()
    assert (altered(report), report.records) == ([((1, 2), (1, 2))], 14)


# Compaction after the copy


def later(found: Sequence[Content]) -> list[Content]:
    """Return new records with the same keys."""
    return [each._replace(timestamp=each.timestamp + 1000, value=b"later") for each in found]


def test_verify_after_compaction_of_both_and_retention_of_the_source_is_equal(sides: Sides) -> None:
    sides.plain(10)
    first, second, kept, behind = items(1, 90), items(1, 91), items(40, 200), later(items(2, 90))
    sides.write([*first, *kept], deltas=[0, *range(2, 42)], size=42)
    sides.write(behind)
    copied = encode([*items(10), *second], deltas=[*range(10), 11])
    lay_out(sides.brokers, [copied, *cut([*kept, *behind], 7)])
    sides.history.log.delete_records(10)
    report = sides.report(group="none")
    assert report.alignment is not None
    assert (report.alignment.source_offset, report.alignment.destination_offset) == (10, 10)
    assert (report.outcome, report.records) == (Outcome.EQUAL, 42)


def test_verify_names_a_record_missing_behind_the_first_one_that_the_source_has_removed(sides: Sides) -> None:
    # The gap at 12 alone cannot have held both of the copy's first records: so the copy began before 11.
    first, lost, kept, behind = items(10), items(1, 10), items(40, 200), later(items(2, 90))
    sides.write(first)
    sides.write([*lost, *kept], deltas=[1, *range(3, 43)], size=43)
    sides.write(behind)
    lay_out(sides.brokers, cut([*items(2, 90), *kept, *behind], 7))
    report = sides.report(group="none")
    assert (report.outcome, missing(report), report.removed) == (Outcome.DIFFERENT, [(11, 12)], 2)


def test_verify_names_a_record_that_the_source_lacks_behind_one_that_the_copy_has_removed(
    sides: Sides,
) -> None:
    # Likewise, with a source whose beginning retention has deleted.
    gone, strange, kept, behind = items(2, 90), items(1, 50), items(40, 200), later(items(2, 90))
    sides.plain(10)
    sides.write([*gone, *kept])
    sides.write(behind)
    sides.history.log.delete_records(10)
    rest = encode([*strange, *kept], deltas=[1, *range(3, 43)], size=43)
    lay_out(sides.brokers, [encode(items(10)), rest, *cut(behind)])
    report = sides.report(group="none")
    assert (report.outcome, extra(report), report.removed) == (Outcome.DIFFERENT, [(11, 12)], 2)


def test_verify_after_compaction_of_the_last_copied_record_with_the_same_content_behind_is_equal(
    sides: Sides,
) -> None:
    sides.plain(3)
    behind = [Content(NOW_MS + 1000, b"key 90", b"value"), *items(2, 91)]
    sides.write(behind, deltas=[2, 3, 4])
    lay_out(sides.brokers, cut([*sides.items[:3], behind[0]._replace(timestamp=NOW_MS + 500)]))
    report = sides.report(group="none")
    assert (report.outcome, report.removed, report.not_mirrored) == (Outcome.EQUAL, 1, (5, 8))


def test_verify_names_a_double_before_its_original_beside_a_gap(sides: Sides) -> None:
    found = items(40)
    sides.write(found, deltas=range(6, 46), size=46)
    # The key follows the gap, but so does the record itself.
    lay_out(sides.brokers, cut([found[1], *found]))
    report = sides.report(group="none")
    assert (report.outcome, extra(report), report.removed) == (Outcome.DIFFERENT, [(0, 1)], 0)


def test_verify_after_compaction_does_not_compare_records_without_a_key(sides: Sides) -> None:
    keyless = [each._replace(key=None) for each in items(2, 90)]
    sides.plain(3)
    sides.holed([0, 2, 3], 6, Codec.NONE)
    sides.plain(2)
    sides.mirror()
    lay_out(sides.brokers, cut([*sides.items[:6], *keyless, *sides.items[6:]], 3))
    report = sides.report()
    assert (report.outcome, report.removed) == (Outcome.NOT_COMPARED, 0)
    assert [each.destination for each in report.not_compared] == [(6, 8)]
    assert re.search(r"cluster.*copied", report.not_compared[0].reason)


def test_verify_names_a_doubled_record_without_a_key_beside_a_gap(sides: Sides) -> None:
    found = [each._replace(key=None) for each in items(3)]
    sides.write(found, deltas=[0, 2, 4], size=5)
    sides.mirror()
    lay_out(sides.brokers, cut([found[0], found[1], found[1], found[2]], 2))
    report = sides.report()
    assert (report.outcome, extra(report)) == (Outcome.DIFFERENT, [(2, 3)])


# Different


def test_verify_of_a_rebuilt_batch_like_an_earlier_one_behind_swapped_batches_names_these_alone(
    sides: Sides,
) -> None:
    repeated = Content(NOW_MS, None, None)
    sides.plain(1)
    sides.write([repeated])
    for _ in range(3):
        sides.plain(1)
    # The copy of this batch has the bytes of the earlier one, and not its own.
    sides.write([repeated], deltas=[1], size=2)
    for _ in range(6):
        sides.plain(1)
    swapped = [*sides.items[:2], sides.items[3], sides.items[2], *sides.items[4:]]
    sides.mirror()
    lay_out(sides.brokers, cut(swapped, *[1] * len(swapped)))
    report = sides.report()
    assert (extra(report), missing(report), len(reordered(report))) == ([], [], 1)


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


def test_copy_of_append_times_without_a_record_elsewhere_has_no_altered_times(
    brokers: TwoBrokers,
) -> None:
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
    assert [(each.kind, each.source) for each in report.differences] == [
        (DifferenceKind.MISSING, (22, 23)),
    ]

"""The offsets at which a verification begins and ends on both sides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.mirroring.model.ranges import CopyRange
from shoal.records import Codec
from shoal.verify import Aligned, DifferenceKind, Outcome, PartitionReport, verify
from tests import batches
from tests.two_brokers import COMMIT, NOW_MS, History, TwoBrokers, batches_of
from tests.verifying import Item, cut, encode, flip, lay_out, partition, rewrite

#: Offsets 0, 3, 5, 10, 11, 15, 17, 23, 24, 28 to 30.
COUNTS = (3, 2, 5, 1, 4, 2, 6, 1, 4, 2)


@pytest.fixture
def loaded(history: History) -> History:
    """Ten batches of different times."""
    for number, count in enumerate(COUNTS):
        history.base_timestamp += 1000 * number
        history.plain(count)
    return history


def aligned(report: PartitionReport) -> tuple[Aligned, int, int]:
    assert report.alignment is not None
    return report.alignment.by, report.alignment.source_offset, report.alignment.destination_offset


def begin_at(ranges: list[CopyRange], offset: int) -> list[CopyRange]:
    return [each._replace(start_offset=offset) for each in ranges]


# The end


def test_verify_reports_records_behind_the_position_as_not_mirrored_yet(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(3, 2)
    brokers.run()
    history.plain(5, 1)
    report = partition(brokers)
    assert (report.outcome, report.not_mirrored, report.records) == (Outcome.EQUAL, (5, 11), 5)
    brokers.forget_pairs()
    assert partition(brokers).not_mirrored == (5, 11)


def test_verify_counts_no_markers_behind_the_position_as_lag(brokers: TwoBrokers, history: History) -> None:
    history.plain(3)
    brokers.run()
    history.marker().marker()
    report = partition(brokers)
    assert (report.outcome, report.not_mirrored) == (Outcome.EQUAL, None)


def test_verify_compares_records_copied_after_the_last_commit(brokers: TwoBrokers, history: History) -> None:
    history.plain(3, 2)
    brokers.run()
    position = brokers.position()
    history.plain(5, 1)
    brokers.run()
    brokers.commit(position)
    assert partition(brokers).records == 11
    flip(brokers.destination.log("topic"), 2, -1)
    assert partition(brokers).altered == [((5, 10), (5, 10))]


# A later start


def test_verify_of_a_later_start_is_equal(brokers: TwoBrokers, loaded: History) -> None:
    brokers.run(begin_at(brokers.ranges(), 11))
    for group, by in ((brokers.settings.group, Aligned.BY_ORIGIN), ("none", Aligned.BY_CONTENT)):
        report = partition(brokers, group=group)
        assert aligned(report) == (by, 11, 0)
        assert (report.outcome, report.source_skipped, report.records) == (Outcome.EQUAL, (0, 11), 19)


def test_alignment_with_descending_times_finds_the_content(brokers: TwoBrokers, history: History) -> None:
    for number, count in enumerate(COUNTS):
        history.base_timestamp -= 1000 * number
        history.plain(count)
    brokers.run(begin_at(brokers.ranges(), 11))
    brokers.forget_pairs()
    assert aligned(partition(brokers)) == (Aligned.BY_CONTENT, 11, 0)


def test_alignment_behind_a_doubled_batch_finds_the_content(brokers: TwoBrokers, loaded: History) -> None:
    # The first batch of the mirror is in the source twice; it began with the second.
    again = batches.batch([b"again"], base_offset=30)
    loaded.store(again)
    loaded.store(batches.batch([b"again"], base_offset=31))
    loaded.plain(4, 5)
    brokers.run(begin_at(brokers.ranges(), 31))
    brokers.forget_pairs()
    report = partition(brokers)
    assert aligned(report) == (Aligned.BY_CONTENT, 31, 0)
    assert report.outcome is Outcome.EQUAL


@pytest.mark.parametrize("index", [0, 1, 2])
def test_alignment_with_altered_first_batches_finds_the_start(
    brokers: TwoBrokers, loaded: History, index: int
) -> None:
    brokers.run(begin_at(brokers.ranges(), 11))
    brokers.forget_pairs()

    def alter(found: list[bytearray]) -> list[bytearray]:
        found[index] = batches.patched(found[index], len(found[index]) - 1, b"!")
        return found

    rewrite(brokers, alter)
    report = partition(brokers)
    last = [3, 5, 11][index]
    assert report.altered == [((11 + last, 12 + last), (last, last + 1))]


# Retention


@pytest.mark.parametrize("deleted", [3, 11, 12, 28])
@pytest.mark.parametrize("side", ["source", "destination"])
def test_verify_after_retention_on_one_side_is_equal(
    brokers: TwoBrokers, loaded: History, side: str, deleted: int
) -> None:
    brokers.run()
    broker = brokers.source if side == "source" else brokers.destination
    broker.log("topic").delete_records(deleted)
    for group in (brokers.settings.group, "none"):
        report = partition(brokers, group=group)
        # 12 is in the middle of a batch.
        assert aligned(report) == (Aligned.BY_CONTENT, deleted, deleted)
        assert (report.outcome, report.records) == (Outcome.EQUAL, 30 - deleted)


def test_verify_after_retention_on_both_sides_is_equal(brokers: TwoBrokers, loaded: History) -> None:
    brokers.run(begin_at(brokers.ranges(), 3))
    brokers.source.log("topic").delete_records(15)
    brokers.destination.log("topic").delete_records(7)
    for group in (brokers.settings.group, "none"):
        report = partition(brokers, group=group)
        assert aligned(report) == (Aligned.BY_CONTENT, 15, 12)
        assert (report.outcome, report.records) == (Outcome.EQUAL, 15)


def test_verify_after_retention_names_more_foreign_records_than_copied_ones(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(40)
    copied = [Item(each.timestamp, each.key, each.value) for each in history.committed[:25]]
    foreign = [Item(number, b"foreign %d" % number, b"") for number in range(31)]
    lay_out(brokers, cut([*foreign, *copied[:5], *copied[7:]], 9))
    brokers.destination.log("topic").delete_records(1)
    report = partition(brokers, group="none")
    assert (report.outcome, report.records, report.extra) == (Outcome.DIFFERENT, 23, [(1, 31)])
    assert report.missing == [(5, 7)]


def test_verify_after_retention_compares_repeated_records_behind_foreign_ones(
    brokers: TwoBrokers, history: History
) -> None:
    first, beat = [Item(1, None, b""), Item(1, None, b"first")], [Item(1, b"beat", b"")] * 25
    brokers.source.log("topic").store(encode([*first, *beat]))
    foreign = [Item(number, b"foreign %d" % number, b"") for number in range(37)]
    lay_out(brokers, cut([*foreign, *first, *beat[:3], *first, *beat], 9))
    brokers.destination.log("topic").delete_records(1)
    report = partition(brokers, group="none")
    assert (report.outcome, report.records) == (Outcome.DIFFERENT, 27)
    assert report.extra == [(1, 42)]


def test_verify_after_retention_of_all_that_both_had_ignores_one_repeated_record(
    brokers: TwoBrokers, history: History
) -> None:
    beat = Item(1, b"beat", b"")
    early, late = (
        [Item(number, b"k", b"%d" % number) for number in found] for found in (range(2, 12), range(50, 90))
    )
    brokers.source.log("topic").store(encode([*early, beat, *late, beat, *late[:5]]))
    lay_out(brokers, [encode([*early, beat])])
    brokers.source.log("topic").delete_records(15)
    report = partition(brokers, group="none")
    assert (report.outcome, report.differences) == (Outcome.NOT_COMPARED, ())
    assert all(each in str(report.reason) for each in ("from no place", "retention"))


def test_verify_after_retention_finds_damage(brokers: TwoBrokers, loaded: History) -> None:
    brokers.run()
    flip(brokers.destination.log("topic"), 6, -1)
    brokers.destination.log("topic").delete_records(11)
    assert partition(brokers).altered == [((17, 23), (17, 23))]


@pytest.mark.parametrize("side", ["source", "destination"])
def test_verify_with_a_log_start_within_the_last_batch_is_equal(
    brokers: TwoBrokers, history: History, side: str
) -> None:
    history.plain(4, 10)
    brokers.run()
    broker = brokers.source if side == "source" else brokers.destination
    broker.log("topic").delete_records(9)
    for group in (brokers.settings.group, "none"):
        report = partition(brokers, group=group)
        assert aligned(report) == (Aligned.BY_CONTENT, 9, 9)
        assert (report.outcome, report.records) == (Outcome.EQUAL, 5)


def test_verify_aligns_by_nothing_after_retention_of_all_mirrored_records(
    brokers: TwoBrokers, loaded: History
) -> None:
    brokers.run()
    loaded.plain(3)
    brokers.destination.log("topic").delete_records(30)
    report = partition(brokers)
    assert aligned(report)[0] is Aligned.NOTHING
    assert (report.outcome, report.records, report.not_mirrored) == (Outcome.EQUAL, 0, (30, 33))


def test_verify_of_a_source_with_only_markers_left_is_equal(brokers: TwoBrokers, loaded: History) -> None:
    loaded.marker()
    brokers.run()
    brokers.source.log("topic").delete_records(30)
    report = partition(brokers)
    assert (aligned(report)[0], report.outcome) == (Aligned.NOTHING, Outcome.EQUAL)


def test_verify_begins_at_the_log_start_after_retention_beyond_the_position(
    brokers: TwoBrokers, loaded: History
) -> None:
    brokers.run()
    loaded.plain(3, 4)
    brokers.source.log("topic").delete_records(33)
    report = partition(brokers)
    assert (aligned(report), report.outcome) == ((Aligned.NOTHING, 33, 30), Outcome.EQUAL)
    assert report.not_mirrored == (33, 37)


def test_alignment_after_retention_up_to_the_position_is_by_position(
    brokers: TwoBrokers, loaded: History
) -> None:
    brokers.run()
    position = brokers.position()
    loaded.plain(3)
    brokers.run()
    brokers.commit(position)
    brokers.source.log("topic").delete_records(30)
    report = partition(brokers)
    assert aligned(report) == (Aligned.BY_POSITION, 30, 30)
    assert (report.outcome, report.records, report.destination_skipped) == (Outcome.EQUAL, 3, (0, 30))


def test_verify_of_an_emptied_source_without_a_position_is_not_compared(
    brokers: TwoBrokers, loaded: History
) -> None:
    brokers.run()
    brokers.source.log("topic").delete_records(30)
    report = partition(brokers)
    assert (report.outcome, aligned(report)[0]) == (Outcome.EQUAL, Aligned.NOTHING)
    brokers.forget_pairs()
    report = partition(brokers)
    assert report.outcome is Outcome.NOT_COMPARED
    assert "retention has deleted" in str(report.reason)


# Pairs


def test_alignment_of_a_continued_copy_is_the_start_of_the_older_mirror(
    brokers: TwoBrokers, loaded: History
) -> None:
    brokers.run(begin_at(brokers.ranges(), 3))
    loaded.plain(3)
    newer = brokers.with_settings(group="newer", adopt=True)
    newer.run(begin_at(newer.ranges(), 3))
    assert newer.position().origin == (30, 27)
    report = partition(newer)
    assert aligned(report) == (Aligned.BY_CONTENT, 3, 0)
    assert (report.outcome, report.records) == (Outcome.EQUAL, 30)
    flip(brokers.destination.log("topic"), 0, -1)
    assert partition(newer).altered == [((3, 5), (0, 2))]


def test_verify_skips_records_from_before_the_mirror(brokers: TwoBrokers, loaded: History) -> None:
    brokers.destination.log("topic").store(bytes(batches.batch([b"not", b"ours"])))
    brokers.taking_over().run()
    report = partition(brokers)
    assert aligned(report) == (Aligned.BY_ORIGIN, 0, 2)
    assert (report.outcome, report.destination_skipped) == (Outcome.EQUAL, (0, 2))


def test_alignment_ignores_the_position_of_a_recreated_topic(brokers: TwoBrokers, loaded: History) -> None:
    brokers.run()
    brokers.commit(replace(brokers.position(), source_topic_id="00000000-0000-0000-0000-000000000001"))
    report = partition(brokers)
    assert aligned(report) == (Aligned.BY_CONTENT, 0, 0)
    assert report.alignment is not None
    assert all(each in report.alignment.why for each in ("topic topic on the source", "created again"))


def test_alignment_names_the_other_copy_of_a_position(brokers: TwoBrokers, loaded: History) -> None:
    brokers.run()
    brokers.destination.create_topic("other")
    for batch in batches_of(brokers.destination.log("topic")):
        brokers.destination.log("other").store(batch.view)
    (report,) = verify(
        brokers.settings.source, brokers.settings.destination, {"topic": "other"}, group="mirror"
    ).partitions
    assert report.alignment is not None
    assert all(each in report.alignment.why for each in ("the copy topic", "--rename"))
    assert report.outcome is Outcome.EQUAL


def test_verify_with_a_transaction_before_the_origin_is_equal(brokers: TwoBrokers, history: History) -> None:
    history.transaction(2, ends=COMMIT).plain(3)
    brokers.run(begin_at(brokers.ranges(), 3))
    assert aligned(partition(brokers)) == (Aligned.BY_ORIGIN, 3, 0)
    assert partition(brokers).outcome is Outcome.EQUAL


# Nothing to go by


def test_verify_of_an_empty_destination_without_a_position_is_not_compared(
    brokers: TwoBrokers, loaded: History
) -> None:
    report = partition(brokers)
    assert (report.outcome, report.alignment) == (Outcome.NOT_COMPARED, None)
    assert "destination is empty" in str(report.reason)


def test_verify_of_an_unused_source_reports_all_as_extra(brokers: TwoBrokers, history: History) -> None:
    brokers.destination.log("topic").store(bytes(batches.batch(3)))
    assert partition(brokers).extra == [(0, 3)]


def test_verify_of_logs_with_nothing_in_common_is_not_compared(brokers: TwoBrokers, loaded: History) -> None:
    brokers.destination.log("topic").store(bytes(batches.batch([b"not", b"ours"])))
    report = partition(brokers)
    assert report.outcome is Outcome.NOT_COMPARED
    assert all(f"first {each} " in str(report.reason) for each in ("30 records", 2))


def test_verify_of_a_single_altered_batch_is_different(brokers: TwoBrokers, history: History) -> None:
    history.plain(3)
    brokers.run()
    brokers.forget_pairs()
    rewrite(brokers, lambda found: [batches.patched(found[0], len(found[0]) - 1, b"!")])
    assert partition(brokers).altered == [((2, 3), (2, 3))]


@pytest.mark.parametrize("timestamp", [1, batches.TIMESTAMP * 2])
def test_verify_reports_a_foreign_first_batch_as_extra(
    brokers: TwoBrokers, loaded: History, timestamp: int
) -> None:
    brokers.run()
    brokers.forget_pairs()
    foreign = batches.batch([b"not", b"ours"], base_timestamp=timestamp)
    rewrite(brokers, lambda found: [foreign, *found])
    report = partition(brokers)
    assert aligned(report) == (Aligned.BY_CONTENT, 0, 0)
    assert (report.extra, report.records, len(report.differences)) == ([(0, 2)], 30, 1)


def test_alignment_of_a_later_start_does_not_read_all_before_it(
    brokers: TwoBrokers, history: History
) -> None:
    # Both sides are read by 4 MiB; 55 MB lie before the start.
    for number in range(3000):
        history.base_timestamp += 1000
        value = number.to_bytes(4) * 5000
        history.store(batches.batch([value], base_offset=number, base_timestamp=history.base_timestamp))
    brokers.run(begin_at(brokers.ranges(), 2750))
    brokers.forget_pairs()
    report = partition(brokers)
    assert (aligned(report), report.outcome) == ((Aligned.BY_CONTENT, 2750, 0), Outcome.EQUAL)
    assert report.records == 250
    assert report.bytes_read < 50_000_000


@pytest.mark.parametrize("start", [0, 700])
def test_verify_of_a_recut_copy_reads_each_log_once(
    brokers: TwoBrokers, history: History, start: int
) -> None:
    found = [Item(NOW_MS + number, b"key %d" % number, b"value") for number in range(6_000)]
    for batch in cut(found, *[100] * 59):
        batch[:8] = history.next_offset.to_bytes(8)
        history.store(batch)
    lay_out(brokers, cut(found[start:], *[73] * 80, codec=Codec.LZ4))
    report = partition(brokers)
    assert (aligned(report), report.outcome) == ((Aligned.BY_CONTENT, start, 0), Outcome.EQUAL)
    logs = brokers.source.log("topic"), brokers.destination.log("topic")
    assert report.bytes_read <= sum(len(each.view) for log in logs for each in batches_of(log))


# Doubles before the comparison


@pytest.fixture
def copied_twice(brokers: TwoBrokers, loaded: History) -> TwoBrokers:
    """A second group's copy behind that of a first one, which ends with a batch that the source has twice."""
    for offset in (30, 31):
        loaded.store(batches.batch([b"again"], base_offset=offset), shown=True)
    brokers.run()
    newer = brokers.with_settings(group="newer").taking_over()
    newer.run()
    return newer


def test_verify_reports_an_earlier_copy_before_the_comparison_as_extra(copied_twice: TwoBrokers) -> None:
    report = partition(copied_twice)
    assert aligned(report) == (Aligned.BY_ORIGIN, 0, 32)
    assert (report.outcome, report.records) == (Outcome.DIFFERENT, 32)
    (extra,) = report.of_kind(DifferenceKind.EXTRA)
    assert (extra.destination, extra.records) == ((0, 32), 32)
    assert "before the comparison" in str(extra)


def test_verify_reports_an_earlier_recut_copy_as_extra(brokers: TwoBrokers, loaded: History) -> None:
    values = [(each.key, each.value, each.timestamp) for each in loaded.committed]
    found = [Item(timestamp, key, value) for key, value, timestamp in values]
    lay_out(brokers, cut(found, 1, 7, 9, codec=Codec.ZSTD))
    brokers.taking_over().run()
    report = partition(brokers)
    assert aligned(report) == (Aligned.BY_ORIGIN, 0, 30)
    assert [each.copy_of for each in report.of_kind(DifferenceKind.EXTRA)] == [(0, 30)]


def test_verify_after_retention_at_the_source_reports_an_earlier_copy_as_extra(
    copied_twice: TwoBrokers,
) -> None:
    copied_twice.source.log("topic").delete_records(11)
    report = partition(copied_twice)
    assert aligned(report) == (Aligned.BY_CONTENT, 11, 43)
    assert (report.extra, report.destination_skipped) == ([(11, 30)], (0, 43))


def test_verify_does_not_report_deleted_source_records_as_doubles(
    brokers: TwoBrokers, history: History
) -> None:
    # One that repeats, among others.
    for _ in range(40):
        history.store(batches.batch([b"beat"], base_offset=history.next_offset, base_timestamp=1), shown=True)
        history.plain(1)
    brokers.run()
    brokers.source.log("topic").delete_records(20)
    for group in (brokers.settings.group, "none"):
        report = partition(brokers, group=group)
        assert (report.outcome, report.destination_skipped) == (Outcome.EQUAL, (0, 20))

"""Verify a mirror between two brokers, after damage was done to it."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from shoal.records import Codec
from shoal.verify import DifferenceKind, Outcome, Side
from tests.world.batches import Content, encode
from tests.world.clusters import TwoBrokers
from tests.world.history import ABORT, NOW_MS, History
from tests.world.verifying import altered, cut, flip, lay_out, partition, rewrite, verified

#: Records of each batch of :func:`mirrored`, and so its offsets: 0, 3, 5, 10, 11, 15, 17, 23, 24, 28 to 30.
COUNTS = (3, 2, 5, 1, 4, 2, 6, 1, 4, 2)


@pytest.fixture(params=["origin", "content"])
def mirrored(request: pytest.FixtureRequest, brokers: TwoBrokers, history: History) -> TwoBrokers:
    """A mirror of ten batches, with its position and without."""
    for count, codec in zip(COUNTS, [*Codec, *Codec], strict=True):
        history.plain(count, codec=codec)
    brokers.run()
    if request.param == "content":
        brokers.forget_pairs()
    return brokers


# Equal


def test_verify_of_a_mirror_by_other_rules_is_not_compared(brokers: TwoBrokers, history: History) -> None:
    history.plain(3)
    brokers.run()
    assert partition(brokers, rules={"rules"}).outcome is Outcome.EQUAL
    other = partition(brokers, rules={"others"})
    assert other.outcome is Outcome.NOT_COMPARED
    assert "other rules" in str(other.reason)


def test_verify_names_aborted_records_whose_times_do_not_ascend(
    brokers: TwoBrokers, history: History
) -> None:
    draw = Random(1)
    for _ in range(30):
        for begin in (history.plain, partial(history.transaction, ends=ABORT)):
            history.base_timestamp = NOW_MS - draw.randrange(10**9)
            begin(100)
    lay_out(brokers, cut(history.uncommitted, *[130] * 45))
    report = partition(brokers)
    assert (report.counts, report.aborted) == ({DifferenceKind.EXTRA: 3_000}, 3_000)


@pytest.mark.parametrize("side", list(Side))
def test_verify_begins_at_the_first_place_of_the_map_if_retention_deleted_the_origin(
    brokers: TwoBrokers, history: History, side: Side
) -> None:
    repeated = [Content(NOW_MS, b"key %d" % number, b"alive") for number in range(10)]
    for base in range(0, 100, 10):
        history.store(encode(repeated, base_offset=base))
    brokers.run()
    other = encode([repeated[0]._replace(value=b"another"), *repeated[1:]])
    rewrite(brokers, lambda found: [*found[:6], other, *found[7:]])
    broker = brokers.source if side is Side.SOURCE else brokers.destination
    broker.log("topic").delete_records(43)
    report = partition(brokers)
    assert (altered(report), report.records) == ([((60, 61), (60, 61))], 56)
    assert report.alignment is not None
    assert report.alignment.place == (43, 43)


def test_verify_of_a_source_that_has_lost_all_that_was_mirrored_compares_nothing(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(3, 2)
    brokers.run()
    history.plain(1, 3)
    brokers.source.log("topic").delete_records(6)
    report = partition(brokers)
    assert (report.outcome, report.reason, report.not_mirrored) == (Outcome.NOTHING, None, (6, 9))


@pytest.mark.parametrize(("ours", "theirs"), [(2, 3), (3, 5)])
def test_verify_names_all_unlike_records_before_the_first_that_both_sides_have(
    brokers: TwoBrokers, history: History, ours: int, theirs: int
) -> None:
    other = [Content(NOW_MS, b"key %d" % number, b"of this side") for number in range(ours)]
    strange = [each._replace(value=b"of another") for each in (other * 2)[:theirs]]
    both = [Content(NOW_MS + number, b"key", b"%d" % number) for number in range(40)]
    history.store(encode([*other, *both]))
    lay_out(brokers, cut([*strange, *both], 10, 10))
    report = partition(brokers)
    counts = {DifferenceKind.ALTERED: ours, DifferenceKind.EXTRA: theirs - ours}
    assert (report.counts, report.records) == (counts, 40)


# Damage


@pytest.mark.parametrize(("position", "bit"), [(17, 3), (22, 0), (22, 5), (30, 1), (42, 0), (50, 7), (24, 0)])
def test_verify_reports_a_flipped_header_bit(mirrored: TwoBrokers, position: int, bit: int) -> None:
    flip(mirrored.destination.log("topic"), 4, position, bit)
    report = partition(mirrored)
    assert altered(report) == [((11, 15), (11, 15))]
    assert report.differences[0].damaged == (Side.DESTINATION,)


@pytest.mark.parametrize("is_back", [False, True])
def test_verify_reports_a_deleted_copy_before_the_position_as_missing(
    brokers: TwoBrokers, history: History, is_back: bool
) -> None:
    history.plain(3, 4)
    brokers.run()
    history.plain(2)  # these were not mirrored, so they are not missing
    brokers.destination.topics.delete(brokers.destination.topics.topic("topic"))
    if is_back:
        brokers.destination.create_topic("topic", 1)
    report = partition(brokers)
    assert (report.outcome, report.counts[DifferenceKind.MISSING]) == (Outcome.DIFFERENT, 7)
    assert report.not_mirrored == (7, 9)


def test_verify_reports_offsets_that_contradict_each_other(brokers: TwoBrokers, history: History) -> None:
    """A reader that believes the first of them does not see the records behind it: a copy may lack them."""
    found = [Content(NOW_MS + number, None, b"value %d" % number) for number in range(500)]
    for base in range(0, 500, 100):
        history.store(encode(found[base : base + 100], base_offset=base))
    lay_out(brokers, cut([*found[:200], *found[456:]], 100, 100))
    flip(history.log, 1, 6)  # the offset 100 becomes 356
    report = partition(brokers)
    assert (report.outcome, report.differences[0].damaged) == (Outcome.DIFFERENT, (Side.SOURCE,))
    assert "200 comes after 455" in str(report.reason)


@pytest.mark.parametrize(
    ("position", "bit", "reason"),
    [(2, 0, "behind the end"), (8, 7, "batch length"), (59, 0, "260 records")],
)
def test_verify_reports_an_impossible_length_or_count_as_damage_up_to_the_end(
    mirrored: TwoBrokers, position: int, bit: int, reason: str
) -> None:
    flip(mirrored.destination.log("topic"), 4, position, bit)
    report = partition(mirrored)
    assert report.outcome is Outcome.DIFFERENT
    (difference,) = report.differences
    assert (difference.destination, difference.damaged) == ((11, 30), (Side.DESTINATION,))
    assert all(each in str(report.reason) for each in ("at offset 11", reason))
    assert report.records == 11


@pytest.mark.parametrize("with_copy", [False, True])
def test_log_that_is_damaged_at_its_beginning_is_not_empty(
    brokers: TwoBrokers, history: History, with_copy: bool
) -> None:
    """As without a copy: a mirror cannot copy anything of such a log."""
    history.plain(3, 2)
    if with_copy:
        lay_out(brokers, cut([Content(NOW_MS, None, b"value")]))
        flip(brokers.destination.log("topic"), 0, 16, 3)  # no magic
    flip(history.log, 0, 16, 3)
    report = verified(brokers)
    (difference,) = report.partitions[0].differences
    assert (report.exit_code, difference.source, difference.damaged) == (1, (0, 5), (Side.SOURCE,))


@pytest.mark.parametrize("side", list(Side))
def test_log_that_is_damaged_at_the_start_that_retention_left_has_records(
    brokers: TwoBrokers, history: History, side: Side
) -> None:
    history.plain(3, 2, 4)
    brokers.run()
    source, destination = brokers.source.log("topic"), brokers.destination.log("topic")
    damaged, other = (source, destination) if side is Side.SOURCE else (destination, source)
    other.delete_records(3)
    flip(damaged, 0, 16, 3)  # no magic
    report = partition(brokers)
    assert (report.outcome, report.reached) == (Outcome.DIFFERENT, None)
    assert report.differences[0].damaged == (side,)

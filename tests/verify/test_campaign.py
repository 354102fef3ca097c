"""A small sample of the campaign: verify raises no false alarm and misses no fault."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from shoal.client.config import IsolationLevel
from shoal.records import Codec
from shoal.topic_partition import TopicPartition
from shoal.verify import Difference, DifferenceKind, OffsetRange, Outcome, PartitionReport
from tests.two_brokers import TwoBrokers
from tests.verify.campaign import CASES, LARGE_CASES, Copier, Trial, run_trials
from tests.verify.campaign.faults import Fault, put_in
from tests.verify.campaign.logs import Piece, Placed
from tests.verify.campaign.truth import Excuse, LogSide, Truth
from tests.verifying import Item, encode

#: Whatever was wrong once, beside the first ones.
_SEEDS = (
    *range(42),
    60356,
    60840,
    60853,
    61351,
    61521,
    61609,
    61901,
    62566,
    62702,
    62704,
    62767,
    63372,
    63395,
    64728,
    65279,
    72647,
    72868,
    73321,
    73378,
    73482,
    75709,
    913453,
)

#: The trials of the long tier.
_LONG = range(1000, 1400)


def _wrong(trials: Iterable[Trial]) -> list[str]:
    found = [(trial.complaint(), trial) for trial in trials]
    return [f"{complaint}: {trial.details}" for complaint, trial in found if complaint]


def _side(*keys: bytes, first: int = 0) -> LogSide:
    """Return a log with a record for each key, behind holes."""
    found = [Placed(offset, Item(1, key, b"")) for offset, key in enumerate(keys, first)]
    return LogSide(found, 0, first + len(keys), [*range(first)])


_PARTITION = TopicPartition("topic", 0)
_NOT_COMPARED = PartitionReport(_PARTITION, _PARTITION, Outcome.NOT_COMPARED, reason="no copy")


def _trial(truth: Truth, *, is_compacted: bool) -> Trial:
    level, rng = IsolationLevel.READ_COMMITTED, random.Random(0)
    copier = Copier.MIRROR_MAKER_2
    return Trial(0, copier, is_compacted, level, "topic", "topic", rng, truth=truth, report=_NOT_COMPARED)


def _complaint_if_not_compared(truth: Truth) -> str | None:
    return _trial(truth, is_compacted=True).complaint()


def test_truth_of_a_doubled_record_beside_a_gap_has_no_excuse() -> None:
    source = _side(b"a", b"b", b"c", first=10)
    assert Truth(source, _side(b"c", b"a", b"b", b"c")).explain().excuse is Excuse.NONE
    assert Truth(source, _side(b"a", b"b", b"c")).explain().excuse is Excuse.FULL


def test_truth_of_removed_aborted_records_has_holes(brokers: TwoBrokers) -> None:
    log = brokers.source.create_topic("topic", 1).logs[0]
    for offset in (0, 1, 4):
        log.store(encode([Item(1, b"key", b"")], base_offset=offset))
    # The cleaner has removed two of three aborted records.
    assert LogSide.of(log, [], {1, 2, 3}).holes == [0, 2, 3, 4]


def test_truth_of_a_removed_tombstone_before_a_record_not_copied_yet_is_excused() -> None:
    records = [Placed(0, Item(1, b"a", b"")), Placed(1, Item(2, b"b", None)), Placed(2, Item(3, b"b", b""))]
    source = LogSide(records, 0, 3)
    destination = LogSide(records[:1], 0, 2, [1])
    assert Truth(source, destination, mirrored=2).explain().excuse is Excuse.NONE
    source.copied_until = 2
    assert Truth(source, destination, mirrored=2).explain().excuse is Excuse.FULL


def test_complaint_of_logs_with_too_little_in_common_accepts_not_compared() -> None:
    ours, theirs = ([b"%s %d" % (name, n) for n in range(30)] for name in (b"ours", b"theirs"))
    assert _complaint_if_not_compared(Truth(_side(*ours), _side(*theirs))) is None
    assert _complaint_if_not_compared(Truth(_side(*ours), _side(*theirs, *ours[3:18]))) is None
    assert _complaint_if_not_compared(Truth(_side(*ours), _side(*theirs, *ours[3:19]))) == "missed: no copy"


def test_complaint_of_few_copied_records_behind_foreign_ones_accepts_not_compared() -> None:
    ours = [b"ours %d" % number for number in range(30)]
    trial = _trial(Truth(_side(*ours), _side(*[b"foreign"] * 30, *ours[:10])), is_compacted=False)
    trial.foreign = 30
    assert trial.complaint() is None


def test_complaint_of_a_double_that_another_fault_removed_is_none() -> None:
    ours = _side(*(b"key %d" % number for number in range(40)))
    found = [(offset, item) for offset, item in ours.records if offset != 30]
    theirs = LogSide([Placed(offset, item) for offset, (_, item) in enumerate(found)], 0, len(found))
    faults = [
        Fault("doubled", 10, 11, ours.records[10].item),
        Fault("missing", None, 11, ours.records[10].item),
        Fault("missing", 30, 31, ours.records[30].item),
    ]
    trial = _trial(Truth(ours, theirs), is_compacted=False)
    trial.pieces = [Piece(Codec.NONE, [*found], offsets=[*range(len(found))])]
    trial.faults = faults
    missing = Difference(DifferenceKind.MISSING, OffsetRange(30, 31), OffsetRange(30, 30), 1)
    trial.report = replace(_NOT_COMPARED, outcome=Outcome.DIFFERENT, reason=None, differences=(missing,))
    assert trial.complaint() is None


def _copied(items: list[Item]) -> LogSide:
    return LogSide([Placed(offset, item) for offset, item in enumerate(items)], 0, len(items))


def _different(ours: LogSide, theirs: LogSide, fault: Fault, found: Difference) -> Trial:
    trial = _trial(Truth(ours, theirs), is_compacted=False)
    items = {item: offset for offset, item in ours.records}
    records: list[tuple[int | None, Item]] = [(items[item], item) for _, item in theirs.records]
    trial.pieces = [Piece(Codec.NONE, records, offsets=[*range(len(records))])]
    trial.faults = [fault]
    trial.report = replace(_NOT_COMPARED, outcome=Outcome.DIFFERENT, reason=None, differences=(found,))
    return trial


@pytest.mark.parametrize(("moved", "there"), [(20, 21), (21, 20)])
def test_complaint_of_swapped_records_accepts_either_as_the_moved_one(moved: int, there: int) -> None:
    ours = _side(*(b"key %d" % number for number in range(40)))
    items = [item for _, item in ours.records]
    items[20], items[21] = items[21], items[20]
    found = Difference(
        DifferenceKind.REORDERED, OffsetRange(moved, moved + 1), OffsetRange(there, there + 1), 1
    )
    fault = Fault("swapped", 20, 20, ours.records[20].item)
    assert _different(ours, _copied(items), fault, found).complaint() is None


@pytest.mark.parametrize(("extra", "is_right"), [((0, 10), True), ((45, 46), False)])
def test_complaint_of_doubles_that_retention_would_explain_accepts_those_at_their_place(
    extra: tuple[int, int], is_right: bool
) -> None:
    ours = _side(*(b"key %d" % number for number in range(40)))
    ours.start = 1
    items = [item for _, item in ours.records]
    found = Difference(DifferenceKind.EXTRA, OffsetRange(extra[0], extra[0]), OffsetRange(*extra), 1)
    fault = Fault("doubled run", 30, 0, items[30])
    complaint = _different(ours, _copied([*items[30:], *items]), fault, found).complaint()
    assert (complaint and complaint.partition(":")[0]) == (None if is_right else "false alarm")


def test_complaint_of_a_topic_that_repeats_itself_accepts_other_offsets_for_its_doubles() -> None:
    items = [Item(1, b"beat", b"")] * 40
    found = Difference(DifferenceKind.EXTRA, OffsetRange(5, 5), OffsetRange(5, 6), 1)
    fault = Fault("doubled run", 39, None, items[0])
    trial = _different(_copied(items), _copied([*items[:20], *items]), fault, found)
    trial.faults = [fault] * 100  # of one change
    assert trial.complaint() is None


def test_put_in_of_missing_records_names_the_record_behind_them() -> None:
    pieces = [Piece(Codec.NONE, [(n, Item(1, b"key", b"%d" % n)) for n in range(3)])]
    found = [put_in(random.Random(seed), pieces, 1)[1] for seed in range(100)]
    missing = [faults[0] for faults in found if [each.kind for each in faults] == ["missing"]]
    assert {(each.source, each.before) for each in missing} == {(0, 1), (1, 2), (2, None)}


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    with TwoBrokers.started() as brokers:
        return list(run_trials(brokers, _SEEDS))


@pytest.mark.timeout(300)
def test_verify_of_random_copies_reports_each_fault_and_nothing_else(trials: list[Trial]) -> None:
    assert _wrong(trials) == []


@pytest.mark.timeout(300)
def test_trials_have_copies_with_either_time_of_a_record(trials: list[Trial]) -> None:
    found = [each for each in trials if each.source and each.source.has_two_times]
    assert {each.copier.keeps_create_time for each in found} == {True, False}
    assert {each.report.outcome for each in found if each.report} >= {Outcome.EQUAL, Outcome.DIFFERENT}


@pytest.mark.timeout(300)
def test_trials_have_messages_of_both_old_formats(trials: list[Trial]) -> None:
    found = [each for each in trials if each.source and each.source.old_magics]
    assert set[int]().union(*(each.source.old_magics for each in found if each.source)) == {0, 1}
    assert {each.report.outcome for each in found if each.report} >= {Outcome.EQUAL, Outcome.DIFFERENT}


@pytest.mark.timeout(300)
def test_trials_have_destinations_that_write_their_own_times(trials: list[Trial]) -> None:
    found = [each for each in trials if each.has_own_times]
    assert {each.report.outcome for each in found if each.report} >= {Outcome.EQUAL, Outcome.DIFFERENT}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.long) if each in LARGE_CASES else each for each in CASES]
)
def test_case_is_reported_as_it_is(brokers: TwoBrokers, name: str) -> None:
    assert CASES[name](random.Random(name), brokers) is None


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", _LONG[::50])
def test_verify_of_many_random_copies_reports_each_fault_and_nothing_else(
    brokers: TwoBrokers, first: int
) -> None:
    assert _wrong(run_trials(brokers, range(first, first + 50))) == []

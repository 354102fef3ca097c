"""A small sample of the campaign: verify raises no false alarm and misses no fault."""

from __future__ import annotations

import random

import pytest

from shoal.client.config import IsolationLevel
from shoal.topic_partition import TopicPartition
from shoal.verify import Outcome, PartitionReport
from tests.two_brokers import TwoBrokers
from tests.verify.campaign import Copier, Trial, run_trials
from tests.verify.campaign.logs import Placed
from tests.verify.campaign.truth import Excuse, LogSide, Truth
from tests.verifying import Item, encode

#: Whatever was wrong once, beside the first ones.
_SEEDS = (*range(42), 60356, 60840, 60853, 61351, 61521, 61609, 61901, 62566)

#: The trials of the long tier.
_LONG = range(1000, 1400)


def _complaints(brokers: TwoBrokers, seeds: range | tuple[int, ...]) -> list[str]:
    found = [(trial.complaint(), trial) for trial in run_trials(brokers, seeds)]
    return [f"{complaint}: {trial.details}" for complaint, trial in found if complaint]


def _side(*keys: bytes, first: int = 0) -> LogSide:
    """Return a log with a record for each key, behind holes."""
    found = [Placed(offset, Item(1, key, b"")) for offset, key in enumerate(keys, first)]
    return LogSide(found, 0, first + len(keys), [*range(first)])


def _complaint_if_not_compared(truth: Truth) -> str | None:
    level = IsolationLevel.READ_COMMITTED
    trial = Trial(0, Copier.MIRROR_MAKER_2, True, level, "topic", "topic", random.Random(0), truth=truth)
    partition = TopicPartition("topic", 0)
    trial.report = PartitionReport(partition, partition, Outcome.NOT_COMPARED, reason="no copy")
    return trial.complaint()


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


def test_complaint_of_logs_with_nothing_in_common_accepts_not_compared() -> None:
    ours, theirs = ([b"%s %d" % (name, n) for n in range(30)] for name in (b"ours", b"theirs"))
    assert _complaint_if_not_compared(Truth(_side(*ours), _side(*theirs))) is None
    assert _complaint_if_not_compared(Truth(_side(*ours), _side(*theirs, ours[3]))) == "missed: no copy"


@pytest.mark.timeout(300)
def test_verify_of_random_copies_reports_each_fault_and_nothing_else(brokers: TwoBrokers) -> None:
    assert _complaints(brokers, _SEEDS) == []


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", _LONG[::50])
def test_verify_of_many_random_copies_reports_each_fault_and_nothing_else(
    brokers: TwoBrokers, first: int
) -> None:
    assert _complaints(brokers, range(first, first + 50)) == []

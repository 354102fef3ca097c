"""A small sample of the campaign: verify raises no false alarm and misses no fault."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from shoal.topic_partition import TopicPartition
from shoal.verify import Outcome
from tests.nights import night_seeds
from tests.verify.campaign import CASES, LARGE_CASES, Trial, run_trials
from tests.world.clusters import TwoBrokers

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
    2100423,
    2200077,
    3400202,
    3400396,
    34300269,
    34600140,
)

#: The trials of a night.
_LONG = night_seeds(400)


def _wrong(trials: Iterable[Trial]) -> list[str]:
    found = [(trial.complaint(), trial) for trial in trials]
    return [f"{complaint}: {trial.details}" for complaint, trial in found if complaint]


_PARTITION = TopicPartition("topic", 0)


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

"""A small sample of the campaign: verify raises no false alarm and misses no fault."""

from __future__ import annotations

import pytest

from shoal.verify import Outcome
from tests.two_brokers import TwoBrokers
from tests.verify.campaign import run_trials

#: Whatever was wrong once, beside the first ones.
_SEEDS = (*range(42),)

#: The trials of the long tier.
_LONG = range(1000, 1400)


def _complaints(brokers: TwoBrokers, seeds: range | tuple[int, ...]) -> list[str]:
    found = [(trial.complaint(), trial) for trial in run_trials(brokers, seeds)]
    return [f"{complaint}: {trial.details}" for complaint, trial in found if complaint]


@pytest.mark.timeout(300)
def test_verify_of_random_copies_reports_each_fault_and_nothing_else(brokers: TwoBrokers) -> None:
    assert _complaints(brokers, _SEEDS) == []


@pytest.mark.timeout(300)
def test_trials_have_copies_with_either_time_of_a_record(brokers: TwoBrokers) -> None:
    trials = [each for each in run_trials(brokers, _SEEDS) if each.source and each.source.has_two_times]
    assert {each.copier.keeps_create_time for each in trials} == {True, False}
    assert {each.report.outcome for each in trials if each.report} >= {Outcome.EQUAL, Outcome.DIFFERENT}


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", _LONG[::50])
def test_verify_of_many_random_copies_reports_each_fault_and_nothing_else(
    brokers: TwoBrokers, first: int
) -> None:
    assert _complaints(brokers, range(first, first + 50)) == []

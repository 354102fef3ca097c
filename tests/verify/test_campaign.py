"""A small sample of the campaign: verify raises no false alarm and misses no fault."""

from __future__ import annotations

import pytest

from tests.two_brokers import TwoBrokers
from tests.verify.campaign import run_trial

pytestmark = pytest.mark.timeout(60)

#: Beside the first ones, trials that were wrong: repetition alone, a log start within a batch, heads that
#: begin with faulty records, runs of records that occur again elsewhere.
_SEEDS = (*range(24), 33, 59, 98, 106, 119, 175, 241, 246, 1242, 1708, 5140, 5482, 7045)


@pytest.mark.parametrize("group", range(4))
def test_verify_of_recut_copies_reports_each_fault_and_nothing_else(brokers: TwoBrokers, group: int) -> None:
    for seed in _SEEDS[group::4]:
        trial = run_trial(brokers, seed, records=300)
        assert trial.complaint() is None, trial

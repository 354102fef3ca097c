"""Whole workers whose clusters answer wrongly for a while.

Each ends as expected, or with one of shoal's errors, and in time. If a checksum
or the protocol's format shows the damage, it never reaches the destination:
the destination has the source's records, in order, none of them twice.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ShoalError
from shoal.mirroring.task.task import TaskResult
from shoal.protocol.apis import ApiKey
from shoal.verify import verify
from tests.fuzz.copy_tasks import ASKED, check, filled, hurried, patient, run_task
from tests.fuzz.effort import effort
from tests.fuzz.liar import Lie, changed_fields, damaged_bytes, lying, no_kafka
from tests.two_brokers import TwoBrokers

VERIFY_ASKS = {
    ApiKey.METADATA,
    ApiKey.FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.OFFSET_FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
}


@pytest.fixture(scope="module")
def mirrored() -> Iterator[TwoBrokers]:
    """Run two clusters and a mirror that is complete."""
    with TwoBrokers.started() as stack:
        brokers, _ = filled(stack)
        assert patient(brokers).run().complete
        yield brokers


@pytest.fixture(autouse=True)
def _hurried() -> Iterator[None]:
    with hurried():
        yield


@pytest.mark.parametrize("lie", [damaged_bytes, no_kafka, changed_fields])
@given(st.sampled_from(ASKED), st.integers(0, 2**32), st.integers(1, 4))
@effort(15)
def test_task_with_wrong_responses_continues_or_raises_an_error_of_shoal(
    lie: Lie, asked: tuple[str, ApiKey], seed: int, times: int
) -> None:
    side, api = asked
    with TwoBrokers.started() as stack:
        brokers, histories = filled(stack)
        with lying(getattr(brokers, side), api, lie, random.Random(seed), times):
            run_task(brokers)
        check(brokers, histories, lie)
        # Both brokers answer correctly now, so the next attempt continues from there.
        outcome = run_task(patient(brokers))
        check(brokers, histories, lie)
        if lie is no_kafka:
            assert outcome == TaskResult((), complete=True)
            assert [brokers.copied(partition=number) for number in range(2)] == [
                history.committed for history in histories
            ]


@pytest.mark.parametrize("lie", [damaged_bytes, no_kafka, changed_fields])
@given(st.sampled_from([each for each in ASKED if each[1] in VERIFY_ASKS]), st.integers(0, 2**32))
@effort(15)
def test_verify_with_wrong_responses_reports_or_raises_an_error_of_shoal(
    mirrored: TwoBrokers, lie: Lie, asked: tuple[str, ApiKey], seed: int
) -> None:
    side, api = asked
    config = mirrored.settings
    times = random.Random(seed).randint(1, 4)
    with (
        lying(getattr(mirrored, side), api, lie, random.Random(seed), times),
        contextlib.suppress(ShoalError),
    ):
        verify(config.source, config.destination, {"topic": "topic"}, group=config.group, patience_s=1)

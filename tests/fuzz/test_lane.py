"""
Whole lanes whose clusters answer wrongly for a while.

Each ends with what it should, or with an error of ours, and in time. Damage
that a checksum or the protocol's form can show never reaches the destination:
what is there is what the source has, in its order, nothing twice.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from fuzz.effort import effort
from fuzz.liar import Lie, changed_fields, damaged_bytes, lying, no_kafka
from hypothesis import given
from hypothesis import strategies as st
from two_brokers import ABORT, COMMIT, Content, History, TwoBrokers, Watched

from shoal.client import backoff
from shoal.errors import ShoalError
from shoal.mirroring.lane import LaneResult
from shoal.mirroring.verify import verify
from shoal.protocol.apis import ApiKey

REQUEST_TIMEOUT_MS = 250
LANE_S = 60.0

ASKED = [
    ("source", ApiKey.METADATA),
    ("source", ApiKey.API_VERSIONS),
    ("source", ApiKey.FETCH),
    ("source", ApiKey.FIND_COORDINATOR),
    ("source", ApiKey.OFFSET_FETCH),
    ("source", ApiKey.OFFSET_COMMIT),
    ("source", ApiKey.LIST_OFFSETS),
    ("source", ApiKey.OFFSET_FOR_LEADER_EPOCH),
    ("destination", ApiKey.METADATA),
    ("destination", ApiKey.API_VERSIONS),
    ("destination", ApiKey.PRODUCE),
    ("destination", ApiKey.FETCH),
    ("destination", ApiKey.INIT_PRODUCER_ID),
    ("destination", ApiKey.LIST_OFFSETS),
    ("destination", ApiKey.OFFSET_FOR_LEADER_EPOCH),
]


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
    """Two clusters and a mirror that is complete."""
    with TwoBrokers.started() as stack:
        brokers, _ = filled(stack)
        assert _patient(brokers).run().complete
        yield brokers


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for comes at once here, or never."""
    original = backoff.Backoff.__init__

    def hurried(self: backoff.Backoff, first_ms: int = 1, longest_ms: int = 20) -> None:
        original(self, 1, 20)

    monkeypatch.setattr(backoff.Backoff, "__init__", hurried)


def lane(brokers: TwoBrokers) -> LaneResult | ShoalError:
    """Run a lane to its end; whatever it raises must be ours."""
    control = Watched()
    running = brokers.start(control=control)
    deadline = time.monotonic() + LANE_S
    while running.is_running and time.monotonic() < deadline:
        running._thread.join(0.05)
        if time.monotonic() > deadline - LANE_S / 2:
            control.request_stop()
    try:
        return running.result(timeout_s=1)
    except ShoalError as error:
        return error


def filled(stack: TwoBrokers) -> tuple[TwoBrokers, list[History]]:
    brokers = replace(
        stack,
        settings=replace(
            stack.settings,
            source=replace(stack.settings.source, request_timeout_ms=REQUEST_TIMEOUT_MS),
            destination=replace(stack.settings.destination, request_timeout_ms=REQUEST_TIMEOUT_MS),
            commit_interval_ms=0,
        ),
    )
    histories = brokers.topic(partitions=2)
    for history in histories:
        history.plain(3, 3).holed(4, [1]).transaction(2, ends=ABORT).transaction(2, ends=COMMIT).empty()
        history.plain(2, 2)
    return brokers, histories


def _patient(brokers: TwoBrokers) -> TwoBrokers:
    """Wait for answers as long as a busy machine may need for them."""
    return brokers.with_settings(
        source=replace(brokers.settings.source, request_timeout_ms=20_000),
        destination=replace(brokers.settings.destination, request_timeout_ms=20_000),
    )


def is_in_order_among(copied: list[Content], stored: list[Content]) -> bool:
    left = iter(stored)
    return all(each in left for each in copied)


@pytest.mark.parametrize("lie", [damaged_bytes, no_kafka, changed_fields])
@given(st.sampled_from(ASKED), st.integers(0, 2**32), st.integers(1, 4))
@effort(45)
def test_a_lane_survives_wrong_answers_or_ends_with_an_error_of_ours(
    lie: Lie, asked: tuple[str, ApiKey], seed: int, times: int
) -> None:
    side, api = asked
    with TwoBrokers.started() as stack:
        brokers, histories = filled(stack)
        with lying(getattr(brokers, side), api, lie, random.Random(seed), times):
            lane(brokers)
        check(brokers, histories, lie)
        # Now that everybody tells the truth, the next attempt goes on from there.
        outcome = lane(_patient(brokers))
        check(brokers, histories, lie)
        if lie is no_kafka:
            assert outcome == LaneResult((), complete=True)
            assert [brokers.copied(partition=number) for number in range(2)] == [
                history.committed for history in histories
            ]


@pytest.mark.parametrize("lie", [damaged_bytes, no_kafka, changed_fields])
@given(st.sampled_from([each for each in ASKED if each[1] in VERIFY_ASKS]), st.integers(0, 2**32))
@effort(25)
def test_verifying_ends_with_a_report_or_an_error_of_ours(
    mirrored: TwoBrokers, lie: Lie, asked: tuple[str, ApiKey], seed: int
) -> None:
    side, api = asked
    began = time.monotonic()
    config = mirrored.settings
    times = random.Random(seed).randint(1, 4)
    with (
        lying(getattr(mirrored, side), api, lie, random.Random(seed), times),
        contextlib.suppress(ShoalError),
    ):
        verify(config.source, config.destination, {"topic": "topic"}, group=config.group, patience_s=1)
    assert time.monotonic() - began < LANE_S


def check(brokers: TwoBrokers, histories: list[History], lie: Lie) -> None:
    """Check that nothing is at the destination that the source does not have, or has elsewhere."""
    for number, history in enumerate(histories):
        copied = brokers.copied(partition=number)
        # Which transactions were aborted is what the source says, and nothing else shows it.
        assert all(each in history.uncommitted for each in copied)
        if lie is not changed_fields:
            assert is_in_order_among(copied, history.uncommitted)

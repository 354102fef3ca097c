"""Records so old that a broker may have forgotten their producer are sent one batch at a time."""

from __future__ import annotations

import time

import pytest

from shoal.timing import Clock
from tests.sent_requests import SentRequests
from tests.world.clusters import TwoBrokers
from tests.world.history import NOW_MS, History

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


@pytest.mark.parametrize(
    ("expiration_ms", "age_ms", "are_alone"),
    [
        (24 * HOUR_MS, 17 * HOUR_MS, False),
        (24 * HOUR_MS, 19 * HOUR_MS, True),
        (HOUR_MS, 25 * MINUTE_MS, False),
        (HOUR_MS, 35 * MINUTE_MS, True),
        (20 * MINUTE_MS, 0, True),
    ],
)
def test_batches_go_alone_once_a_record_is_older_than_the_expiration_less_a_quarter(
    brokers: TwoBrokers,
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    expiration_ms: int,
    age_ms: int,
    are_alone: bool,
) -> None:
    history.base_timestamp = NOW_MS - age_ms
    history.plain(*[1] * 30)
    sent = SentRequests(monkeypatch)
    assert brokers.with_settings(producer_id_expiration_ms=expiration_ms).run().complete
    assert (max(len(each.before) for each in sent.requests) == 0) == are_alone
    brokers.assert_exact(history)


def test_clock_that_is_a_quarter_of_the_expiration_behind_leaves_no_forgotten_record_in_flight(
    brokers: TwoBrokers, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = brokers.with_timing(clock=Clock(wall=lambda: time.time() - 6 * HOUR_MS / 1000))
    history.base_timestamp = NOW_MS - 24 * HOUR_MS - MINUTE_MS
    history.plain(*[1] * 30)
    sent = SentRequests(monkeypatch)
    assert brokers.run().complete
    assert {len(each.before) for each in sent.requests} == {0}
    brokers.assert_exact(history)

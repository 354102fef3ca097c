"""Two brokers for each test, and no long waits."""

from collections.abc import Iterator
from functools import partial

import pytest

from shoal.client.backoff import Backoff
from shoal.mirroring.task import partition_state, worker
from tests.two_brokers import History, TwoBrokers


@pytest.fixture
def brokers() -> Iterator[TwoBrokers]:
    with TwoBrokers.started() as started:
        yield started


@pytest.fixture
def history(brokers: TwoBrokers) -> History:
    """The one partition of the topic ``topic``."""
    return brokers.topic()[0]


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let partitions and fetches wait for milliseconds instead of seconds."""
    monkeypatch.setattr(partition_state, "Backoff", partial(Backoff, 1, 20))
    monkeypatch.setattr(worker, "FETCH_MAX_WAIT_MS", 20)
    monkeypatch.setattr(worker, "_LOOK_INTERVAL_S", 0.0)
    monkeypatch.setattr(worker, "_ADMISSION_S", 0.005)

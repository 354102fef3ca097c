"""No long waits."""

from functools import partial

import pytest

from shoal.client.backoff import Backoff
from shoal.mirroring.task import partition_state, worker


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let partitions and fetches wait for milliseconds instead of seconds."""
    monkeypatch.setattr(partition_state, "Backoff", partial(Backoff, 1, 20))
    monkeypatch.setattr(worker, "FETCH_MAX_WAIT_MS", 20)
    monkeypatch.setattr(worker, "_LOOK_INTERVAL_S", 0.0)
    monkeypatch.setattr(worker, "_ADMISSION_S", 0.005)

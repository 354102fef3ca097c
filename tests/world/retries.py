"""Retries of tasks after milliseconds, for worlds whose brokers answer at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

from shoal.client.backoff import Backoff
from shoal.mirroring.task import partition_state, worker

__all__ = ["quick_retries"]


@contextmanager
def quick_retries() -> Iterator[None]:
    """Let partitions and fetches wait for milliseconds instead of seconds."""
    with (
        patch.object(partition_state, "Backoff", partial(Backoff, 1, 20)),
        patch.object(worker, "FETCH_MAX_WAIT_MS", 20),
        patch.object(worker, "_LOOK_INTERVAL_S", 0.0),
        patch.object(worker, "_ADMISSION_S", 0.005),
        patch.object(worker, "_HOLD_LOOK_S", 0.001),
    ):
        yield

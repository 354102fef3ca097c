"""A worker between two brokers that may answer wrongly, and the conditions for its copy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from rig.copying import TaskResult
from shoal.client import backoff
from shoal.errors import ShoalError
from tests.fuzz.liar import Lie, changed_fields
from tests.two_brokers import ABORT, COMMIT, Content, History, TwoBrokers, Watched

__all__ = ["TASK_S", "check", "filled", "hurried", "patient", "run_task"]

REQUEST_TIMEOUT_MS = 250
TASK_S = 200.0


@contextmanager
def hurried() -> Iterator[None]:
    """Shorten all retry delays: the awaited condition comes at once here, or never."""
    original = backoff.Backoff.__init__

    def at_once(self: backoff.Backoff, first_ms: int = 1, longest_ms: int = 20) -> None:
        original(self, 1, 20)

    with patch.object(backoff.Backoff, "__init__", at_once):
        yield


def run_task(brokers: TwoBrokers) -> TaskResult | ShoalError:
    """Run a worker to its end; if it raises, that must be one of shoal's errors."""
    control = Watched()
    running = brokers.start(control=control)
    deadline = time.monotonic() + TASK_S
    while running.is_running and time.monotonic() < deadline:
        running.ends_within(0.05)
        if time.monotonic() > deadline - TASK_S / 2:
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
            timing=replace(stack.settings.timing, commit_interval_s=0.0),
        ),
    )
    histories = brokers.topic(partitions=2)
    for history in histories:
        history.plain(3, 3).holed(4, [1]).transaction(2, ends=ABORT).transaction(2, ends=COMMIT).empty()
        history.plain(2, 2)
    return brokers, histories


def patient(brokers: TwoBrokers) -> TwoBrokers:
    """Raise the timeouts to those that a busy machine may need."""
    return brokers.with_settings(
        source=replace(brokers.settings.source, request_timeout_ms=20_000),
        destination=replace(brokers.settings.destination, request_timeout_ms=20_000),
    )


def is_in_order_among(copied: list[Content], stored: list[Content]) -> bool:
    left = iter(stored)
    return all(each in left for each in copied)


def check(brokers: TwoBrokers, histories: list[History], lie: Lie) -> None:
    """Check that the destination has only records of the source, and in the same places."""
    for number, history in enumerate(histories):
        copied = brokers.copied(partition=number)
        # If a transaction was aborted, only the source's answer shows it.
        assert all(each in history.uncommitted for each in copied)
        if lie is not changed_fields:
            assert is_in_order_among(copied, history.uncommitted)

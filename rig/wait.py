"""Wait for a condition with a deadline, so that no test sleeps a guessed time."""

import time
from collections.abc import Callable

__all__ = ["TimedOut", "wait_until"]


class TimedOut(Exception):
    """The condition was still false at the deadline; the text names it."""


def wait_until(
    condition: Callable[[], bool], what: str, timeout_s: float = 30, interval_s: float = 0.05
) -> None:
    """Return as soon as ``condition()`` is true.

    Args:
        condition: Called every ``interval_s`` seconds, and at least once.
        what: Names the condition in the error: "waited 30 s for {what}".

    Raises:
        TimedOut: The condition was still false after ``timeout_s`` seconds.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimedOut(f"waited {timeout_s:g} s for {what}")
        time.sleep(interval_s)

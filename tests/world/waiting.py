"""Waits for what another thread does, with a deadline."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["DEADLINE_S", "InThread", "is_let_go", "wait_until"]

T = TypeVar("T")

#: Ten times what the longest wait of a test takes on two quiet cores.
DEADLINE_S = 120.0


def wait_until(condition: Callable[[], bool], timeout_s: float = DEADLINE_S) -> None:
    """Wait for a condition that another thread fulfils, and look more rarely the longer that takes."""
    began_at = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began_at
        assert waited_s < timeout_s, "it does not happen"
        time.sleep(min(0.002 + waited_s / 20, 0.05))


def is_let_go(peer: socket.socket, byte: bytes) -> bool:
    """Send one more byte; return whether the other side has disconnected. Set a short timeout first."""
    try:
        peer.sendall(byte)
        return peer.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


class InThread(Generic[T]):
    """Work in a thread, for tests that act meanwhile."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._outcome: list[T] = []
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run_in_thread, args=[work], daemon=True)
        self._thread.start()

    def _run_in_thread(self, work: Callable[[], T]) -> None:
        try:
            self._outcome.append(work())
        except BaseException as error:
            self._failure = error

    def result(self, timeout_s: float = DEADLINE_S) -> T:
        """Wait for its end, and return its result or raise its exception."""
        assert self.ends_within(timeout_s), "it does not end"
        if self._failure is not None:
            raise self._failure
        return self._outcome[0]

    def ends_within(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

"""Waits for what another thread does, with a deadline."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

__all__ = ["DEADLINE_S", "is_let_go", "wait_until"]

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

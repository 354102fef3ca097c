"""The parts that both ends of a control connection share: lines of JSON, names, bounds, and a clock."""

from __future__ import annotations

import importlib.metadata
import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...client.coordinator import MemberId
from ..model.steering import TaskSteering

__all__ = [
    "INSTALLED",
    "LONGEST_LINE",
    "NOT_UNDERSTOOD",
    "DriverState",
    "first_line",
    "lease_clock_s",
    "line",
    "process_name",
]

#: The longest line of the driver, which names partitions. Another program may listen on its address.
LONGEST_LINE = 64 * 1024 * 1024

#: The longest first line of a task.
_LONGEST_FIRST_LINE = 4096

#: No lease lasts longer, in seconds.
LONGEST_LEASE_S = 100_000.0

#: The errors of a broken connection, and of lines that no shoal has sent, such as thousands of brackets.
NOT_UNDERSTOOD = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)

#: The version of shoal, which driver and tasks must share.
INSTALLED = importlib.metadata.version("shoal")


@dataclass(frozen=True, slots=True)
class DriverState:
    """
    The line of the driver to a task, without its document.

    Attributes:
        stop: Whether the task should end.
        clock_s: The newest reading of the task's clock that the driver has.
        lease_s: The length of the lease from that reading on.
        membership: The member of the group that may commit.
        steering: The topics that the task may not fetch, and its bytes a second.

    """

    stop: bool
    clock_s: float
    lease_s: float
    membership: MemberId
    steering: TaskSteering

    def __post_init__(self) -> None:
        if not 0 <= self.lease_s <= LONGEST_LEASE_S:  # nor is NaN
            raise ValueError(f"a lease of {self.lease_s} s")


def process_name(pid: int | None = None) -> str:
    """Return the name in reports of a process of this machine, by default this process."""
    return f"{os.uname().nodename}:{os.getpid() if pid is None else pid}"


def lease_clock_s() -> float:
    """
    Return the time of the clock for leases.

    On Linux the clock also counts the time for which the machine sleeps, as the group's coordinator does.
    Elsewhere it only counts the time for which the process is stopped.

    """
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)


def line(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line of JSON."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def first_line(connection: socket.socket, patience_s: float) -> bytes:
    """
    Receive the first line of a connection within a time; it sends nothing more before it has an answer.

    Raises:
        OSError: The line did not arrive in time, or the connection was the oldest of too many.

    """
    deadline = time.monotonic() + patience_s
    words = b""
    while not words.endswith(b"\n") and len(words) < _LONGEST_FIRST_LINE:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the first line did not come in time")
        connection.settimeout(left_s)
        received = connection.recv(_LONGEST_FIRST_LINE - len(words))
        if not received:
            raise ConnectionError("the connection ended before its first line")
        words += received
    return words

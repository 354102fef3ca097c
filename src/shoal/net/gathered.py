"""Send many buffers: by few system calls without a copy, or in TLS records."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Sequence

__all__ = ["IOV_MAX", "send_gathered", "send_records", "when_writable"]

#: The most buffers that one sendmsg takes: 1,024 on Linux and macOS.
IOV_MAX = os.sysconf("SC_IOV_MAX")

#: The size of a TLS record: smaller parts are joined up to it before they are sent.
_TLS_RECORD = 16 * 1024


def send_gathered(
    connected: socket.socket,
    parts: Sequence[bytes | memoryview],
    before_each: Callable[[], object] | None = None,
) -> None:
    """
    Send all parts by as few system calls as possible, without a copy. The socket must not be one of TLS.

    Args:
        before_each: Called before each system call, which then waits for nothing; so it has to wait until the
            socket takes bytes.

    Raises:
        OSError: The connection failed, or its timeout passed; an unknown part was sent.

    """
    unsent, first = list(parts), 0
    while first < len(unsent):
        if before_each is not None:
            before_each()
        try:
            sent = connected.sendmsg(
                unsent[first : first + IOV_MAX], (), 0 if before_each is None else socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            if before_each is None:
                raise
            continue
        while first < len(unsent) and sent >= len(unsent[first]):
            sent -= len(unsent[first])
            first += 1
        if sent:  # the timeout, a signal, or a full buffer cut the call short
            unsent[first] = memoryview(unsent[first])[sent:]


def send_records(
    connected: socket.socket,
    parts: Sequence[bytes | memoryview],
    before_each: Callable[[], object] | None = None,
) -> None:
    """
    Send parts one by one by TLS, small ones joined: TLS has no sendmsg, and each send is a record.

    Args:
        before_each: As of :func:`send_gathered`.

    Raises:
        OSError: As :func:`send_gathered`.

    """
    small = bytearray()
    for part in parts:
        if len(small) + len(part) <= _TLS_RECORD:
            small += part
            continue
        _send_records_of(connected, small, before_each)
        small = bytearray()
        _send_records_of(connected, part, before_each)
    _send_records_of(connected, small, before_each)


def when_writable(
    connected: socket.socket, timeout_s: float, check: Callable[[], object]
) -> Callable[[], None]:
    """
    Return a function that waits until a socket takes bytes, and checks if any time may have passed.

    The function is a ``before_each`` of :func:`send_gathered` and :func:`send_records`. If the socket takes
    nothing in time, it raises BlockingIOError.

    """
    poll = select.poll()
    poll.register(connected, select.POLLOUT)
    is_first = True

    def wait() -> None:
        nonlocal is_first
        if not (is_first and poll.poll(0)):
            if not poll.poll(timeout_s * 1000):
                raise BlockingIOError("the other end takes nothing")
            check()
        is_first = False

    return wait


def _send_records_of(
    connected: socket.socket,
    data: bytes | bytearray | memoryview,
    before_each: Callable[[], object] | None,
) -> None:
    unsent = memoryview(data)
    while unsent:
        if before_each is not None:
            before_each()
        unsent = unsent[connected.send(unsent[:_TLS_RECORD]) :]

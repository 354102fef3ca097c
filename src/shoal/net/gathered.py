"""Send many buffers without joining them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence

__all__ = ["IOV_MAX", "send_gathered"]

#: The most buffers that one sendmsg or pwritev takes: 1,024 on Linux and macOS.
IOV_MAX = os.sysconf("SC_IOV_MAX")


def send_gathered(
    connected: socket.socket,
    parts: Sequence[bytes | memoryview],
    before_each: Callable[[], object] | None = None,
) -> None:
    """
    Send all parts by as few system calls as possible, without a copy. The socket must not be one of TLS.

    Args:
        connected: The socket.
        parts: The buffers.
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

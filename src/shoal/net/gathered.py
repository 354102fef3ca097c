"""Send many buffers without joining them."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

__all__ = ["IOV_MAX", "send_gathered"]

#: The most buffers that one sendmsg or pwritev takes: 1,024 on Linux and macOS.
IOV_MAX = os.sysconf("SC_IOV_MAX")


def send_gathered(connected: socket.socket, parts: Sequence[bytes | memoryview]) -> None:
    """
    Send all parts by as few system calls as possible, without a copy. The socket must not be one of TLS.

    Raises:
        OSError: The connection failed, or its timeout passed; an unknown part was sent.

    """
    for first in range(0, len(parts), IOV_MAX):
        group = parts[first : first + IOV_MAX]
        sent = connected.sendmsg(group)
        if sent == sum(map(len, group)):
            continue
        # The timeout, or a signal, cut the call short.
        for part in group:
            if sent < len(part):
                connected.sendall(memoryview(part)[sent:])
            sent = max(0, sent - len(part))

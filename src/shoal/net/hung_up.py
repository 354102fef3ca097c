"""A check for connections that no thread reads from: has the peer closed its end?"""

from __future__ import annotations

import select
import socket

__all__ = ["HUNG_UP", "has_hung_up"]

#: POLLRDHUP exists on Linux: the peer sends no more. Other systems report only a broken connection.
HUNG_UP = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def has_hung_up(connected: socket.socket) -> bool:
    """Return whether the peer closed or broke the connection, also if unread bytes are left."""
    poll = select.poll()
    try:
        poll.register(connected, HUNG_UP)
    except ValueError:  # we closed it
        return True
    return bool(poll.poll(0))

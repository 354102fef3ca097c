"""Whether the other end of a connection hung up, while nobody reads from it."""

from __future__ import annotations

import select
import socket

__all__ = ["HUNG_UP", "has_hung_up"]

#: POLLRDHUP is Linux's: the other end sends no more. Elsewhere only a connection that broke is noticed.
HUNG_UP = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def has_hung_up(connected: socket.socket) -> bool:
    """Return whether the other end closed or broke the connection, also if it sent more before."""
    poll = select.poll()
    try:
        poll.register(connected, HUNG_UP)
    except ValueError:  # we closed it
        return True
    return bool(poll.poll(0))

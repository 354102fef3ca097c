"""
How much memory all requests together may take: Kafka's ``queued.max.request.bytes``.

As with Kafka's memory pool, a connection whose request finds no room is not read from until there is some.
Unlike there, a client that does not send the rest of its request cannot keep others waiting for ever.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ...printable import logger

__all__ = ["RequestMemory", "Share"]

_log = logger("shoal.broker")

#: For so long a request waits for room before the client that is slowest with its own is hung up on.
_PATIENCE_S = 10.0

#: A request that waits looks so often whether its connection was shut down.
_LOOK_S = 0.5


@dataclass(eq=False, slots=True)
class Share:
    """
    What one request takes.

    Attributes:
        is_received: Whether all of it is here, so that it is up to us when it ends.
        is_ended: Whether its connection was shut down for others.

    """

    sock: socket.socket
    size_bytes: int
    is_received: bool = False
    is_ended: bool = False


class RequestMemory:
    """Shares out memory, first come, first served. Safe to use from several threads."""

    def __init__(self, most_bytes: int) -> None:
        """Take the most that requests may take together; negative for no bound."""
        self._most_bytes = most_bytes
        #: Oldest first, both.
        self._taken: list[Share] = []
        self._waiting: list[Share] = []
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def share(self, sock: socket.socket, size_bytes: int) -> Iterator[Share]:
        """
        Wait until there is room for a request, and keep it meanwhile.

        Args:
            sock: Where it comes from; shut down if others wait, and it does not come.
            size_bytes: No more than all requests may take together.

        Raises:
            ConnectionAbortedError: The connection was shut down meanwhile.

        """
        mine = Share(sock, size_bytes)
        with self._changed:
            self._waiting.append(mine)
            try:
                self._wait(mine)
                self._taken.append(mine)
            finally:
                self._waiting.remove(mine)
                self._changed.notify_all()
        try:
            yield mine
        finally:
            with self._changed:
                self._taken.remove(mine)
                self._changed.notify_all()

    def _wait(self, mine: Share) -> None:
        since = time.monotonic()
        while not self._has_room(mine):
            if _is_shut_down(mine.sock):
                raise ConnectionAbortedError("it was shut down while it waited for memory")
            if self._waiting[0] is mine and time.monotonic() - since >= _PATIENCE_S:
                self._end_oldest()
                since = time.monotonic()
            self._changed.wait(min(_LOOK_S, _PATIENCE_S))

    def _has_room(self, mine: Share) -> bool:
        if self._most_bytes < 0:
            return True
        taken = sum(share.size_bytes for share in self._taken)
        return self._waiting[0] is mine and taken + mine.size_bytes <= self._most_bytes

    def _end_oldest(self) -> None:
        """Shut down the connection whose request has been coming for the longest, if there is one."""
        oldest = next((each for each in self._taken if not (each.is_received or each.is_ended)), None)
        if oldest is None:
            return
        oldest.is_ended = True
        with contextlib.suppress(OSError):
            host = oldest.sock.getpeername()[0]
            oldest.sock.shutdown(socket.SHUT_RDWR)
            _log.warning(
                "a request of %d bytes from %s was not received while others waited for memory "
                "(queued.max.request.bytes is %d); its connection was closed",
                oldest.size_bytes,
                host,
                self._most_bytes,
            )


def _is_shut_down(sock: socket.socket) -> bool:
    """Tell whether both directions were; a client that only sends no more may have sent its whole request."""
    poll = select.poll()
    poll.register(sock, select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))

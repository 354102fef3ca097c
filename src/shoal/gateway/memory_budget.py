"""
A budget of memory for the large messages of all clients, as Kafka's ``queued.max.request.bytes``.

If a request finds no room, its connection is not read until there is room, as with Kafka's memory pool.
Unlike there, a client cannot block the others forever by not sending the rest of its request, or by not
reading its response.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..net.making_room import network_of
from ..timing import DEFAULT_TIMING, Timing

__all__ = ["MemoryBudget", "Share"]

#: The interval at which a wait checks that its client is still connected.
_LOOK_S = 0.5


@dataclass(eq=False, slots=True)
class Share:
    """
    The memory of one request or response.

    Attributes:
        is_received: Whether the whole request was received, so that its end no longer depends on the client.
        is_ended: Whether its connection was closed to make room for others.

    """

    sock: socket.socket
    network: str
    size_bytes: int
    is_received: bool = False
    is_ended: bool = False


class MemoryBudget:
    """
    Shares out memory, first to the client that holds the least of it. Safe to use from several threads.

    Among clients that hold the same, the one that waits longest comes first.

    """

    def __init__(
        self,
        most_bytes: int,
        warn: Callable[[str], object],
        too_slow: str,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        """
        Begin with all memory free.

        Args:
            most_bytes: The limit for all messages together; negative for none.
            warn: Called with a message when a connection was closed to make room for others.
            too_slow: The message, with ``{size}``, ``{host}`` and ``{most}`` in it.
            timing: How long a message waits for a slow client.

        """
        self._most_bytes = most_bytes
        self._warn = warn
        self._too_slow = too_slow
        self._patience_s = timing.memory_patience_s
        #: Oldest first, both.
        self._taken: list[Share] = []
        self._waiting: list[Share] = []
        self._changed = threading.Condition()

    @property
    def held(self) -> int:
        """The number of messages that have their memory."""
        return len(self._taken)

    @property
    def waiting(self) -> int:
        """The number of messages that wait for memory."""
        return len(self._waiting)

    @contextlib.contextmanager
    def share(
        self, sock: socket.socket, size_bytes: int, check: Callable[[], object] | None = None
    ) -> Iterator[Share]:
        """
        Wait for room, and hold it.

        Args:
            sock: The client's socket. If others wait and the client neither sends nor reads, it is shut down.
            size_bytes: The size of the message. One that is larger than the budget waits until it is alone.
            check: Called repeatedly during the wait; if it raises, the wait ends.

        Raises:
            ConnectionAbortedError: The connection was shut down during the wait.

        """
        mine = Share(sock, network_of(str(sock.getpeername()[0])), size_bytes)
        with self._changed:
            self._waiting.append(mine)
            try:
                self._wait(mine, check)
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

    def _wait(self, mine: Share, check: Callable[[], object] | None) -> None:
        since = time.monotonic()
        while not self._has_room(mine):
            if _is_shut_down(mine.sock):
                raise ConnectionAbortedError("it was shut down while it waited for memory")
            if check is not None:
                check()
            if time.monotonic() - since >= self._patience_s and self._is_first(mine):
                self._end_slowest()
                since = time.monotonic()
            self._changed.wait(min(_LOOK_S, self._patience_s))

    def _has_room(self, mine: Share) -> bool:
        if self._most_bytes < 0:
            return True
        taken = sum(share.size_bytes for share in self._taken)
        return (not taken or taken + mine.size_bytes <= self._most_bytes) and self._is_first(mine)

    def _is_first(self, mine: Share) -> bool:
        taken = self._taken_by_network()
        return min(self._waiting, key=lambda each: taken[each.network]) is mine

    def _taken_by_network(self) -> Counter[str]:
        taken: Counter[str] = Counter()
        for each in self._taken:
            taken[each.network] += each.size_bytes
        return taken

    def _end_slowest(self) -> None:
        """Shut down the oldest slow connection of the network that holds the most memory."""
        taken = self._taken_by_network()
        slow = [each for each in self._taken if not (each.is_received or each.is_ended)]
        if not slow:
            return
        slowest = max(slow, key=lambda each: taken[each.network])
        slowest.is_ended = True
        with contextlib.suppress(OSError):
            host = slowest.sock.getpeername()[0]
            # Not SSLSocket's own method: the thread that serves the client may be using it.
            socket.socket.shutdown(slowest.sock, socket.SHUT_RDWR)
            self._warn(self._too_slow.format(size=slowest.size_bytes, host=host, most=self._most_bytes))


def _is_shut_down(sock: socket.socket) -> bool:
    """Return whether both directions are shut down: a client that only stopped sending may have sent all."""
    poll = select.poll()
    poll.register(sock, select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))

"""
How much memory all large messages of clients together may take: Kafka's ``queued.max.request.bytes``.

As with Kafka's memory pool, a connection whose request finds no room is not read from until there is some.
Unlike there, a client that does not send the rest of its request, or does not take its answer, cannot keep
others waiting for ever.
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

from .making_room import network_of

__all__ = ["MemoryBudget", "Share"]

#: For so long a message waits for room before the client that is slowest with its own is hung up on.
_PATIENCE_S = 10.0

#: What waits looks so often whether its client is still there.
_LOOK_S = 0.5


@dataclass(eq=False, slots=True)
class Share:
    """
    What one request or answer takes.

    Attributes:
        is_received: Whether all of a request is here, so that it is up to us when it ends.
        is_ended: Whether its connection was shut down for others.

    """

    sock: socket.socket
    network: str
    size_bytes: int
    is_received: bool = False
    is_ended: bool = False


class MemoryBudget:
    """
    Shares out memory, first to the client that has the least of it. Safe to use from several threads.

    Of clients with the same, whoever came first is served first.

    """

    def __init__(self, most_bytes: int, tell: Callable[[str], object], too_slow: str) -> None:
        """
        Begin with nothing taken.

        Args:
            most_bytes: What all may take together; negative for no bound.
            tell: Takes a sentence when a connection was shut down for others.
            too_slow: That sentence, with ``{size}``, ``{host}`` and ``{most}`` in it.

        """
        self._most_bytes = most_bytes
        self._tell = tell
        self._too_slow = too_slow
        #: Oldest first, both.
        self._taken: list[Share] = []
        self._waiting: list[Share] = []
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def share(
        self, sock: socket.socket, size_bytes: int, check: Callable[[], object] | None = None
    ) -> Iterator[Share]:
        """
        Wait until there is room, and keep it meanwhile.

        Args:
            sock: The client's; shut down if others wait, and the request does not come or the answer is
                not taken.
            size_bytes: More than all may take together has to be alone.
            check: Called now and then during the wait; an error of it ends the wait.

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
            if time.monotonic() - since >= _PATIENCE_S and self._is_first(mine):
                self._end_slowest()
                since = time.monotonic()
            self._changed.wait(min(_LOOK_S, _PATIENCE_S))

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
        """Shut down the oldest connection that is slow, of the network that has taken the most."""
        taken = self._taken_by_network()
        slow = [each for each in self._taken if not (each.is_received or each.is_ended)]
        if not slow:
            return
        slowest = max(slow, key=lambda each: taken[each.network])
        slowest.is_ended = True
        with contextlib.suppress(OSError):
            host = slowest.sock.getpeername()[0]
            # Not TLS's own way, which the thread that serves the client may be using.
            socket.socket.shutdown(slowest.sock, socket.SHUT_RDWR)
            self._tell(self._too_slow.format(size=slowest.size_bytes, host=host, most=self._most_bytes))


def _is_shut_down(sock: socket.socket) -> bool:
    """Tell whether both directions were; a client that only sends no more may have sent its whole request."""
    poll = select.poll()
    poll.register(sock, select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))

"""
The connections of an HTTP server: a bounded number, and room for a new one whoever holds the others.

A client that sends its request at once keeps its slot for milliseconds. So if all are taken, most belong to
clients that are slow, on purpose or not, and the slowest of the greediest has to leave
(:mod:`....net.making_room`).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from dataclasses import dataclass

from ....net.making_room import first_to_leave, network_of

__all__ = ["Slot", "Slots", "hang_up"]

#: The time that a connection which has to leave takes at most to end its thread, on a busy machine.
_LEAVING_S = 1.0


@dataclass(eq=False, slots=True)
class Slot:
    """
    One connection.

    Attributes:
        connection: Its socket; the TLS one as soon as there is one.
        network: Where the client is.
        is_proven: Whether it sent a whole request that was allowed.
        leaves: Whether its slot is needed for another one.

    """

    connection: socket.socket
    network: str
    is_proven: bool = False
    leaves: bool = False


class Slots:
    """Slots for so many connections. Threads of connections give them back; one thread takes them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[Slot, None] = {}
        self._changed = threading.Condition()

    def take(self, connection: socket.socket, host: str) -> Slot | None:
        """
        Return a slot for a new connection, for which another one may have to leave.

        Returns:
            None if none is free in time.

        """
        with self._changed:
            if len(self._held) >= self._most:
                self._send_one_away()
            if not self._changed.wait_for(lambda: len(self._held) < self._most, _LEAVING_S):
                return None
            slot = Slot(connection, network_of(host))
            self._held[slot] = None
            return slot

    def encrypt(self, slot: Slot, connection: ssl.SSLSocket) -> None:
        """
        Go on with the TLS socket that took over the slot's.

        Raises:
            ConnectionAbortedError: The connection has to leave.

        """
        with self._changed:
            slot.connection = connection
            if slot.leaves:
                raise ConnectionAbortedError("another connection needs the slot")

    def give_back(self, slot: Slot) -> None:
        """Free a slot."""
        with self._changed:
            self._held.pop(slot, None)
            self._changed.notify_all()

    def make_room(self) -> None:
        """Let one connection leave, if there is one: descriptors ran out."""
        with self._changed:
            self._send_one_away()

    def _send_one_away(self) -> None:
        staying = [slot for slot in self._held if not slot.leaves]
        if not staying:
            return
        slot = first_to_leave(staying)
        slot.leaves = True
        hang_up(slot.connection)


def hang_up(connection: socket.socket) -> None:
    """Wake the thread that waits for a connection; it finds that the connection has ended."""
    with contextlib.suppress(OSError):  # the peer was faster
        # Not SSLSocket's own: that one ends the encryption first, while another thread may write.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)

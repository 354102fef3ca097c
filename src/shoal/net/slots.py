"""
The slots for a server's connections: a bounded number, and always room for a new one.

A client that sends its first words at once soon gives its slot back, or has proven itself. So if all slots
are taken, most belong to slow clients, on purpose or not. The server closes the oldest connection of the
network that holds the most. Strangers cannot shut out clients then, since a client that logs in at once is
hardly ever the oldest one. Kafka does the same for the listener between brokers (KIP-402): at
``max.connections`` it closes a connection of another listener.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections import Counter
from dataclasses import dataclass

__all__ = ["Slot", "Slots", "hang_up", "network_of"]

#: The smallest network that a provider gives to a customer (RFC 6177): its addresses count as one client.
_IPV6_PREFIX = 64


@dataclass(eq=False, slots=True)
class Slot:
    """
    One connection.

    Attributes:
        is_proven: Whether the client sent a whole request that is allowed.
        leaves: Whether the connection was closed for another one.

    """

    connection: socket.socket
    network: str
    is_proven: bool = False
    leaves: bool = False


class Slots:
    """A number of slots. One thread takes them; the threads of connections give them back."""

    def __init__(self, most: int, leaving_s: float) -> None:
        """Begin without connections; one that is closed has ``leaving_s`` until its thread ends."""
        self._leaving_s = leaving_s
        self._most = most
        self._held: dict[Slot, None] = {}
        self._changed = threading.Condition()

    def take(self, connection: socket.socket, host: str) -> Slot | None:
        """
        Return a slot for a new connection; if none is free, close another connection first.

        Returns:
            None if no slot became free in time.

        """
        with self._changed:
            if len(self._held) >= self._most:
                self._send_one_away()
            if not self._changed.wait_for(lambda: len(self._held) < self._most, self._leaving_s):
                return None
            slot = Slot(connection, network_of(host))
            self._held[slot] = None
            return slot

    def give_back(self, slot: Slot) -> None:
        """Free a slot."""
        with self._changed:
            self._held.pop(slot, None)
            self._changed.notify_all()

    def make_room(self) -> None:
        """Close one connection, if there is one, because descriptors ran out."""
        with self._changed:
            self._send_one_away()

    def _send_one_away(self) -> None:
        staying = [slot for slot in self._held if not slot.leaves]
        if not staying:
            return
        # Of equals one that is not proven, and of these the oldest.
        by_network = Counter(slot.network for slot in staying)
        slot = max(staying, key=lambda slot: (by_network[slot.network], not slot.is_proven))
        slot.leaves = True
        hang_up(slot.connection)


def hang_up(connection: socket.socket) -> None:
    """Shut a socket down, so that the thread that waits for it ends."""
    with contextlib.suppress(OSError):  # the peer has closed it already
        connection.shutdown(socket.SHUT_RDWR)


def network_of(host: str) -> str:
    """Return the unit that counts as one client: an IPv4 address, an IPv6 network of 64 bits, or a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))

"""
The limit for open connections of clients.

A connection is proven after its TLS handshake with a certificate, its login or, without a login, its first
request. If all slots are taken, a new connection gets that of an unproven one (:mod:`..net.making_room`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..net.making_room import first_to_leave, network_of

__all__ = ["ClientSlot", "ClientSlots", "NoRoom"]


class NoRoom(Exception):
    """A new connection is refused; the text is a sentence with the reason."""


@dataclass(slots=True, eq=False)
class ClientSlot:
    """
    The slot of one connection.

    Attributes:
        network: The network of the address.
        hang_up: Ends the connection, from another thread.
        is_proven: Whether the client has met all conditions above.

    """

    address: str
    network: str
    hang_up: Callable[[], object]
    is_proven: bool = False

    def prove(self) -> None:
        """Keep the slot until the connection ends."""
        self.is_proven = True


class ClientSlots:
    """The open connections. For all threads."""

    def __init__(self, most: int, most_of_address: int | None = None) -> None:
        """
        Begin without connections.

        Args:
            most: The limit for all clients.
            most_of_address: The limit for one address, or one IPv6 network of 64 bits; None for no limit of
                its own.

        """
        self._most = most
        self._most_of_address = most_of_address
        self._slots: dict[ClientSlot, None] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._slots)

    def enter(self, address: str, hang_up: Callable[[], object]) -> ClientSlot:
        """
        Admit a connection, if necessary in place of an unproven one.

        Raises:
            NoRoom: All slots have proven connections.

        """
        slot = ClientSlot(address, network_of(address), hang_up)
        with self._lock:
            evicted = self._make_room(slot.network)
            self._slots[slot] = None
        for each in evicted:
            each.hang_up()
        return slot

    def leave(self, slot: ClientSlot) -> None:
        """Free a slot; no-op if another connection has it already."""
        with self._lock:
            self._slots.pop(slot, None)

    def _make_room(self, network: str) -> list[ClientSlot]:
        evicted = []
        of_network = [each for each in self._slots if each.network == network]
        if self._most_of_address is not None and len(of_network) >= self._most_of_address:
            evicted.append(
                self._evict(
                    of_network,
                    f"a connection from {network} was refused: {self._most_of_address} from there are open. "
                    "Raise --max-connections-per-address to allow more",
                )
            )
        if len(self._slots) >= self._most:
            evicted.append(
                self._evict(
                    self._slots,
                    f"a connection was refused: {self._most} are open. Raise --max-connections to allow more",
                )
            )
        return evicted

    def _evict(self, slots: Iterable[ClientSlot], refusal: str) -> ClientSlot:
        unproven = [each for each in slots if not each.is_proven]
        if not unproven:
            raise NoRoom(refusal)
        leaving = first_to_leave(unproven)
        del self._slots[leaving]
        return leaving

"""
How many connections of clients are open, and which of them have proved who they are.

A connection that has not, because its TLS handshake, its login or, without one, its first request is still to
come, holds its slot only until somebody needs it (:mod:`..net.making_room`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..net.making_room import first_to_leave, network_of

__all__ = ["NoRoom", "Slot", "Slots"]


class NoRoom(Exception):
    """One connection more is not let in; ``str()`` of it is a sentence that says why."""


@dataclass(slots=True, eq=False)
class Slot:
    """
    One connection's.

    Attributes:
        address: The client's.
        network: Where that is.
        hang_up: Ends the connection, from another thread.
        is_proven: Whether the client has shown everything that the gateway asks for.

    """

    address: str
    network: str
    hang_up: Callable[[], object]
    is_proven: bool = False

    def prove(self) -> None:
        """Keep the slot from now on."""
        self.is_proven = True


class Slots:
    """The open connections. For all threads."""

    def __init__(self, most: int, most_of_address: int | None = None) -> None:
        """
        Begin without connections.

        Args:
            most: Of all clients.
            most_of_address: Of the clients at one address, or in one IPv6 network of 64 bits; None for as
                many as of all.

        """
        self._most = most
        self._most_of_address = most_of_address
        self._slots: dict[Slot, None] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._slots)

    def enter(self, address: str, hang_up: Callable[[], object]) -> Slot:
        """
        Let a connection in, if need be in the place of one that has proved nothing.

        Raises:
            NoRoom: All places are taken by clients who have.

        """
        slot = Slot(address, network_of(address), hang_up)
        with self._lock:
            evicted = self._make_room(slot.network)
            self._slots[slot] = None
        for each in evicted:
            each.hang_up()
        return slot

    def leave(self, slot: Slot) -> None:
        """Free a slot; harmless if another connection has taken it."""
        with self._lock:
            self._slots.pop(slot, None)

    def _make_room(self, network: str) -> list[Slot]:
        evicted = []
        of_network = [each for each in self._slots if each.network == network]
        if self._most_of_address is not None and len(of_network) >= self._most_of_address:
            evicted.append(
                self._evict(
                    of_network,
                    f"{self._most_of_address} connections from {network} are open, and no more are let in "
                    "from there; --max-connections-per-address allows more",
                )
            )
        if len(self._slots) >= self._most:
            evicted.append(
                self._evict(
                    self._slots,
                    f"{self._most} connections are open, and no more are let in; --max-connections allows "
                    "more",
                )
            )
        return evicted

    def _evict(self, slots: Iterable[Slot], refusal: str) -> Slot:
        unproven = [each for each in slots if not each.is_proven]
        if not unproven:
            raise NoRoom(refusal)
        leaving = first_to_leave(unproven)
        del self._slots[leaving]
        return leaving

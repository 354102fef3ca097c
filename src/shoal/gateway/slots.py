"""
How many connections of clients are open, and which of them have proved who they are.

A connection that has not, because its TLS handshake, its login or, without one, its first request is still to
come, holds its slot only until somebody needs it: a new connection takes the place of the oldest such one, of
the address with the most of them. So strangers do not shut out clients, and one that logs in right away is
hardly ever the oldest. Kafka does the same for its brokers' own listener (KIP-402): at ``max.connections`` a
connection of another listener is closed to let one in.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = ["NoRoom", "Slot", "Slots"]


class NoRoom(Exception):
    """One connection more is not let in; ``str()`` of it is a sentence that says why."""


@dataclass(slots=True, eq=False)
class Slot:
    """
    One connection's.

    Attributes:
        address: The client's.
        hang_up: Ends the connection, from another thread.
        is_proven: Whether the client has shown everything that the gateway asks for.

    """

    address: str
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
            most_of_address: Of the clients at one address; None for as many as of all.

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
        slot = Slot(address, hang_up)
        with self._lock:
            evicted = self._make_room(address)
            self._slots[slot] = None
        for each in evicted:
            each.hang_up()
        return slot

    def leave(self, slot: Slot) -> None:
        """Free a slot; harmless if another connection has taken it."""
        with self._lock:
            self._slots.pop(slot, None)

    def _make_room(self, address: str) -> list[Slot]:
        evicted = []
        of_address = [each for each in self._slots if each.address == address]
        if self._most_of_address is not None and len(of_address) >= self._most_of_address:
            evicted.append(
                self._evict(
                    of_address,
                    f"{self._most_of_address} connections from {address} are open, and no more are let in "
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
        busiest = Counter(each.address for each in unproven).most_common(1)[0][0]
        oldest = next(each for each in unproven if each.address == busiest)
        del self._slots[oldest]
        return oldest

"""
The limit for open connections of clients.

A connection is proven after its TLS handshake with a certificate, its login or, without a login, its first
request. If all slots are taken, a new connection gets that of an unproven one (:mod:`..net.making_room`). It
has to wait until the thread of that one has ended, so there are never more threads than slots.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..net.making_room import first_to_leave, network_of
from ..timing import DEFAULT_TIMING, Timing

__all__ = ["ClientSlot", "ClientSlots", "NoRoom"]


class NoRoom(Exception):
    """A new connection is refused; the text is a sentence with the reason."""


@dataclass(slots=True, eq=False)
class ClientSlot:
    """
    The slot of one connection.

    Attributes:
        network: The network of the address.
        hang_up: Ends the connection, from another thread, so that its own thread leaves.
        is_proven: Whether the client has met all conditions above.
        leaves: Whether the connection was closed for another one.
        thread: The thread that serves the connection; None before it begins.
        abort: Ends the waits of that thread for brokers, from another thread.

    """

    address: str
    network: str
    hang_up: Callable[[ClientSlot], object]
    is_proven: bool = False
    leaves: bool = False
    thread: threading.Thread | None = None
    abort: Callable[[], object] = lambda: None

    def prove(self) -> None:
        """Keep the slot until the connection ends."""
        self.is_proven = True


class ClientSlots:
    """The open connections. For all threads."""

    def __init__(
        self,
        most: int,
        most_of_address: int | None = None,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        """
        Begin without connections.

        Args:
            most: The limit for all clients.
            most_of_address: The limit for one address, or one IPv6 network of 64 bits; None for no limit of
                its own.
            timing: How long new clients wait for those that leave.

        """
        self._most = most
        self._timing = timing
        self._most_of_address = most_of_address
        self._slots: dict[ClientSlot, None] = {}
        self._ending: list[threading.Thread] = []
        self._changed = threading.Condition()

    def __len__(self) -> int:
        with self._changed:
            return len(self._slots)

    def enter(self, address: str, hang_up: Callable[[ClientSlot], object]) -> ClientSlot:
        """
        Admit a connection, if necessary in place of an unproven one, whose thread has ended then.

        Args:
            hang_up: Ends the connection of the slot, and waits for nothing.

        Raises:
            NoRoom: All slots have proven connections.

        """
        slot = ClientSlot(address, network_of(address), hang_up)
        deadline = time.monotonic() + self._timing.longest_leave_s
        with self._changed:
            while (crowd := self._crowd(slot.network)) is not None:
                self._make_room(*crowd, deadline)
            self._slots[slot] = None
            ending, self._ending = self._ending, []
        for each in ending:
            each.join()  # it has nothing left to do
        return slot

    def leave(self, slot: ClientSlot) -> None:
        """Free a slot; the last act of its thread."""
        with self._changed:
            if slot in self._slots:
                del self._slots[slot]
                if slot.thread is not None:
                    self._ending.append(slot.thread)
                self._changed.notify_all()

    def _crowd(self, network: str) -> tuple[Collection[ClientSlot], str] | None:
        """Return the slots one of which a new connection needs, and the reason; None if there is room."""
        of_network = [each for each in self._slots if each.network == network]
        if self._most_of_address is not None and len(of_network) >= self._most_of_address:
            return (
                of_network,
                f"a connection from {network} was refused: {self._most_of_address} from there are open. "
                "Raise --max-connections-per-address to allow more",
            )
        if len(self._slots) >= self._most:
            return (
                self._slots,
                f"a connection was refused: {self._most} are open. Raise --max-connections to allow more",
            )
        return None

    def _make_room(self, crowd: Collection[ClientSlot], refusal: str, deadline: float) -> None:
        """Close the connection of an unproven slot, and wait for a change."""
        unproven = [each for each in crowd if not each.is_proven and not each.leaves]
        if unproven:
            leaving = first_to_leave(unproven)
            leaving.leaves = True
            leaving.hang_up(leaving)
            if leaving not in self._slots:
                return
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not any(each.leaves for each in crowd):
            raise NoRoom(refusal)
        self._changed.wait(min(self._timing.next_leaves_s, left_s) if unproven else left_s)

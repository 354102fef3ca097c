"""The cluster's brokers, and the listener that clients use for each of them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from ..net.address import Address

__all__ = ["Nodes"]


class Nodes:
    """
    The cluster's brokers by node id, updated by each answer with addresses. For all threads.

    A broker that has left keeps its listener, because it may come back. Until then the gateway closes
    connections to it, as if the broker were down.

    """

    def __init__(self, bootstrap: Iterable[Address], listen_for: Callable[[int], Address | None]) -> None:
        """
        Begin without brokers.

        Args:
            bootstrap: The addresses to ask while the brokers are unknown.
            listen_for: Begins to listen for a node, and returns the address for clients; None if it cannot.

        """
        self._bootstrap = tuple(bootstrap)
        self._listen_for = listen_for
        self._addresses: dict[int, Address] = {}
        self._listeners: dict[int, Address] = {}
        self._failed_at: dict[Address, float] = {}
        self._turn = itertools.count()
        self._lock = threading.Lock()

    def advertise(self, brokers: Mapping[int, Address | None]) -> dict[int, Address]:
        """
        Remember the addresses of brokers, as far as they are known; return those that clients use instead.

        A broker without a listener is absent from the result.
        """
        advertised = {}
        with self._lock:
            for node_id, address in brokers.items():
                if address is not None:
                    self._addresses[node_id] = address
                listener = self._listeners.get(node_id) or self._listen_for(node_id)
                if listener is not None:
                    self._listeners[node_id] = advertised[node_id] = listener
        return advertised

    def address(self, node_id: int) -> Address | None:
        """Return the address of a node, or None if it is unknown."""
        with self._lock:
            return self._addresses.get(node_id)

    @property
    def listeners(self) -> Mapping[int, Address]:
        """The addresses that clients use, by node id."""
        with self._lock:
            return dict(self._listeners)

    def addresses(self, node_id: int | None) -> list[Address]:
        """Return the addresses to try for a node; for any or an unknown one, all in rotation."""
        with self._lock:
            if node_id in self._addresses:
                return [self._addresses[node_id]]
            known = list(dict.fromkeys([*self._bootstrap, *self._addresses.values()]))
            first = next(self._turn) % len(known)
            return sorted(known[first:] + known[:first], key=lambda each: self._failed_at.get(each, 0.0))

    def remember(self, address: Address, *, failed: bool) -> None:
        """Remember the result of the last attempt to connect to an address."""
        with self._lock:
            if failed:
                self._failed_at[address] = time.monotonic()
            else:
                self._failed_at.pop(address, None)

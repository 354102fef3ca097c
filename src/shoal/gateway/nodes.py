"""Which brokers the cluster has, and where a client finds each of them here."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from ..net.address import Address

__all__ = ["Nodes"]

#: The oldest and the newest version of each API.
Versions = Mapping[int, tuple[int, int]]


class Nodes:
    """
    The cluster's brokers by node id, as every answer with addresses tells it anew; shared by all threads.

    A broker that is gone keeps its listener: it may come back, and until then whoever connects there
    is hung up on, as he would be by a broker that is down.

    """

    def __init__(self, bootstrap: Iterable[Address], listen_for: Callable[[int], Address | None]) -> None:
        """
        Begin without brokers.

        Args:
            bootstrap: Where a cluster whose brokers are unknown is asked.
            listen_for: Begins to listen for a node, and returns what clients are told; None where that
                cannot be.

        """
        self._bootstrap = tuple(bootstrap)
        self._listen_for = listen_for
        self._addresses: dict[int, Address] = {}
        self._listeners: dict[int, Address] = {}
        self._failed_at: dict[Address, float] = {}
        self._versions: dict[int | None, Versions] = {}
        self._turn = itertools.count()
        self._lock = threading.Lock()

    def listen(self, node_ids: Iterable[int]) -> dict[int, Address]:
        """Listen for nodes whose addresses nobody has told yet; return what clients are told."""
        told = {}
        with self._lock:
            for node_id in node_ids:
                listener = self._listeners.get(node_id) or self._listen_for(node_id)
                if listener is not None:
                    self._listeners[node_id] = told[node_id] = listener
        return told

    def advertise(self, brokers: Mapping[int, Address]) -> dict[int, Address]:
        """
        Learn where brokers are, and return what a client is told instead.

        One that cannot be listened for is left out.
        """
        told = {}
        with self._lock:
            self._addresses.update(brokers)
            for node_id in brokers:
                if node_id not in self._listeners:
                    listener = self._listen_for(node_id)
                    if listener is None:
                        continue
                    self._listeners[node_id] = listener
                told[node_id] = self._listeners[node_id]
        return told

    def address(self, node_id: int) -> Address | None:
        """Return where a node is, if that is known."""
        with self._lock:
            return self._addresses.get(node_id)

    @property
    def listeners(self) -> Mapping[int, Address]:
        """What clients are told, by node id."""
        with self._lock:
            return dict(self._listeners)

    def addresses(self, node_id: int | None) -> list[Address]:
        """Return where to connect to for a node, or for any or an unknown one: by turns, the failed last."""
        with self._lock:
            if node_id in self._addresses:
                return [self._addresses[node_id]]
            known = list(dict.fromkeys([*self._bootstrap, *self._addresses.values()]))
            first = next(self._turn) % len(known)
            return sorted(known[first:] + known[:first], key=lambda each: self._failed_at.get(each, 0.0))

    def remember_versions(self, node_id: int | None, versions: Versions) -> None:
        """Keep in mind which versions a node spoke when it was last connected to; None for any node."""
        with self._lock:
            self._versions[node_id] = versions

    def versions(self, node_id: int | None) -> Versions | None:
        """Return what a node spoke when it was last connected to, if it ever was."""
        with self._lock:
            return self._versions.get(node_id)

    def remember(self, address: Address, *, failed: bool) -> None:
        """Keep in mind who could be connected to."""
        with self._lock:
            if failed:
                self._failed_at[address] = time.monotonic()
            else:
                self._failed_at.pop(address, None)

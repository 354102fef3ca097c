"""
The nodes of the cluster, and the leaders of partitions.

A single broker leads all partitions. In a cluster (:mod:`..cluster`), each partition has one leader among the
nodes that run.
"""

from __future__ import annotations

import threading
import zlib
from dataclasses import dataclass

from shoal.error_codes import ErrorCode

from ..api_error import ApiError

__all__ = ["Leaders", "Node"]

_NOBODY = -1


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as clients see it."""

    node_id: int
    host: str
    port: int


class Leaders:
    """The nodes that run, and the leaders of partitions. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, Node] = {}
        self._assigned: dict[tuple[str, int], int] = {}

    def joined(self, node: Node) -> None:
        """Add a node that started."""
        with self._lock:
            self._running = dict(sorted({**self._running, node.node_id: node}.items()))

    def left(self, node_id: int) -> None:
        """Remove a node that stopped."""
        with self._lock:
            self._running = {number: node for number, node in self._running.items() if number != node_id}

    @property
    def nodes(self) -> list[Node]:
        """The nodes that run, by their ids."""
        return list(self._running.values())

    def of(self, topic: str, partition: int) -> int:
        """Return a partition's leader, which is chosen at the first call; -1 if it does not run."""
        key = (topic, partition)
        leader = self._assigned.get(key)
        if leader is None:
            with self._lock:
                running = list(self._running)
                if not running:
                    return _NOBODY
                leader = self._assigned.setdefault(key, running[partition % len(running)])
        return leader if leader in self._running else _NOBODY

    def assign(self, topic: str, partition: int, node_id: int) -> None:
        """Give a partition another leader."""
        with self._lock:
            self._assigned[topic, partition] = node_id

    def forget(self, topic: str) -> None:
        """Forget a topic that was deleted."""
        with self._lock:
            self._assigned = {key: node for key, node in self._assigned.items() if key[0] != topic}

    def check(self, node_id: int, topic: str, partition: int) -> None:
        """
        Check that a node leads a partition.

        Raises:
            ApiError: With NOT_LEADER_OR_FOLLOWER.

        """
        leader = self.of(topic, partition)
        if leader != node_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{partition} is led by {leader}")

    def coordinator_of(self, key: str) -> Node:
        """Return the node that coordinates a group or a transactional id; at least one node must run."""
        nodes = self.nodes
        return nodes[zlib.crc32(key.encode()) % len(nodes)]

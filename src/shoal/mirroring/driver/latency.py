"""
The latency of both clusters, as other clients feel it: the time that a small request takes.

A thread for each cluster asks every broker that leads mirrored partitions for the end of one of them, twice
a second. It has connections of its own. The request waits in the broker's queue behind those of all clients,
also the mirror's. So a broker whose disk or threads have too much to do answers late. A request without an
answer is as old as it is. An error counts for nothing: a broker that is gone has no queue to shorten.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Self

from ...client.cluster import Cluster
from ...client.config import ClientConfig
from ...client.offsets import LATEST, list_offsets
from ...errors import ShoalError
from ...topic_partition import TopicPartition

__all__ = ["LatencyProbe"]

_INTERVAL_S = 0.5

#: Metadata are refreshed as often: leaders move.
_REFRESH_S = 30.0


class LatencyProbe:
    """The latency of one cluster, measured in a thread until the ``with`` block ends."""

    def __init__(
        self,
        config: ClientConfig,
        partitions: Callable[[], Collection[TopicPartition]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Prepare the thread.

        Args:
            config: The cluster.
            partitions: Returns the partitions whose leaders are asked, by their names in this cluster.

        """
        self.name = config.name
        self._config = config
        self._partitions = partitions
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_at: float | None = None
        self._last: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shoal-latency", daemon=True)

    @property
    def seconds(self) -> float | None:
        """The longest latency of a broker at its last answer, or of a request without one; None for none."""
        with self._lock:
            known = list(self._last.values())
            if self._asked_at is not None:
                waited_s = self._clock() - self._asked_at
                known += [waited_s] if known and waited_s > max(known) else []
        return max(known, default=None)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        # The thread may be waiting for a broker. It holds only its own connections.
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        refreshed_at = -_REFRESH_S
        with Cluster(self._config.impatient()) as cluster:
            while not self._over.wait(_INTERVAL_S):
                with suppress(ShoalError):
                    partitions = self._partitions()
                    if self._clock() - refreshed_at >= _REFRESH_S and partitions:
                        cluster.refresh({each.topic for each in partitions})
                        refreshed_at = self._clock()
                    self._measure(cluster, partitions)

    def _measure(self, cluster: Cluster, partitions: Collection[TopicPartition]) -> None:
        leaders: dict[int, TopicPartition] = {}
        for partition in partitions:
            with suppress(ShoalError):
                leaders.setdefault(cluster.partition(partition).leader, partition)
        found: dict[int, float] = {}
        for node_id, partition in leaders.items():
            with suppress(ShoalError):
                cluster.connection(node_id)  # an opening has round trips of its own
                began_at = self._clock()
                with self._lock:
                    self._asked_at = began_at
                answer = list_offsets(cluster, {partition: LATEST})[partition]
                if not isinstance(answer, ShoalError):
                    found[node_id] = self._clock() - began_at
            with self._lock:
                self._asked_at = None
        with self._lock:
            self._last = found

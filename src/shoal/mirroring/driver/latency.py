"""
The latency of both clusters, as other clients feel it: the time that a small request takes.

A thread for each cluster asks every broker that leads mirrored partitions for the end of one of them, twice
a second. It has connections of its own. The request waits in the broker's queue behind those of all clients,
also the mirror's. So a broker whose disk or threads have too much to do answers late. A request without an
answer is as old as it is, and grows older over timeouts and new connections until the broker answers. An
error that arrives in time counts for nothing: a broker that is gone has no queue to shorten.
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
from ...timing import Timing
from ...topic_partition import TopicPartition

__all__ = ["LatencyProbe"]

#: An error after this part of the timeout means that there was no answer. A refusal arrives at once.
_NO_ANSWER = 0.9


class LatencyProbe:
    """The latency of one cluster, measured in a thread until the ``with`` block ends."""

    def __init__(
        self,
        config: ClientConfig,
        partitions: Callable[[], Collection[TopicPartition]],
        timing: Timing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Prepare the thread.

        Args:
            config: The cluster.
            partitions: Returns the partitions whose leaders are asked, by their names in this cluster.
            timing: The times of probes.

        """
        self.name = config.name
        self._config = config
        self._partitions = partitions
        self._timing = timing
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_at: float | None = None
        self._last: dict[int, float] = {}
        #: Since when a broker has not answered, although its timeout has passed.
        self._silent_since: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shoal-latency", daemon=True)

    @property
    def seconds(self) -> float | None:
        """The longest latency of a broker at its last answer, or of a request without one; None for none."""
        with self._lock:
            known = list(self._last.values())
            waiting_since = list(self._silent_since.values())
            waiting_since += [] if self._asked_at is None else [self._asked_at]
            return max([*known, *(self._clock() - each for each in waiting_since)], default=None)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        # The thread may be waiting for a broker. It holds only its own connections.
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        timing = self._timing
        refreshed_at = -timing.probe_refresh_s
        config = self._config.impatient()
        with Cluster(config) as cluster:
            while not self._over.wait(timing.probe_interval_s):
                with suppress(ShoalError):
                    partitions = self._partitions()
                    if self._clock() - refreshed_at >= timing.probe_refresh_s and partitions:
                        cluster.refresh({each.topic for each in partitions})
                        refreshed_at = self._clock()
                    self._measure(cluster, partitions, _NO_ANSWER * config.request_timeout_s)

    def _measure(self, cluster: Cluster, partitions: Collection[TopicPartition], patience_s: float) -> None:
        leaders: dict[int, TopicPartition] = {}
        for partition in partitions:
            with suppress(ShoalError):
                leaders.setdefault(cluster.partition(partition).leader, partition)
        with self._lock:
            self._silent_since = {
                node_id: since for node_id, since in self._silent_since.items() if node_id in leaders
            }
        found: dict[int, float] = {}
        for node_id, partition in leaders.items():
            began_at = self._clock()
            latency_s = None
            with suppress(ShoalError):
                cluster.connection(node_id)  # an opening has round trips of its own
                asked_at = self._clock()
                with self._lock:
                    self._asked_at = asked_at
                answer = list_offsets(cluster, {partition: LATEST})[partition]
                latency_s = None if isinstance(answer, ShoalError) else self._clock() - asked_at
            with self._lock:
                self._asked_at = None
                if latency_s is not None:
                    found[node_id] = latency_s
                if latency_s is None and self._clock() - began_at >= patience_s:
                    self._silent_since.setdefault(node_id, began_at)
                else:
                    self._silent_since.pop(node_id, None)
        with self._lock:
            self._last = found

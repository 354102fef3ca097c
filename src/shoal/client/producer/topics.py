"""The topics that a producer writes to: their partitions, and the leaders."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ...errors import BrokerError, Disconnected
from ...topic_partition import TopicPartition
from ..cluster import Cluster
from ..metadata import leader_in
from .queues import Queues

__all__ = ["REFRESH_PAUSE_S", "WantedTopics"]

#: The shortest time between two Metadata requests.
REFRESH_PAUSE_S = 0.1


class WantedTopics:
    """
    The topics that callers have sent to; the condition of the queues guards them.

    Attributes:
        is_stale: Whether the metadata lack a topic, or a leader has moved.
        refresh_at: The earliest time of the next request, by the monotonic clock.
        look_at: The time of the next request if nothing is stale.

    """

    def __init__(self, cluster: Cluster, queues: Queues, max_age_s: float) -> None:
        self._cluster = cluster
        self._queues = queues
        self._max_age_s = max_age_s
        self._topics: set[str] = set()
        self._counts: dict[str, int] = {}
        self._refusals: dict[str, BrokerError] = {}
        self._looks = 0
        self.is_stale = False
        self.refresh_at = 0.0
        self.look_at = time.monotonic() + max_age_s

    def partitions_of(
        self,
        topic: str,
        partition: int,
        timeout_s: float,
        *,
        has_ended: Callable[[], object],
        sender: threading.Thread,
    ) -> int | None:
        """
        Wait for a topic, and return its number of partitions; None after the timeout.

        Args:
            partition: The required partition. If the topic has fewer, the metadata are requested once more.
            timeout_s: The limit of both requests.
            has_ended: Whether no request will come.
            sender: The thread that sends the requests. In a future's callback, it cannot wait for itself.

        Raises:
            BrokerError: This principal may not describe the topic.

        """
        with self._queues.changed:
            is_sender = threading.current_thread() is sender
            if partition < self._counts.get(topic, 0) or (is_sender and topic in self._counts):
                return self._counts[topic]
            self._topics.add(topic)
            self._refusals.pop(topic, None)
            looks = self._looks
            self.is_stale = True
            self._queues.wake()
            self._queues.changed.wait_for(
                lambda: (
                    (topic in self._counts and self._looks > looks) or topic in self._refusals or has_ended()
                ),
                timeout_s,
            )
            if topic not in self._counts:
                self._topics.discard(topic)  # no thread waits for it any longer
            if topic in self._refusals:
                raise self._refusals[topic]
            return self._counts.get(topic)

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Return the leader's node id; None if the next request has to find it."""
        leader = leader_in(self._cluster.known, partition)
        self.is_stale = self.is_stale or leader is None
        return leader

    def refresh(self, now: float) -> None:
        """Request the metadata if that is due; a cluster that does not answer is asked again later."""
        if now < self.refresh_at or not (self.is_stale or now >= self.look_at):
            return
        self.refresh_at = now + REFRESH_PAUSE_S
        self.look_at = now + self._max_age_s
        with self._queues.changed:
            topics = set(self._topics)
        with suppress(Disconnected):
            metadata = self._cluster.refresh(topics)
            known = {name: len(metadata.topics[name].partitions) for name in topics & metadata.topics.keys()}
            with self._queues.changed:
                self._looks += 1
                self._counts.update((name, count) for name, count in known.items() if count)
                for name, code in metadata.errors.items():
                    error = BrokerError(code, f"topic {name!r} on {self._cluster}")
                    if name in topics and not error.retriable:
                        self._refusals[name] = error
                self.is_stale = bool(self._topics - self._counts.keys())
                self._queues.wake()

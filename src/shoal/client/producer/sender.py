"""
The thread that gives the batches of all partitions to their leaders.

The thread looks for leaders and topics, fails batches after ``delivery.timeout.ms``, and starts a delivery
(:mod:`.leader`) if a leader has none under way. Records that are sent meanwhile become one batch.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from ...errors import BrokerError, DeliveryTimedOut, Disconnected, ProtocolError, ShoalError
from ..cluster import Cluster
from ..metadata import Metadata, leader_in
from .batches import PendingBatch
from .leader import Leader
from .queues import PartitionQueue, Queues
from .settings import ProducerSettings

__all__ = ["Sender"]

#: The longest time without a look at the queues.
_LONGEST_WAIT_S = 10.0

#: The shortest time between two Metadata requests.
_REFRESH_PAUSE_S = 0.1

#: The limit of the wait for threads at the end.
_END_PATIENCE_S = 10.0


class Sender:
    """
    Sends the batches of queues.

    Attributes:
        queues: The queues, which other threads fill.
        failure: The error after which the producer cannot send; None before.

    """

    def __init__(self, settings: ProducerSettings) -> None:
        self.queues = Queues(settings)
        self.failure: ShoalError | None = None
        self._settings = settings
        self._cluster = Cluster(settings.client)
        self._leaders: dict[int, Leader] = {}
        self._must_stop = False
        #: The topics that callers have sent to, how many threads wait for each, and the number of answers.
        self._topics: set[str] = set()
        self._waiting: Counter[str] = Counter()
        self._looks = 0
        #: Whether the metadata lack a topic, or a leader has moved, and the times of the next requests.
        self._is_stale = False
        self._refresh_at = 0.0
        self._look_at = time.monotonic() + settings.metadata_max_age_ms / 1000
        self._thread = threading.Thread(target=self._run, name="shoal-producer", daemon=True)

    # For other threads

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, fail the remaining batches, and close all connections."""
        with self.queues.changed:
            self._must_stop = self.queues.is_closed = True
            self.queues.wake()
        self._thread.join(_END_PATIENCE_S)
        self._fail_rest()

    def partitions_of(self, topic: str, partition: int, timeout_s: float) -> int | None:
        """
        Wait for a topic, and return its number of partitions; None after the timeout.

        Args:
            partition: The required partition. If the topic has fewer, the metadata are requested once more.
            timeout_s: The limit of both requests.

        Raises:
            BrokerError: This principal may not describe the topic.

        """
        queues = self.queues
        with queues.changed:
            count = self._count(topic)
            # In a future's callback, the thread cannot wait for itself.
            if count > partition or threading.current_thread() is self._thread:
                return count or None
            self._topics.add(topic)
            self._is_stale = True
            looks = self._looks
            queues.wake()

            def is_answered() -> bool:
                has_ended = self.failure is not None or self._must_stop
                return has_ended or (self._looks > looks and bool(self._count(topic) or self._refusal(topic)))

            self._waiting[topic] += 1
            try:
                queues.changed.wait_for(is_answered, timeout_s)
            finally:
                self._waiting[topic] -= 1
            if not self._count(topic):
                if not self._waiting[topic]:
                    self._topics.discard(topic)  # no thread waits for it any longer
                if (refusal := self._refusal(topic)) is not None:
                    raise refusal
            return self._count(topic) or None

    def _count(self, topic: str) -> int:
        found = self._cluster.known.topics.get(topic) if self._cluster.known else None
        return len(found.partitions) if found else 0

    def _refusal(self, topic: str) -> BrokerError | None:
        code = self._cluster.known.errors.get(topic) if self._cluster.known else None
        error = BrokerError(code, f"topic {topic!r} on {self._cluster}") if code else None
        return None if error is None or error.retriable else error

    # The thread

    def _run(self) -> None:
        queues = self.queues
        try:
            while not (self._must_stop or self.failure):
                now = time.monotonic()
                self._refresh(now)
                queues.settle(self._expired(now))
                with queues.changed:
                    ready, due_at = self._work(now)
                    for leader, some in ready.items():
                        self._start(leader, some)
                    queues.changed.wait_for(lambda: queues.has_news, max(0.0, due_at - time.monotonic()))
                    queues.has_news = False
        except Exception as error:
            self._fail(error)
        finally:
            self._end()

    def _fail(self, error: Exception) -> None:
        """Note the error after which nothing can be sent."""
        failure = error if isinstance(error, ShoalError) else None
        with self.queues.changed:
            self.failure = failure or ProtocolError(f"the producer's thread failed: {error!r}")
            self.queues.is_closed = True
            self.queues.wake()
        if failure is None:
            raise error

    def _end(self) -> None:
        for leader in self._leaders.values():
            leader.stop()
        with self.queues.changed:
            leaders = self._leaders.values()
            self.queues.changed.wait_for(lambda: not any(each.is_busy for each in leaders), _END_PATIENCE_S)
            for queue in self.queues:
                for batch in queue.batches if queue.is_sending else ():
                    batch.is_in_doubt = batch.is_in_doubt or batch.sequence is not None
        for leader in self._leaders.values():
            leader.close()
        self._cluster.close()
        if self.failure is not None:
            self._fail_rest()

    def _fail_rest(self) -> None:
        with self.queues.changed:
            rest = [
                queue.finish(each, self.failure or self._timed_out(each))
                for queue in self.queues
                for each in list(queue.batches)
            ]
        self.queues.settle(rest)

    def _timed_out(self, batch: PendingBatch) -> DeliveryTimedOut:
        timeout_ms = self._settings.delivery_timeout_ms
        return DeliveryTimedOut(*batch.partition, timeout_ms, is_in_doubt=batch.is_in_doubt)

    def _refresh(self, now: float) -> None:
        """Request the metadata if that is due; a cluster that does not answer is asked again later."""
        if now < self._refresh_at or not (self._is_stale or now >= self._look_at):
            return
        self._refresh_at = now + _REFRESH_PAUSE_S
        self._look_at = now + self._settings.metadata_max_age_ms / 1000
        with self.queues.changed:
            topics = set(self._topics)
        with suppress(Disconnected):
            self._cluster.refresh(topics)
            with self.queues.changed:
                self._looks += 1
                self._is_stale = not all(map(self._count, self._topics))
                self.queues.wake()

    def _expired(self, now: float) -> list[PendingBatch]:
        """Fail batches after ``delivery.timeout.ms``, unless a leader has them."""
        expired = []
        with self.queues.changed:
            for queue in self.queues:
                # The oldest batches are first.
                while queue.has_work and self._expires_at(queue) < now:
                    batch = queue.batches[0]
                    expired.append(queue.finish(batch, self._timed_out(batch)))
        return expired

    def _expires_at(self, queue: PartitionQueue) -> float:
        return queue.batches[0].created_at + self._settings.delivery_timeout_ms / 1000

    def _work(self, now: float) -> tuple[dict[Leader, list[PartitionQueue]], float]:
        """Return the queues for each idle leader, and when to look again; the caller holds the lock."""
        ready: dict[Leader, list[PartitionQueue]] = {}
        due_at = now + _LONGEST_WAIT_S
        for queue in self.queues:
            if not queue.has_work:
                continue
            due_at = min(due_at, self._expires_at(queue))
            node_id = leader_in(self._cluster.known, queue.partition)
            if node_id is None and queue.retry_at <= now:
                self._is_stale = True
                queue.retry_at = now + _REFRESH_PAUSE_S
            if node_id is None or queue.retry_at > now:
                due_at = min(due_at, queue.retry_at)
                continue
            leader = self._leaders.get(node_id)
            if leader is None:
                leader = self._leaders[node_id] = Leader(self._settings, self.queues, node_id)
            if not leader.is_busy:
                ready.setdefault(leader, []).append(queue)
        return ready, min(due_at, self._refresh_at if self._is_stale else self._look_at)

    def _start(self, leader: Leader, queues: Sequence[PartitionQueue]) -> None:
        leader.is_busy = True
        for queue in queues:
            queue.is_sending = True
        given = (leader, self._cluster.metadata, queues)
        threading.Thread(target=self._deliver, args=given, name="shoal-producer-leader", daemon=True).start()

    def _deliver(self, leader: Leader, metadata: Metadata, queues: Sequence[PartitionQueue]) -> None:
        """Deliver to a leader; a thread of its own waits for the answers."""
        has_moved = False
        try:
            has_moved = leader.deliver(metadata, queues)
        except Exception as error:
            self._fail(error)
        finally:
            with self.queues.changed:
                leader.is_busy = False
                for queue in queues:
                    queue.is_sending = False
                self._is_stale = self._is_stale or has_moved
                self.queues.wake()

"""
The thread that sends the batches of all partitions, by a :class:`~.lane.Lane` to each leader.

The thread alone decides: it gives each idle lane the first batches of its partitions as lots of the mirror's
sender (:mod:`..send`), and takes the lane's answer. So nothing more of a partition is sent while a lane has
it, and all rules about a batch are in :mod:`.outcomes`.

If a leader accepts several batches of a partition in one request (:mod:`..multi_batch`), raw batches share a
request. Such a leader compares sequences with its log end: so the first sequence of a partition is that.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ...errors import DeliveryTimedOut, Disconnected, ProtocolError, ShoalError
from ..admin import init_producer_id
from ..backoff import Backoff
from ..cluster import Cluster, is_transient
from ..lot import Limits, Lot, Sent
from ..offsets import log_end_offsets
from .batches import SEQUENCES, PendingBatch
from .lane import Answer, Lane
from .outcomes import Outcomes
from .queues import PartitionQueue, Queues
from .settings import ProducerSettings
from .topics import REFRESH_PAUSE_S, WantedTopics

__all__ = ["Sender"]

#: The longest time without a look at the queues.
_LONGEST_WAIT_S = 10.0

#: The most bytes of a partition in a request with several batches, and in a lot.
_MOST_OF_REQUEST = 1024 * 1024
_MOST_OF_LOT = 4 * 1024 * 1024

#: A leader may forget a producer without a newer batch: half of the default of producer.id.expiration.ms.
_REMEMBERED_MS = 12 * 3600 * 1000

#: The limit of the wait for a thread at the end.
_END_PATIENCE_S = 10.0


class _Delivery(NamedTuple):
    """The batches of a partition that a lane has, and their lot."""

    queue: PartitionQueue
    batches: Sequence[PendingBatch]
    lot: Lot


class _Leader(NamedTuple):
    """A leader, and whether a request to it may have several batches of a partition."""

    node_id: int
    takes_several: bool


class Sender:
    """
    Sends the batches of queues.

    Attributes:
        queues: The queues, which other threads fill.
        failure: The error after which the producer cannot send; None before.

    """

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self.queues = Queues(settings)
        self._cluster = Cluster(settings.client)
        self._topics = WantedTopics(self._cluster, self.queues, settings.metadata_max_age_ms / 1000)
        self._outcomes = Outcomes(self._cluster, settings.retries)
        self._lanes: dict[_Leader, Lane] = {}
        self._under_way: dict[_Leader, Sequence[_Delivery]] = {}
        self._answers: deque[tuple[_Leader, Answer]] = deque()
        self._producer_id: int | None = None
        self._identify_at = 0.0
        self._identify_backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._must_stop = False
        self.failure: ShoalError | None = None
        self._thread = threading.Thread(target=self._run, name="shoal-producer", daemon=True)

    # For other threads

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, reason: Callable[[PendingBatch], ShoalError]) -> None:
        """Stop sending, fail the remaining batches, and close all connections."""
        with self.queues.changed:
            self._must_stop = self.queues.is_closed = True
            self.queues.wake()
        self._thread.join(_END_PATIENCE_S)
        self._fail_all(reason)

    def partitions_of(self, topic: str, partition: int, timeout_s: float) -> int | None:
        """See :meth:`.WantedTopics.partitions_of`."""
        return self._topics.partitions_of(
            topic,
            partition,
            timeout_s,
            has_ended=lambda: self.failure or self._must_stop,
            sender=self._thread,
        )

    # The thread

    def _run(self) -> None:
        try:
            while not self._must_stop:
                now = time.monotonic()
                self._topics.refresh(now)
                self._expire(now)
                self._dispatch(now)
                self._settle()
                self._wait()
                while self._answers:
                    self._take(*self._answers.popleft())
                self._outcomes.look_up()
                self._settle()
        except ShoalError as error:
            self._give_up(error)
        except Exception as error:
            self._give_up(ProtocolError(f"the producer's thread failed: {error!r}"))
            raise
        finally:
            self._end()

    def _end(self) -> None:
        for lane in self._lanes.values():
            lane.stop()
        for lane in self._lanes.values():
            lane.join(_END_PATIENCE_S)
        for delivery in (each for deliveries in self._under_way.values() for each in deliveries):
            for batch in delivery.batches:
                batch.is_in_doubt = True
        self._cluster.close()

    def _give_up(self, error: ShoalError) -> None:
        with self.queues.changed:
            self.failure = error
            self.queues.is_closed = True
        self._fail_all(lambda _: error)

    def _fail_all(self, reason: Callable[[PendingBatch], ShoalError]) -> None:
        for batch in self.queues.take_all():
            self.queues.settle(batch, partial(batch.fail, reason(batch)))

    def _settle(self) -> None:
        """Complete futures without the lock, since their callbacks may call the producer."""
        finished, self._outcomes.finished = self._outcomes.finished, []
        for batch, complete in finished:
            self.queues.settle(batch, complete)

    def _wait(self) -> None:
        queues = self.queues
        with queues.changed:
            queues.changed.wait_for(
                lambda: queues.has_news or self._answers or self._must_stop, self._until_due()
            )
            queues.has_news = False

    def _until_due(self) -> float:
        """Return the seconds until the next action, other than an answer; the caller holds the lock."""
        now = time.monotonic()
        due = [now + _LONGEST_WAIT_S, self._topics.look_at]
        if self._topics.is_stale:
            due.append(self._topics.refresh_at)
        for queue in self.queues:
            if queue.has_work:
                due.append(queue.oldest_at + self._settings.delivery_timeout_ms / 1000)
                if queue.retry_at > now:
                    due.append(queue.retry_at)
        return max(0.0, min(due) - now)

    def _expire(self, now: float) -> None:
        """Fail batches after ``delivery.timeout.ms``, unless a lane has them."""
        timeout_ms = self._settings.delivery_timeout_ms
        with self.queues.changed:
            for queue in self.queues:
                # The oldest batches are first.
                while queue.has_work and now - queue.oldest_at > timeout_ms / 1000:
                    self.queues.close_open(queue)
                    batch = queue.batches[0]
                    error = DeliveryTimedOut(*queue.partition, timeout_ms, is_in_doubt=batch.is_in_doubt)
                    self._outcomes.fail(queue, batch, error)

    # Sending

    def _dispatch(self, now: float) -> None:
        """Give each idle lane the batches of its partitions."""
        by_leader: dict[_Leader, list[PartitionQueue]] = {}
        with self.queues.changed:
            for queue in self.queues:
                if queue.has_work and queue.retry_at <= now:
                    leader = self._leader_of(queue)
                    if leader is None:
                        queue.retry_at = now + REFRESH_PAUSE_S
                    elif leader not in self._under_way:
                        by_leader.setdefault(leader, []).append(queue)
        for leader, queues in by_leader.items():
            if leader not in self._lanes:
                on_answer = partial(self._keep, leader)
                self._lanes[leader] = Lane(
                    self._settings.client, leader.node_id, is_marked=leader.takes_several, on_answer=on_answer
                )
            if leader.takes_several:
                queues = self._ask_for_several(leader, queues)
            self._identify(queues, now)
            self._give(leader, queues)

    def _leader_of(self, queue: PartitionQueue) -> _Leader | None:
        node_id = self._topics.leader_of(queue.partition)
        if node_id is None:
            return None
        return _Leader(node_id, self._settings.send_raw_bytes and queue.takes_several is not False)

    def _ask_for_several(self, leader: _Leader, queues: Sequence[PartitionQueue]) -> list[PartitionQueue]:
        """Return the partitions of which a request may have several batches; none until a leader answers."""
        lane = self._lanes[leader]
        unknown = {
            each.partition.topic: each.partition
            for each in queues
            if each.partition.topic not in lane.takes_several
        }
        if unknown:
            self._under_way[leader] = ()
            lane.ask(self._cluster.metadata, list(unknown.values()))
            return []
        for queue in queues:
            if not lane.takes_several[queue.partition.topic]:
                queue.takes_several, self.queues.has_news = False, True  # the other lane has it from now on
        return [each for each in queues if each.takes_several is not False]

    def _identify(self, queues: Sequence[PartitionQueue], now: float) -> None:
        """Give new partitions their producer id and their first sequence."""
        new = [each for each in queues if each.producer_id is None]
        if not new:
            return
        if self._producer_id is None:
            self._producer_id = self._new_producer_id(now)
        if self._producer_id is None:
            for queue in new:
                queue.retry_at = self._identify_at
            return
        several = [each for each in new if self._settings.send_raw_bytes and each.takes_several is not False]
        ends = log_end_offsets(self._cluster, [each.partition for each in several]) if several else {}
        for queue in new:
            end = ends.get(queue.partition, 0)
            if isinstance(end, ShoalError):
                self._topics.is_stale = True
                queue.put_off()
                continue
            queue.producer_id, queue.next_offset, queue.next_sequence = (
                self._producer_id,
                end,
                end % SEQUENCES,
            )
            queue.takes_several = queue.partition in ends

    def _new_producer_id(self, now: float) -> int | None:
        if now < self._identify_at:
            return None
        try:
            producer_id, _ = init_producer_id(self._cluster)
        except ShoalError as error:
            if not is_transient(error):
                raise
            self._identify_at = now + self._identify_backoff.next_delay_s()
            return None
        self._identify_backoff.reset()
        return producer_id

    def _give(self, leader: _Leader, queues: Sequence[PartitionQueue]) -> None:
        with self.queues.changed:
            deliveries = [self._delivery(each) for each in queues if each.producer_id is not None]
        if not deliveries:
            return
        self._under_way[leader] = deliveries
        limits = Limits(
            int(time.time() * 1000) - _REMEMBERED_MS,
            self._settings.max_request_size,
            self._settings.max_in_flight,
            self._settings.client.request_timeout_ms,
        )
        self._lanes[leader].send(self._cluster.metadata, [each.lot for each in deliveries], limits)

    def _delivery(self, queue: PartitionQueue) -> _Delivery:
        """Take the first batches of a partition for a lane; the caller holds the lock."""
        assert queue.producer_id is not None
        if not queue.holds_open:
            self.queues.close_open(queue)
        size = 0
        batches: list[PendingBatch] = []
        for batch in queue.batches:
            size += batch.size
            if batches and size > _MOST_OF_LOT:
                break
            batches.append(batch)
        offset = queue.next_offset
        for batch in batches:
            if batch.sequence is None:
                batch.sequence = queue.next_sequence
                queue.next_sequence = (queue.next_sequence + batch.count) % SEQUENCES
                batch.landing = offset if queue.takes_several else None
            offset += batch.count
            batch.stamp(queue.producer_id, queue.epoch)
        queue.is_sending = True
        lot = Lot(
            queue.partition,
            [batch.batch.view for batch in batches],
            b"".join(batch.entry for batch in batches),
            queue.next_offset,
            queue.newest_ms,
            together_bytes=_MOST_OF_REQUEST if queue.takes_several else 0,
            lands_later=not queue.takes_several,
        )
        return _Delivery(queue, batches, lot)

    # Answers

    def _keep(self, leader: _Leader, answer: Answer) -> None:
        """Keep a lane's answer; runs in the lane's thread."""
        with self.queues.changed:
            self._answers.append((leader, answer))
            self.queues.changed.notify_all()

    def _take(self, leader: _Leader, answer: Answer) -> None:
        deliveries = self._under_way.pop(leader)
        if isinstance(answer, Exception) and not isinstance(answer, (Disconnected, ProtocolError)):
            raise answer
        with self.queues.changed:
            self.queues.has_news = True
            if not deliveries:
                self._put_off_without_answer(leader)
            for place, (queue, batches, lot) in enumerate(deliveries):
                queue.is_sending = False
                if isinstance(answer, Sent):
                    has_moved = self._outcomes.take(queue, batches, lot, answer, place)
                else:
                    assert isinstance(answer, ShoalError)
                    self._outcomes.disconnect(queue, batches, answer)
                    has_moved = True
                self._topics.is_stale = self._topics.is_stale or has_moved

    def _put_off_without_answer(self, leader: _Leader) -> None:
        """Pause with the topics for which a leader does not say yet whether it takes several batches."""
        known = self._lanes[leader].takes_several
        for queue in self.queues:
            if queue.has_work and queue.partition.topic not in known and self._leader_of(queue) == leader:
                self._topics.is_stale = True
                queue.put_off()

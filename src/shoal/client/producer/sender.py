"""
The thread that sends to all leaders, with several requests in flight to each.

The thread sends the batches of each queue of the :mod:`.accumulator` in order, and passes the responses to
:mod:`.outcomes`. If a broker may not know the producer, its first request is alone in flight. If a request
has failed, the partition waits until all of its requests have a response.

If the leader accepts several batches of a partition in one request (:mod:`..multi_batch`), raw batches share
a request. Such a leader compares sequences with its log end. So the partition receives its own producer id,
whose first sequence is the log end.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ...errors import BrokerError, DeliveryTimedOut, Disconnected, ProtocolError, ShoalError
from ...topic_partition import TopicPartition
from ..admin import init_producer_id
from ..backoff import Backoff
from ..cluster import Cluster, is_transient
from ..connection import Connection
from ..multi_batch import marked
from ..offsets import log_end_offsets
from ..produce import NO_ACKS, ProduceConnection
from ..wakeup import Wakeup, wait_for_answers
from .accumulator import Accumulator, PartitionQueue, ProducerState
from .batches import OrdinaryBatch, PendingBatch
from .outcomes import Finished, Outcomes, failing
from .settings import ProducerSettings

__all__ = ["Sender"]

_SEQUENCES = 2**31

#: The shortest time between two Metadata requests.
_REFRESH_PAUSE_S = 0.1

#: The time without a write after which a broker may have forgotten the producer.
_FRESH_AFTER_S = 600.0

#: The most bytes of a partition in a request with several batches.
_MOST_OF_PARTITION = 1024 * 1024

#: The limit of a connection attempt, during which the other leaders wait.
_CONNECT_PATIENCE_S = 10.0


@dataclass(slots=True, eq=False)
class _Request:
    """
    A Produce request in flight.

    Attributes:
        sent_at: The time of the request, by the monotonic clock.
        created_at: The creation of its oldest batch, by the same clock.
    """

    sent_at: float
    batches: Mapping[TopicPartition, Sequence[PendingBatch]]
    created_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.created_at = min(batches[0].created_at for batches in self.batches.values())


@dataclass(slots=True, eq=False)
class _Link:
    """A connection to a leader; requests with several batches of a partition have their own."""

    producer: ProduceConnection
    requests: deque[_Request] = field(default_factory=deque)


class Sender:
    """
    Sends the batches of an accumulator.

    Attributes:
        accumulator: The queues, which other threads fill.
        failure: The error after which the producer cannot send; None before.

    """

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._wakeup = Wakeup()
        self.accumulator = Accumulator(settings, self._wakeup.wake)
        self._cluster = Cluster(settings.client)
        self._outcomes = Outcomes(
            settings,
            self.accumulator,
            str(self._cluster),
            on_moved=self._look_again,
            on_used_up=self._forget_producer_id,
        )
        self._links: dict[tuple[int, bool], _Link] = {}
        self._topics: set[str] = set()
        self._counts: dict[str, int] = {}
        self._refusals: dict[str, BrokerError] = {}
        self._looks = 0
        self._is_stale = False
        self._refresh_at = 0.0
        self._look_at = time.monotonic() + settings.metadata_max_age_ms / 1000
        self._connect_at: dict[int, float] = {}
        self._connect_backoffs: dict[int, Backoff] = {}
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
        with self.accumulator.changed:
            self._must_stop = self.accumulator.is_closed = True
            self.accumulator.changed.notify_all()
        self._wakeup.wake()
        self._thread.join(_CONNECT_PATIENCE_S)
        self._fail_all(reason)

    def partitions_of(self, topic: str, partition: int, timeout_s: float) -> int | None:
        """
        Wait for a topic, and return its number of partitions; None after the timeout.

        Args:
            partition: The required partition. If the topic has fewer, the metadata are requested once more.
            timeout_s: The limit of both requests.

        Raises:
            BrokerError: This principal may not describe the topic.

        """
        changed = self.accumulator.changed
        with changed:
            # In a future's callback, the sending thread cannot wait for itself.
            is_ours = threading.current_thread() is self._thread
            if partition < self._counts.get(topic, 0) or (is_ours and topic in self._counts):
                return self._counts[topic]
            self._topics.add(topic)
            self._refusals.pop(topic, None)
            looks = self._looks
            self._is_stale = True
            self._wakeup.wake()
            changed.wait_for(
                lambda: (
                    (topic in self._counts and self._looks > looks)
                    or topic in self._refusals
                    or self.failure
                    or self._must_stop
                ),
                timeout_s,
            )
            if topic not in self._counts:
                self._topics.discard(topic)  # no thread waits for it any longer
            if topic in self._refusals:
                raise self._refusals[topic]
            return self._counts.get(topic)

    # The thread

    def _run(self) -> None:
        try:
            while not self._must_stop:
                now = time.monotonic()
                self._refresh(now)
                self._expire(now)
                self._send_ready(now)
                links = {link.producer.connection: key for key, link in self._links.items()}
                for connection in wait_for_answers(links, self._wakeup, self._until_due()):
                    self._receive(links[connection], connection)
                self._close_overdue(time.monotonic())
        except ShoalError as error:
            self._give_up(error)
        except Exception as error:
            self._give_up(ProtocolError(f"the producer's thread failed: {error!r}"))
            raise
        finally:
            for key in list(self._links):
                self._links.pop(key).producer.close()
            self._cluster.close()
            self._wakeup.close()

    def _give_up(self, error: ShoalError) -> None:
        with self.accumulator.changed:
            self.failure = error
            self.accumulator.is_closed = True
        self._fail_all(lambda _: error)

    def _fail_all(self, reason: Callable[[PendingBatch], ShoalError]) -> None:
        with self.accumulator.changed:
            batches = self.accumulator.take_all()
        self._settle([(batch, failing(batch, reason(batch))) for batch in batches])

    def _settle(self, finished: Finished) -> None:
        """Complete futures without the lock, since their callbacks may call the producer."""
        for _, tell in finished:
            tell()
        with self.accumulator.changed:
            for batch, _ in finished:
                self.accumulator.done(batch)
            self.accumulator.changed.notify_all()

    def _until_due(self) -> float:
        """Return the seconds until the next action, other than a response."""
        now = time.monotonic()
        due = [now + 10.0]
        timeout_s = self._settings.client.request_timeout_s
        due += [link.requests[0].sent_at + timeout_s for link in self._links.values() if link.requests]
        if self._is_stale:
            due.append(self._refresh_at)
        with self.accumulator.changed:
            for queue in self.accumulator.queues.values():
                due += [
                    batches[0].created_at + self._settings.delivery_timeout_ms / 1000
                    for batches in (queue.sent, queue.waiting)
                    if batches
                ]
                if queue.waiting and not queue.is_draining and self._may_go(queue):
                    ready_at = self.accumulator.ready_at(queue.waiting[0])
                    due.append(max(ready_at, queue.retry_at, self._connectable_at(queue)))
        return max(0.0, min(due) - now)

    def _may_go(self, queue: PartitionQueue) -> bool:
        """Return whether a partition may send before the responses to its earlier requests."""
        if queue.outstanding and (self._is_alone(queue) or self._is_about_to_ask(queue)):
            return False
        link = self._link_of(queue)
        return link is None or len(link.requests) < self._settings.max_in_flight

    def _is_alone(self, queue: PartitionQueue) -> bool:
        return queue.identity is not None and queue.identity.is_fresh

    def _is_about_to_ask(self, queue: PartitionQueue) -> bool:
        """
        Return whether the leader must be asked about several batches when nothing is in flight.

        A producer that always has requests in flight would never ask otherwise. It asks once: an unclear
        answer must not stop the requests again and again.
        """
        if (
            queue.takes_multi_batch is not None
            or queue.was_asked_for_multi_batch
            or not self._settings.multi_batch
        ):
            return False
        leader = self._leader_of(queue)
        asked = None if leader is None else self._links.get((leader, True))
        return (asked is None or not asked.requests) and self._has_several_new(queue)

    @staticmethod
    def _has_several_new(queue: PartitionQueue) -> bool:
        """Return whether two unsent batches wait, which could begin at the log end."""
        first_two = list(itertools.islice(queue.waiting, 2))
        return len(first_two) == 2 and all(batch.sequence is None for batch in first_two)

    def _leader_of(self, queue: PartitionQueue) -> int | None:
        try:
            return self._cluster.partition(queue.partition).leader if self._cluster.known else None
        except ShoalError:
            return None

    def _link_of(self, queue: PartitionQueue) -> _Link | None:
        leader = self._leader_of(queue)
        return None if leader is None else self._links.get((leader, bool(queue.takes_multi_batch)))

    def _connectable_at(self, queue: PartitionQueue) -> float:
        leader = self._leader_of(queue)
        if leader is None:
            return self._refresh_at
        wants_identity = self._settings.enable_idempotence and queue.identity is None
        return max(self._connect_at.get(leader, 0.0), self._identify_at if wants_identity else 0.0)

    # Metadata

    def _look_again(self) -> None:
        self._is_stale = True

    def _refresh(self, now: float) -> None:
        if now < self._refresh_at or not (self._is_stale or now >= self._look_at):
            return
        self._refresh_at = now + _REFRESH_PAUSE_S
        self._look_at = now + self._settings.metadata_max_age_ms / 1000
        with self.accumulator.changed:
            topics = set(self._topics)
        with suppress(Disconnected):
            metadata = self._cluster.refresh(topics)
            known = {name: len(metadata.topics[name].partitions) for name in topics & metadata.topics.keys()}
            with self.accumulator.changed:
                self._looks += 1
                self._counts.update((name, count) for name, count in known.items() if count)
                for name, code in metadata.errors.items():
                    error = BrokerError(code, f"topic {name!r} on {self._cluster}")
                    if name in topics and not error.retriable:
                        self._refusals[name] = error
                self._is_stale = bool(self._topics - self._counts.keys())
                self.accumulator.changed.notify_all()

    # Sending

    def _send_ready(self, now: float) -> None:
        """Send requests to the leaders until none has both waiting batches and room."""
        while True:
            by_link: dict[tuple[int, bool], list[PartitionQueue]] = {}
            for queue in self._sendable(now):
                self._look_for_several(queue, now)
                leader = self._leader_of(queue)
                if leader is None:
                    self._is_stale = True
                    queue.retry_at = now + _REFRESH_PAUSE_S
                elif self._identify(queue, now):
                    by_link.setdefault((leader, bool(queue.takes_multi_batch)), []).append(queue)
            sent = [self._send_to(key, queues, now) for key, queues in by_link.items()]
            if not any(sent):
                return

    def _sendable(self, now: float) -> list[PartitionQueue]:
        with self.accumulator.changed:
            queues = [
                queue
                for queue in self.accumulator.queues.values()
                if queue.waiting
                and not queue.is_draining
                and queue.retry_at <= now
                and self._may_go(queue)
                and self._connectable_at(queue) <= now
                and self.accumulator.is_ready(queue.waiting[0], now)
            ]
            for queue in queues:
                # In turns: the partitions of this request come last the next time.
                self.accumulator.queues[queue.partition] = self.accumulator.queues.pop(queue.partition)
        return queues

    def _identify(self, queue: PartitionQueue, now: float) -> bool:
        """Give a partition its producer id; return whether it has one."""
        if not self._settings.enable_idempotence or queue.identity is not None:
            if queue.identity is not None and not queue.outstanding and now - queue.acked_at > _FRESH_AFTER_S:
                queue.identity.is_fresh = True
            return True
        if self._producer_id is None:
            self._producer_id = self._new_producer_id(now)
        if self._producer_id is None:
            return False
        queue.identity = ProducerState(self._producer_id)
        return True

    def _forget_producer_id(self) -> None:
        self._producer_id = None

    def _new_producer_id(self, now: float) -> int | None:
        try:
            producer_id, _ = init_producer_id(self._cluster)
        except ShoalError as error:
            if not is_transient(error):
                raise
            self._identify_at = now + self._identify_backoff.next_delay_s()
            return None
        self._identify_backoff.reset()
        return producer_id

    def _send_to(self, key: tuple[int, bool], queues: Sequence[PartitionQueue], now: float) -> bool:
        # A leader for several batches is asked first, if there is a connection to it.
        link = self._links.get(key) or (None if key[1] else self._connect(*key, now))
        if link is None or len(link.requests) >= self._settings.max_in_flight:
            return False
        request: dict[TopicPartition, list[PendingBatch]] = {}
        parts: dict[TopicPartition, list[memoryview]] = {}
        room = self._settings.max_request_size
        with self.accumulator.changed:
            for queue in queues:
                taken = self._take(queue, now, room if request else None)
                if taken:
                    request[queue.partition] = taken
                    room -= sum(batch.size for batch in taken)
                if room <= 0:
                    break
        for queue in queues:
            if queue.partition in request:
                parts[queue.partition] = self._stamp(queue, request[queue.partition])
        if not request:
            return False
        try:
            link.producer.send(parts)
        except (Disconnected, ProtocolError) as error:
            link.requests.append(_Request(now, request))
            self._disconnected(key, error)
            return True
        if self._settings.acks == NO_ACKS:
            self._finish_unanswered(request)
        else:
            link.requests.append(_Request(now, request))
        return True

    def _take(self, queue: PartitionQueue, now: float, room: int | None) -> list[PendingBatch]:
        """Move the batches of one request from waiting to sent; the caller holds the lock."""
        taken: list[PendingBatch] = []
        size = 0
        while queue.waiting and self.accumulator.is_ready(queue.waiting[0], now):
            batch = queue.waiting[0]
            if isinstance(batch, OrdinaryBatch):
                batch.write()
            size += batch.size
            if room is not None and size > room:
                break
            if taken and (not queue.takes_multi_batch or size > _MOST_OF_PARTITION):
                break
            taken.append(queue.waiting.popleft())
            batch.attempts += 1
            queue.sent.append(batch)
        queue.outstanding += bool(taken)
        return taken

    def _stamp(self, queue: PartitionQueue, batches: Sequence[PendingBatch]) -> list[memoryview]:
        views: list[memoryview] = []
        identity = queue.identity
        for batch in batches:
            if identity is None:
                views += batch.stamped(-1, -1, -1)
                continue
            if batch.sequence is None:
                batch.sequence, batch.landing = identity.next_sequence, identity.next_offset
                if identity.next_offset is not None:
                    identity.next_offset += batch.count
                identity.next_sequence = (identity.next_sequence + batch.count) % _SEQUENCES
            views += batch.stamped(identity.producer_id, identity.epoch, batch.sequence)
        return views

    def _connect(self, node_id: int, multi_batch: bool, now: float) -> _Link | None:
        settings = self._settings
        client_id = marked(settings.client.client_id) if multi_batch else None
        timeout_s = min(_CONNECT_PATIENCE_S, settings.client.request_timeout_s)
        backoff = self._connect_backoffs.setdefault(
            node_id, Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        )
        try:
            connection = self._cluster.connect(node_id, client_id=client_id, timeout_s=timeout_s)
            producer = ProduceConnection(
                connection, timeout_ms=settings.client.request_timeout_ms, acks=settings.acks
            )
        except (Disconnected, ProtocolError):
            self._is_stale = True
            self._connect_at[node_id] = now + backoff.next_delay_s()
            return None
        backoff.reset()
        link = self._links[node_id, multi_batch] = _Link(producer)
        return link

    # Several batches in a request

    def _look_for_several(self, queue: PartitionQueue, now: float) -> None:
        """If several batches wait, ask whether the leader accepts them in one request."""
        if not self._settings.multi_batch or queue.takes_multi_batch is False or queue.outstanding:
            return
        leader = self._leader_of(queue)
        if leader is None or (queue.takes_multi_batch and (leader, True) in self._links):
            return
        is_begun = bool(queue.takes_multi_batch)
        with self.accumulator.changed:
            if not is_begun and not self._has_several_new(queue):
                return
        link = self._links.get((leader, True)) or self._connect(leader, True, now)
        if link is None or link.requests:
            return
        queue.was_asked_for_multi_batch = True
        try:
            takes = link.producer.takes_multi_batch([queue.partition]).get(queue.partition)
        except (Disconnected, ProtocolError) as error:
            self._disconnected((leader, True), error)
            return
        if takes is None:
            return  # the leader may have moved; asked again with the next batch
        if takes and not is_begun:
            takes = self._begin_at_log_end(queue, now)
        queue.takes_multi_batch = takes

    def _begin_at_log_end(self, queue: PartitionQueue, now: float) -> bool | None:
        """Give a partition a producer id whose sequences are offsets, with nothing in flight."""
        producer_id = self._new_producer_id(now)
        end = log_end_offsets(self._cluster, [queue.partition])[queue.partition]
        if producer_id is None or isinstance(end, ShoalError):
            return None
        queue.identity = ProducerState(producer_id, next_sequence=end % _SEQUENCES, next_offset=end)
        return True

    # Answers

    def _receive(self, key: tuple[int, bool], connection: Connection) -> None:
        link = self._links.get(key)
        if link is None or link.producer.connection is not connection:
            return
        if not link.requests:
            # No request is in flight: the broker closed an idle connection.
            self._links.pop(key).producer.close()
            return
        try:
            outcomes = link.producer.receive()
        except (Disconnected, ProtocolError) as error:
            self._disconnected(key, error)
            return
        request = link.requests.popleft()
        finished: Finished = []
        with self.accumulator.changed:
            for partition, batches in request.batches.items():
                queue = self.accumulator.queues[partition]
                queue.outstanding -= 1
                self._outcomes.take(queue, batches, outcomes[partition], finished)
                self._outcomes.send_again_when_drained(queue, finished)
        self._settle(finished)

    def _finish_unanswered(self, request: Mapping[TopicPartition, Sequence[PendingBatch]]) -> None:
        finished: Finished = []
        with self.accumulator.changed:
            for partition, batches in request.items():
                queue = self.accumulator.queues[partition]
                queue.outstanding -= 1
                for batch in batches:
                    self._outcomes.acknowledge(queue, batch, -1, -1, finished)
        self._settle(finished)

    def _disconnected(self, key: tuple[int, bool], error: ShoalError) -> None:
        """Mark all batches in flight on a connection as in doubt, and send them again."""
        link = self._links.pop(key)
        link.producer.close()
        self._is_stale = True
        node_id, _ = key
        backoff = self._connect_backoffs[node_id]
        self._connect_at[node_id] = time.monotonic() + backoff.next_delay_s()
        finished: Finished = []
        with self.accumulator.changed:
            for request in link.requests:
                for partition, batches in request.batches.items():
                    queue = self.accumulator.queues[partition]
                    queue.outstanding -= 1
                    queue.is_draining = True
                    for batch in batches:
                        batch.is_in_doubt = True
                        if not batch.is_decided and batch.attempts > self._settings.retries:
                            self._outcomes.fail(queue, batch, error, finished)
                    self._outcomes.send_again_when_drained(queue, finished)
        self._settle(finished)

    # Time

    def _expire(self, now: float) -> None:
        """Fail batches after ``delivery.timeout.ms``, unless they are in flight."""
        timeout_ms = self._settings.delivery_timeout_ms
        finished: Finished = []
        with self.accumulator.changed:
            for queue in self.accumulator.queues.values():
                # The oldest batches are first.
                while queue.waiting and now - queue.waiting[0].created_at > timeout_ms / 1000:
                    batch = queue.waiting[0]
                    in_doubt = batch.is_in_doubt
                    error = DeliveryTimedOut(*queue.partition, timeout_ms, is_in_doubt=in_doubt)
                    self._outcomes.fail(queue, batch, error, finished)
                if not (queue.waiting or queue.sent):
                    self._outcomes.give_up_unsure(queue, finished)
        self._settle(finished)

    def _close_overdue(self, now: float) -> None:
        """Close connections whose oldest request has no response in time."""
        request_s = self._settings.client.request_timeout_s
        delivery_s = self._settings.delivery_timeout_ms / 1000
        for key, link in list(self._links.items()):
            for request in link.requests:
                if now - request.sent_at > request_s or now - request.created_at > delivery_s:
                    where = str(link.producer.connection.address)
                    self._disconnected(key, Disconnected(where, "no answer in time"))
                    break

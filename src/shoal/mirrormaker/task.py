"""
One task whose records or batches pass through a handler: it consumes, handles, and produces.

The task uses the raw clients on both sides (KIP-712). A source record counts as mirrored once the destination
has acknowledged all outputs of the handler for it. The task commits the offset of the first record that does
not count yet, so all records arrive at least once. If the destination rejects an output, or the handler
raises an error, that is a failure to send. The failure stops the partition, or the task skips the record.
After a failure that stops the partition, the task handles and sends nothing more of it. It waits for the
outputs in flight, and commits the position behind them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from ..client.backoff import Backoff
from ..client.cluster import Cluster, is_transient, patiently
from ..client.committed_offsets import commit_offsets
from ..client.consumer import ConsumerRecord, RawConsumer, RawRecord
from ..client.consumer.settings import ConsumerSettings
from ..client.coordinator import JOIN_AGAIN
from ..client.offsets import LATEST, list_offsets
from ..client.producer import RawProducer, RecordMetadata
from ..client.producer.settings import ProducerSettings
from ..error_codes import ErrorCode
from ..errors import AccessRefused, BrokerError, BufferFull, LargerThanBuffer, ProtocolError, ShoalError
from ..mirroring.control import ControlConnection
from ..mirroring.model.copy_options import CopySettings, Handling
from ..mirroring.model.first_start import remembering
from ..mirroring.model.incidents import REFUSED_WRITERS, IncidentKind
from ..mirroring.model.reports import Assigned, Left, TaskReport
from ..mirroring.positions import POSITION_RETENTION_MS, GroupPositions
from ..mirroring.task.session import Interval, TaskSession
from ..records import Decision
from ..topic_partition import TopicPartition
from .destination_topics import DestinationTopics
from .handlers import (
    MirrorMakerMessageHandler,
    MirrorMakerRawBytesMessageHandler,
    ProducerRecord,
    load_handler,
)
from .partition import HandledPartition, PendingInput

__all__ = ["follow_documents"]

_POLL_S = 0.25

#: The time for which the producer may block the task, which must also commit and report.
_MAX_BLOCK_MS = 500

#: The interval at which the task requests the partitions' end offsets.
_ENDS_INTERVAL_S = 5.0

#: The time for acknowledgements at the end. The next task sends unacknowledged outputs again.
_FLUSH_S = 10.0

#: The time for the last commit.
_LAST_COMMIT_S = 5.0

#: The longest pause between two tries to send something.
_LONGEST_PAUSE_MS = 500


class _Ended(Exception):
    """The task has to end, and drops the record at hand."""


def follow_documents(settings: CopySettings, control: ControlConnection) -> None:
    """
    Mirror the partitions of the driver's documents through the settings' handler, until an end is requested.

    Each change of the partitions ends the task's clients in good order, and begins new ones.

    Raises:
        ConfigError: The handler cannot be made on this machine.
        ShoalError: A partition cannot be read, or the driver is gone. Everything acknowledged is committed.

    """
    assert settings.handling is not None
    handler = load_handler(settings.handling)
    session = TaskSession(control, settings.timing)
    session.report()
    news = threading.Event()
    control.on_document(news.set)
    had: dict[int, Assigned] = {}
    stopped: set[int] = set()
    try:
        while not control.stop_requested:
            control.raise_if_orphan()
            had |= {each.entry: each for each in control.take_new()}
            assigned = control.assignment
            _leave(session, [each for each in had.values() if each is not assigned.get(each.range.source)])
            had = {each.entry: each for each in assigned.values()}
            going = {each: known for each, known in assigned.items() if known.entry not in stopped}
            if going and session.may_produce:
                stops = _HandlerTask(going, assigned, settings, settings.handling, handler, control).run()
                stopped |= {assigned[each].entry for each in stops}
            else:
                session.show_life()
                news.wait(_POLL_S)
                news.clear()
    finally:
        with suppress(ShoalError):  # the driver may be gone; otherwise it waits until the lease is over
            _leave(session, had.values())


def _leave(session: TaskSession, ended: Collection[Assigned]) -> None:
    if ended:
        session.report(TaskReport(leaves={each.range.source: Left(each.entry) for each in ended}))


class _HandlerTask:
    def __init__(
        self,
        going: Mapping[TopicPartition, Assigned],
        assigned: Mapping[TopicPartition, Assigned],
        settings: CopySettings,
        handling: Handling,
        handler: MirrorMakerMessageHandler | MirrorMakerRawBytesMessageHandler,
        control: ControlConnection,
    ) -> None:
        self._settings = settings
        self._handling = handling
        self._control = control
        self._handler = handler
        self._session = TaskSession(control, settings.timing)
        #: The document; the task ends as soon as there is another one.
        self._assignment = assigned
        self._ranges = [each.range for each in going.values()]
        self._partitions: dict[TopicPartition, HandledPartition] = {}
        self._outcomes: queue.SimpleQueue[tuple[HandledPartition, PendingInput, int, Exception | None]] = (
            queue.SimpleQueue()
        )
        # The first commit is at once: if a partition starts at its end, it must start there after a crash.
        self._commit_interval = Interval(settings.timing.commit_interval_s)
        self._report_interval = Interval(settings.timing.report_interval_s)
        self._ends_interval = Interval(_ENDS_INTERVAL_S)
        self._looked_at = 0.0
        self._source = Cluster(settings.source.impatient())
        self._destination = Cluster(settings.destination)
        self._topics = DestinationTopics(self._source, self._destination, settings)
        #: The topics and partitions that the destination lacks, and since when.
        self._missing_since: dict[tuple[str, int | None], float] = {}
        self._producer: RawProducer

    def run(self) -> list[TopicPartition]:
        """Mirror until the document changes, the lease or the task ends; return what stopped."""
        with self._source, self._destination:
            self._find_positions()
            with RawConsumer(self._consumer_settings()) as consumer:
                consumer.assign(self._partitions)
                for each in self._partitions.values():
                    consumer.seek(each.source, each.position)
                self._producer = RawProducer(self._producer_settings())
                try:
                    with suppress(_Ended):
                        self._work(consumer)
                finally:
                    self._end()
        return [each.source for each in self._partitions.values() if each.stopped]

    def _consumer_settings(self) -> ConsumerSettings:
        read = ConsumerSettings.from_properties(
            {**self._handling.consumer, "bootstrap.servers": self._settings.source.servers}
        )
        return replace(
            read,
            client=self._settings.source,
            membership=None,
            enable_auto_commit=False,
            fetch_raw_bytes=self._handling.raw,
            max_decompressed_bytes=self._settings.max_decompressed_bytes,
        )

    def _producer_settings(self) -> ProducerSettings:
        read = ProducerSettings.from_properties(
            {**self._handling.producer, "bootstrap.servers": self._settings.destination.servers}
        )
        return replace(
            read,
            client=self._settings.destination,
            send_raw_bytes=self._handling.raw,
            max_block_ms=min(read.max_block_ms, _MAX_BLOCK_MS),
            sends_at_flush=True,
        )

    def _find_positions(self) -> None:
        group = GroupPositions(self._source, self._settings.group, self._control.membership)
        partitions = [each.source for each in self._ranges]
        state = patiently(
            lambda: group.read_state(partitions), patience_s=self._settings.timing.handler_patience_s
        )
        positions, others = state.positions, {**state.others, **state.starts}
        begins = {each.source: each.start_offset for each in self._ranges}
        begins |= others | {partition: position.source_offset for partition, position in positions.items()}
        skips_failures = self._settings.continues_after(IncidentKind.SEND_FAILURE)
        self._partitions = {
            each: HandledPartition(each, begins[each], skips_failures, committed=others.get(each))
            for each in partitions
        }

    # Working

    def _work(self, consumer: RawConsumer) -> None:
        while not all(each.stopped for each in self._partitions.values()):
            self._look_after()
            for record in consumer.poll(_POLL_S):
                if time.monotonic() - self._looked_at >= _POLL_S:
                    self._look_after()  # the handler may be slow, and the group may need these partitions
                    self._producer.flush(0.0)
                self._take(record)
            self._producer.flush(0.0)  # the outputs of one poll share batches
            for source, position in consumer.positions.items():
                self._partitions[source].go_over(position)  # control batches, and aborted or empty batches

    def _look_after(self) -> None:
        """Process acknowledgements, and commit and report if it is time; raises _Ended."""
        self._settle()
        if self._producer.failure is not None:
            raise self._producer.failure
        now = self._looked_at = time.monotonic()
        if self._commit_interval.has_passed(now):
            with suppress(ShoalError):  # the next commit covers this one
                self._commit()
        if self._ends_interval.has_passed(now):
            self._ask_for_ends()
        if self._report_interval.has_passed(now):
            self._report()
        if self._control.stop_requested or self._control.assignment is not self._assignment:
            raise _Ended
        try:
            self._control.check_lease()
        except BrokerError as error:
            # Another process may have the partitions by now. The task begins again at its positions.
            raise _Ended from error

    def _report(self) -> None:
        partitions = [report for each in self._partitions.values() if (report := each.report()) is not None]
        self._session.report(TaskReport(partitions))

    def _ask_for_ends(self) -> None:
        with suppress(ShoalError):
            # The only request of this task for the source's leaders.
            self._source.refresh({each.topic for each in self._partitions})
            level = self._settings.source.isolation_level
            for partition, end in list_offsets(
                self._source, dict.fromkeys(self._partitions, LATEST), level
            ).items():
                if isinstance(end, int):
                    self._partitions[partition].end_offset = end

    def _take(self, record: ConsumerRecord | RawRecord) -> None:
        partition = self._partitions[record.topic_partition]
        if partition.is_ending:
            return
        if isinstance(record, RawRecord):
            pending = PendingInput(record.base_offset, record.next_offset, record.record_count)
            decision, newest_ms = Decision.COPY, record.max_timestamp
        else:
            pending = PendingInput(record.offset, record.next_offset, 1)
            decision, newest_ms = Decision.JOIN, record.timestamp
        partition.take(pending, decision, newest_ms=newest_ms, size_bytes=_size(record))
        try:
            outputs = self._handle(record)
        except Exception as error:
            reason = f"the message handler {self._handling.handler} failed: {type(error).__name__}: {error}"
            partition.fail(pending, reason)
            return
        pending.left = len(outputs)
        for sent, output in enumerate(outputs):
            if partition.is_ending:
                pending.left -= len(outputs) - sent
                return
            self._send(partition, pending, output)

    def _handle(self, record: ConsumerRecord | RawRecord) -> Sequence[ProducerRecord | RawRecord]:
        # A list, since a handler may return a generator, which yields its outputs only once.
        handle: Callable[[Any], Iterable[ProducerRecord | RawRecord]] = self._handler.handle
        outputs = list(handle(record))
        wanted = RawRecord if self._handling.raw else ProducerRecord
        for each in outputs:
            if not isinstance(each, wanted):
                raise TypeError(f"handle() answered with a {type(each).__name__}, not a {wanted.__name__}")
        return outputs

    def _send(
        self, partition: HandledPartition, pending: PendingInput, output: ProducerRecord | RawRecord
    ) -> None:
        backoff = Backoff(longest_ms=_LONGEST_PAUSE_MS)
        while True:
            try:
                self._topics.make_ready(output, partition.source.topic)
                future = self._queue(output)
            except LargerThanBuffer as error:
                return partition.reject(pending, self._reason_against_output(error))
            except BufferFull:
                self._look_after()
            except Exception as error:
                if self._producer.failure is not None:
                    raise self._producer.failure from error
                # To skip records for an error of the connection or the login would skip all that follow.
                if isinstance(error, (AccessRefused, ProtocolError)) or _refuses_the_writer(error):
                    raise
                if not is_transient(error) or self._is_missing_too_long(output, error):
                    return partition.reject(pending, self._reason_against_output(error))
                self._topics.forget(output.topic)
                partition.waiting_for = str(error)
                self._look_after()
                self._control.wait(backoff.next_delay_s())
            else:
                partition.waiting_for = None
                self._missing_since.pop((output.topic, output.partition), None)
                return future.add_done_callback(
                    partial(self._acknowledged, partition, pending, _size(output))
                )

    def _is_missing_too_long(self, output: ProducerRecord | RawRecord, error: Exception) -> bool:
        """Return whether the destination has lacked the output's topic or partition for too long."""
        place = output.topic, output.partition
        if not isinstance(error, BrokerError) or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._missing_since.pop(place, None)  # a destination that does not answer may have it
            return False
        now = time.monotonic()
        since = self._missing_since.setdefault(place, now)
        return now - since >= self._settings.timing.handler_patience_s

    def _reason_against_output(self, error: Exception) -> str:
        """Return the reason why an output cannot be sent: the destination's error, or the handler's."""
        if isinstance(error, BrokerError):
            return str(error)
        said = str(error) if isinstance(error, ShoalError) else f"{type(error).__name__}: {error}"
        return f"an output of the message handler {self._handling.handler} cannot be sent: {said}"

    def _queue(self, output: ProducerRecord | RawRecord) -> Future[RecordMetadata]:
        if isinstance(output, RawRecord):
            return self._producer.send(output.topic, output)
        return self._producer.send(
            output.topic,
            output.value,
            key=output.key,
            partition=output.partition,
            headers=output.headers,
            timestamp_ms=None if output.timestamp < 0 else output.timestamp,
        )

    # Outcomes

    def _acknowledged(
        self, partition: HandledPartition, pending: PendingInput, size: int, future: Future[RecordMetadata]
    ) -> None:
        """Queue an outcome. Runs in the producer's thread."""
        error = future.exception()
        self._outcomes.put((partition, pending, size, error if isinstance(error, Exception) else None))

    def _settle(self) -> None:
        """Process the acknowledged and the failed outputs."""
        while not self._outcomes.empty():
            partition, pending, size, error = self._outcomes.get()
            if error is not None and error is self._producer.failure:
                continue  # the next task sends the output again
            if error is not None:
                partition.reject(pending, str(error), stops=_refuses_the_writer(error))
            else:
                partition.acknowledge(pending, size)
        for partition in self._partitions.values():
            partition.advance()

    def _commit(self) -> None:
        wanted = {
            each.source: each.position
            for each in self._partitions.values()
            if each.position != each.committed
        }
        if not wanted:
            return
        first_start = self._settings.first_start
        refused = commit_offsets(
            self._source,
            self._settings.group,
            {partition: remembering(offset, first_start) for partition, offset in wanted.items()},
            self._control.membership(),
            retention_ms=POSITION_RETENTION_MS,
        )
        for partition, offset in wanted.items():
            if partition not in refused:
                self._partitions[partition].committed = offset
        for error in refused.values():
            raise error

    def _end(self) -> None:
        """Wait for the outputs in flight, commit the positions, and report them."""
        still_ours = self._session.may_produce
        self._producer.flush(_FLUSH_S if still_ours else 0.0)
        self._settle()  # later failures are those of closing the producer
        self._producer.close(0.0)
        if still_ours:
            try:
                patiently(self._commit, patience_s=_LAST_COMMIT_S)
            except ShoalError as error:
                is_lost = isinstance(error, BrokerError) and error.code in JOIN_AGAIN
                if not is_lost and not is_transient(error):
                    raise
                # The next task sends the records since the last commit again.
        self._report()


def _refuses_the_writer(error: Exception) -> bool:
    return isinstance(error, BrokerError) and error.code in REFUSED_WRITERS


def _size(record: ConsumerRecord | RawRecord | ProducerRecord) -> int:
    return len(record.value or b"") + len(record.key or b"")

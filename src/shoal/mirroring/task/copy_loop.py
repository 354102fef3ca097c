"""
The copy loop: from one source leader to one destination leader.

A fetch brings record sets of many partitions; their batches are stamped where
they lie in the buffer and go out as views of it, many partitions together,
several requests in flight. A stock broker takes one batch of a partition in a
request. Whether this one takes several is asked when there are several to
send, and anew on each connection (``client/multi_batch.py``). The next fetch
is already asked for. Before the buffer is used again, everything in it is
acknowledged or given up.

A turn of the loop looks at the partitions that an answer brought something
for, and at those that wait, never at all: most of a thousand may be idle.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...client.cluster import Cluster
from ...client.config import IsolationLevel
from ...client.fetch import Fetcher, FetchFrom
from ...client.produce import ProduceConnection
from ...client.scan import is_gap
from ...error_codes import ErrorCode, named_code
from ...errors import ProtocolError
from ...protocol.fetch import FetchedPartition, FetchResponse
from ...protocol.produce import ProduceOutcome
from ...records import has_several
from ...topic_partition import TopicPartition
from ..control import WorkerControl
from ..model.copy_options import CopyOptions, MultiBatch
from ..model.incidents import REFUSED_WRITERS, Delivery, Incident, IncidentKind
from .outbound import OutboundBatch
from .partition import PartitionCopy

__all__ = ["FETCH_MAX_WAIT_MS", "CopyLoop"]

#: With small batches a system call costs more than their bytes: several requests
#: go out together when so few are left that the broker could run out of work.
_REFILL_AT = 2

#: One request's batches; brokers refuse requests of more than 100 MiB (socket.request.max.bytes).
_REQUEST_BYTES = 8 * 1024 * 1024

FETCH_MAX_WAIT_MS = 500

#: After so long without a fetch, or without a request to a topic by name, a topic may have been deleted and
#: created again. A fetch without data is answered in half a second.
_PAUSE_S = 1.0

#: What the destination's brokers know of a producer id is checked every
#: 10 minutes (producer.id.expiration.check.interval.ms) and may be forgotten
#: at once by a restart; clocks differ too, by what `control.clock` could not find out.
_FORGETTING_MARGIN_MS = 30 * 60 * 1000

#: The broker refused before it wrote anything: ask for the leader, then for the log end, and send again.
_NOT_WRITTEN = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
#: The broker may have written it.
_PERHAPS_WRITTEN = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NETWORK_EXCEPTION}
)
#: The bytes may have been damaged on their way: worth a second fetch.
_BYTES_REFUSED = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD})
#: Once may be our own doing (a lost acknowledgement): the log end decides. Again is somebody else's.
_SEQUENCE_REFUSED = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    }
)

#: A broker that gives no reason, perhaps for a passing one, is tried again for so long. The outcome is
#: unknown each time; a batch that the broker never takes must stop its partition in the end.
_UNEXPLAINED_PATIENCE_S = 60.0

#: A batch that was decoded may be cut into smaller ones.
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

#: Of several batches in a request, it may be any one that is meant.
_ABOUT_ONE_BATCH = _BYTES_REFUSED | {
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}

_WHAT_TO_DO = {
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the destination topic",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise segment.bytes of the destination topic",
    ErrorCode.INVALID_TIMESTAMP: (
        "widen message.timestamp.before.max.ms and message.timestamp.after.max.ms of the destination topic"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "allow WRITE on the destination topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "allow IDEMPOTENT_WRITE on the destination cluster",
    ErrorCode.INVALID_PRODUCER_EPOCH: "look for another mirror that writes to this partition",
}


class CopyLoop:
    """
    Copies partitions that share a source leader and a destination leader.

    :meth:`run` returns when each of them is done, stopped, or has left: one
    that fails leaves at once, and finds its way back by being resumed.

    """

    def __init__(
        self,
        copies: Sequence[PartitionCopy],
        fetcher: Fetcher,
        connect: Callable[[bool], ProduceConnection],
        *,
        marked: bool,
        source: Cluster,
        destination: Cluster,
        settings: CopyOptions,
        control: WorkerControl,
        on_progress: Callable[[int], None],
        should_yield: Callable[[], bool],
        look_at_topics: Callable[[], None],
        look_at_destination: Callable[[Sequence[PartitionCopy]], None],
    ) -> None:
        """
        Args:
            copies: Aligned partitions.
            fetcher: On a connection to their source leader.
            connect: Opens a connection to their destination leader; closed by :meth:`close`. It is told
                whether to ask there for several batches (:func:`~shoal.client.multi_batch.marked`).
            marked: How to connect at first. Only where the sequence of each partition is its offset.
            source: For what the leader's errors mean.
            destination: For the leader epochs.
            settings: Of the mirror.
            control: Asked before each fetch and each request.
            on_progress: Called with the bytes that were fetched, each time
                that nothing is in flight and the pairs are up to date.
            should_yield: Whether others of the lane wait for their turn;
                asked before each fetch.
            look_at_topics: Compares the topics of both sides, as they are now, with those that the
                partitions are aligned with; a partition whose topic is another loses track.
            look_at_destination: The same for some partitions and at the destination alone.
        """
        self._copies = {copy.source: copy for copy in copies}
        self._by_destination = {copy.destination: copy for copy in copies}
        #: Partitions that may have to be asked for otherwise than before, in this order.
        self._changed = dict.fromkeys(copies)
        #: Aligned partitions that are not due.
        self._waiting: dict[PartitionCopy, None] = {}
        self._fetcher = fetcher
        self._connect = connect
        self._marked = marked
        self._producer = connect(marked)
        #: What the destination's leader answered on this connection, by topic.
        self._takes_several: dict[str, bool] = {}
        self._must_yield = False
        self._source = source
        self._destination = destination
        self._settings = settings
        self._control = control
        self._on_progress = on_progress
        self._should_yield = should_yield
        self._look_at_topics = look_at_topics
        self._look_at_destination = look_at_destination
        self._asked_at = 0.0
        #: When batches were sent last to the partitions of topics that are listed by name.
        self._sent_at: dict[PartitionCopy, float] = dict.fromkeys(copies, time.monotonic())
        self._remembered_for_ms = max(0, settings.producer_id_expiration_ms - _FORGETTING_MARGIN_MS)

    @property
    def found_several(self) -> bool | None:
        """Whether the destination's leader takes several batches in a request; None where nobody asked."""
        return any(self._takes_several.values()) if self._takes_several else None

    def close(self) -> None:
        """Close the connection to the destination's leader."""
        self._producer.close()

    def run(self) -> None:
        """
        Copy until nothing is left to fetch, a stop is requested, or others should have their turn.

        Raises:
            Disconnected: Either leader is gone. Partitions with requests in
                flight have lost track; the others can go on elsewhere.
            Stopped: The lease lapsed; likewise.

        """
        try:
            self._ask_for_more()
            while self._fetcher.is_waiting and not self._control.stop_requested:
                self._control.check_lease()
                response = self._fetcher.receive()
                self._look_after_a_pause()
                self._find_out(response)
                touched = self._take(response)
                if not (self._control.stop_requested or self._must_yield or self._should_yield()):
                    self._ask_for_more()
                self._produce_all(touched)
                self._settle(touched, sum(len(each.record_set) for each in response.partitions))
        except BaseException:
            for copy in self._copies.values():
                copy.refetch()
            raise

    # Fetching

    def _ask_for_more(self) -> None:
        for copy in self._waiting:
            if copy.state.is_due or not copy.wants_data:
                self._changed[copy] = None
        for copy in self._changed:
            self._ask(copy)
        self._changed.clear()
        # A slice ends together: who waits longer keeps the others from the next one.
        self._fetcher.send(self._control.remaining_s * 1000)
        self._asked_at = time.monotonic()

    def _look_after_a_pause(self) -> None:
        """Do not take an answer that may be another topic's, or ask for more of it."""
        if time.monotonic() - self._asked_at > _PAUSE_S:
            self._look_at_topics()
            self._changed.update((copy, None) for copy in self._copies.values() if not copy.state.is_aligned)

    def _ask(self, copy: PartitionCopy) -> None:
        """Let the next request ask for what follows in a partition, or for nothing of it."""
        self._waiting.pop(copy, None)
        if not copy.wants_data:
            self._fetcher.forget(copy.source)
        elif not copy.state.is_due:
            self._waiting[copy] = None
            self._fetcher.forget(copy.source)
        else:
            leader_epoch = self._source.partition(copy.source).leader_epoch
            known_end = -1 if copy.range.is_open else copy.range.end_offset
            self._fetcher.ask(
                FetchFrom(
                    copy.source, copy.fetch_offset, leader_epoch, known_end, topic_id=copy.source_topic_id
                )
            )
            if copy.empty_answers:
                # Only the answer to the first in a full request says something.
                self._fetcher.start_over(copy.source)

    def _find_out(self, response: FetchResponse) -> None:
        """Ask whether requests may have several batches, where an answer brings several and nobody knows."""
        settings = self._settings
        if settings.multi_batch is MultiBatch.OFF or settings.delivery is not Delivery.EXACTLY_ONCE:
            return
        brings_several = (
            copy.destination
            for each in response.partitions
            if has_several(each.record_set)
            and (copy := self._copies.get(TopicPartition(each.topic, each.partition))) is not None
            and copy.sequence_is_offset
        )
        unknown = {
            partition.topic: partition
            for partition in brings_several
            if partition.topic not in self._takes_several
        }
        if unknown:
            # Of all topics at once: each time may take a connection.
            others = {copy.destination.topic: copy.destination for copy in self._copies.values()}
            asked = {**others, **unknown}.values()
            self._takes_several |= self._ask_for_several(
                [partition for partition in asked if partition.topic not in self._takes_several]
            )

    def _take(self, response: FetchResponse) -> list[PartitionCopy]:
        """Take what an answer brings; return the partitions that it matters for."""
        if response.error_code:
            raise ProtocolError(f"Fetch from {self._source}: error {response.error_code}")
        if self._must_yield:
            return []  # it is fetched again
        touched = []
        for fetched in response.partitions:
            copy = self._copies.get(TopicPartition(fetched.topic, fetched.partition))
            if copy and self._take_partition(copy, fetched, throttled=response.throttle_time_ms > 0):
                touched.append(copy)
                self._changed[copy] = None
        return touched

    def _take_partition(self, copy: PartitionCopy, fetched: FetchedPartition, *, throttled: bool) -> bool:
        """Take a partition's part of an answer; return whether anything comes of it."""
        size = len(fetched.record_set)
        asked = self._fetcher.wanted.get(copy.source)
        if not copy.state.is_aligned or asked is None or asked.offset != copy.fetch_offset:
            # A partition that failed since it was asked for has moved back.
            return bool(size or fetched.error_code)
        if fetched.error_code:
            self._source_refuses(copy, fetched.error_code)
            return True
        committed = self._settings.source.isolation_level is IsolationLevel.READ_COMMITTED
        copy.update_end_offset(fetched.end_offset(committed=committed), fetched.high_watermark)
        several = self._marked and self._takes_several.get(copy.destination.topic, False)
        if size and copy.take(fetched, self._settings.source.isolation_level, several=several):
            return True
        if not throttled and self._is_first(copy) and fetched.preferred_read_replica < 0:
            self._nothing_for_the_first(copy, fetched)
            return True
        if size:
            self._fetcher.start_over(copy.source)  # cut short; the first's is not
        return size > 0

    def _is_first(self, copy: PartitionCopy) -> bool:
        return self._fetcher.first_of_full == copy.source

    def _nothing_for_the_first(self, copy: PartitionCopy, fetched: FetchedPartition) -> None:
        """Find out why: the first in a full request gets its next batch, whole, if there is one."""
        committed = self._settings.source.isolation_level is IsolationLevel.READ_COMMITTED
        end = fetched.end_offset(committed=committed)
        if len(fetched.record_set):
            copy.suspect(
                copy.fetch_offset, f"{self._source} sent the batch at offset {copy.fetch_offset} cut short"
            )
        elif copy.range.is_open and end <= copy.fetch_offset:
            pass  # that is all, for now
        elif copy.range.is_open or end >= copy.range.end_offset:
            if is_gap(self._source, copy.source, copy.fetch_offset, copy.count_empty_answer()):
                copy.skip_gap()
            else:
                copy.wait(
                    f"{self._source} to send offset {copy.fetch_offset}, or to say again that it is empty"
                )
        else:
            copy.wait(f"{self._source} to have it up to offset {copy.range.end_offset} again, not to {end}")

    def _source_refuses(self, copy: PartitionCopy, error_code: int) -> None:
        code = ErrorCode.of(error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            # Resuming finds out which end of the log it is, and what to do about it.
            offset = copy.fetch_offset
            copy.lose_offset()
            copy.suspect(offset, f"{self._source} does not have offset {offset}")
        elif code is ErrorCode.CORRUPT_MESSAGE:
            copy.suspect(
                copy.fetch_offset, f"{self._source} has the batch at offset {copy.fetch_offset} damaged"
            )
        elif code.retriable:
            copy.lose_track()
            copy.wait(f"the source's leader ({code.name})")
        elif code.may_pass:
            # The log is the same, so there is nothing to resume.
            copy.wait(
                f"{self._source} to send offset {copy.fetch_offset}: the broker answers Fetch with "
                f"{named_code(error_code)}; the broker's log has the reason"
            )
        else:
            copy.stop(f"{self._source} refuses to be read: {named_code(error_code)}")

    # Producing

    def _produce_all(self, touched: Sequence[PartitionCopy]) -> None:
        """Send all that is queued, and wait until nothing is in flight."""
        if self._settings.multi_batch is MultiBatch.REQUIRED:
            self._hold_back(touched)
        if not self._producer.lists_ids:
            self._look_before_sending(touched)
        ready = deque(copy for copy in touched if copy.outbound.queue)
        while True:
            if self._producer.in_flight <= _REFILL_AT:
                self._send_some(ready)
            if not self._producer.in_flight:
                return
            for partition, outcome in self._producer.receive().items():
                self._acknowledge(self._by_destination[partition], outcome)

    def _look_before_sending(self, copies: Sequence[PartitionCopy]) -> None:
        """Do not send by name to a topic that may have been created again since the last request to it."""
        now = time.monotonic()
        paused = [copy for copy in copies if copy.outbound.queue and now - self._sent_at[copy] > _PAUSE_S]
        if paused:
            self._look_at_destination(paused)
            self._changed.update((copy, None) for copy in paused if not copy.state.is_aligned)
        self._sent_at.update((copy, now) for copy in copies if copy.outbound.queue)

    def _hold_back(self, copies: Sequence[PartitionCopy]) -> None:
        """Where several batches in a request are required, send none where they are not taken."""
        for copy in copies:
            if copy.can_send_several and not self._takes_several.get(copy.destination.topic, False):
                copy.refetch()
                copy.wait(
                    f"{copy.destination} on {self._destination}: its leader takes no several batches in "
                    "a request, and --multi-batch required asks for that"
                )
                self._changed[copy] = None
        # Who takes one at a time is asked again.
        self._takes_several = {topic: True for topic, takes in self._takes_several.items() if takes}

    def _ask_for_several(self, partitions: Sequence[TopicPartition]) -> dict[str, bool]:
        """Ask for some topics; where any takes several, go on on a connection that asks for that."""
        producer = self._producer if self._marked else self._connect(True)
        answers = producer.takes_several(partitions)
        # Who has no answer now is asked on the next connection.
        takes = {partition.topic: answers.get(partition, False) for partition in partitions}
        if self._marked:
            return takes
        if not any(takes.values()):
            producer.close()
        elif all(copy.sequence_is_offset for copy in self._copies.values() if copy.state.is_aligned):
            self._producer.close()
            self._producer, self._marked = producer, True
        else:
            # Each sort of partition needs a connection of its own, and gets a route.
            producer.close()
            self._must_yield = True
        return takes

    def _send_some(self, ready: deque[PartitionCopy]) -> None:
        """Send as many requests as may be in flight, in one system call."""
        while self._producer.in_flight < self._settings.max_in_flight:
            batches = self._next_request(ready)
            if not batches:
                break
            self._control.check_lease()
            self._producer.prepare(batches)
        self._producer.send_prepared()

    def _next_request(self, ready: deque[PartitionCopy]) -> dict[TopicPartition, Sequence[memoryview]]:
        """Take one batch of each partition that may send, or several, up to a request's size."""
        batches: dict[TopicPartition, Sequence[memoryview]] = {}
        size = 0
        forgotten_up_to_ms = self._control.now_ms() - self._remembered_for_ms
        for _ in range(len(ready)):
            copy = ready.popleft()
            if copy.outbound.may_send(forgotten_up_to_ms):
                several = self._may_send_several(copy)
                views = [each.view for each in copy.outbound.next_to_send(several=several)]
                batches[copy.destination] = views
                size += sum(map(len, views))
            if copy.outbound.queue:
                ready.append(copy)
            if size >= _REQUEST_BYTES:
                break
        return batches

    def _may_send_several(self, copy: PartitionCopy) -> bool:
        return (
            self._marked and copy.can_send_several and self._takes_several.get(copy.destination.topic, False)
        )

    def _acknowledge(self, copy: PartitionCopy, answer: ProduceOutcome) -> None:
        in_flight = copy.outbound.in_flight
        if not in_flight:
            return  # an earlier request failed: the alignment finds out what became of this one
        batches = in_flight[0]
        if answer.error_code:
            self._destination_refuses(copy, batches, answer)
        elif answer.base_offset == batches[0].destination_offset:
            # One offset is answered for all of them: they are written together, in a row.
            copy.acknowledge()
        else:
            self._landed_elsewhere(copy, batches, answer.base_offset)
        if not copy.state.is_aligned:
            self._changed[copy] = None

    def _landed_elsewhere(
        self, copy: PartitionCopy, batches: Sequence[OutboundBatch], base_offset: int
    ) -> None:
        outgoing = batches[0]
        expected = outgoing.destination_offset
        is_later = base_offset > expected
        kind = IncidentKind.FOREIGN_RECORDS if is_later else IncidentKind.DESTINATION_LOSS
        why = "somebody else writes to this partition" if is_later else "the destination lost its tail"
        incident = Incident(
            kind,
            f"the batch at source offset {outgoing.source_start} landed at offset {base_offset} of "
            f"{copy.destination} on {self._destination} instead of {expected}: {why}",
        )
        shared = self._settings.delivery is Delivery.AT_LEAST_ONCE
        if not shared and kind not in self._settings.continue_on:
            copy.stop_for(incident)
        elif not is_later:
            # It may be the answer to an older batch that the broker took for the same: nothing was
            # written then. Resuming finds out what is there.
            copy.lose_track()
            copy.wait(incident.reason)
        else:
            if not shared:
                copy.count_incidents([replace(incident, continued=True)])
            copy.displace(base_offset - expected)
            copy.acknowledge()

    def _destination_refuses(
        self, copy: PartitionCopy, batches: Sequence[OutboundBatch], answer: ProduceOutcome
    ) -> None:
        outgoing = batches[0]
        count = sum(each.batches_count for each in batches)
        code = ErrorCode.of(answer.error_code)
        named = named_code(answer.error_code) + (f" ({answer.error_message})" if answer.error_message else "")
        if code in _NOT_WRITTEN or code in _PERHAPS_WRITTEN:
            copy.lose_track()
            copy.wait(f"{copy.destination} on {self._destination}: {named}")
        elif count > 1 and code is ErrorCode.RECORD_LIST_TOO_LARGE:
            copy.send_fewer()
            copy.wait(
                f"{self._destination} takes not so many batches in a request ({named}); fewer follow", 0
            )
        elif count > 1 and code in _ABOUT_ONE_BATCH:
            # Or the broker was restarted without its agent: whether it takes several is asked again, too.
            self._takes_several.pop(copy.destination.topic, None)
            copy.send_one_by_one(batches)
            copy.wait(
                f"{self._destination} refuses {count} batches in a request with {named}; "
                "they follow one by one",
                0,
            )
        elif copy.can_send_apart(outgoing) and code in _ABOUT_ONE_BATCH - _TOO_LARGE:
            copy.send_one_by_one(batches)
            copy.wait(f"{self._destination} refuses joined batches with {named}; they follow apart", 0)
        elif code in _BYTES_REFUSED and self._leaves_out and copy.is_suspect(outgoing.source_start):
            self._leave_out(copy, batches, named)
        elif code in _BYTES_REFUSED or code in _SEQUENCE_REFUSED or code is ErrorCode.UNKNOWN_SERVER_ERROR:
            what = (
                f"{self._destination} refuses the batch at source offset {outgoing.source_start} with {named}"
            )
            is_explained = code is not ErrorCode.UNKNOWN_SERVER_ERROR
            copy.lose_track()
            copy.suspect(
                outgoing.source_start, what, patience_s=0.0 if is_explained else _UNEXPLAINED_PATIENCE_S
            )
        elif code in _TOO_LARGE and copy.make_smaller(outgoing):
            copy.wait(
                f"{self._destination} takes no batch of {len(outgoing.view)} bytes; smaller ones follow", 0
            )
        elif self._leaves_out and code not in REFUSED_WRITERS:
            self._leave_out(copy, batches, named)
        else:
            what_to_do = _WHAT_TO_DO.get(code, "look into the broker's log")
            is_one = outgoing.records_count == 1
            what = "record" if is_one else "batch"
            size = f"{len(outgoing.view)} bytes" + (" as a batch" if is_one else "")
            copy.stop(
                f"{self._destination} refuses the {what} at source offset {outgoing.source_start} "
                f"({outgoing.records_count} records, {size}) with {named}: {what_to_do}"
            )

    @property
    def _leaves_out(self) -> bool:
        """Whether a partition goes on without what the destination refuses."""
        return IncidentKind.SEND_FAILURE in self._settings.continue_on

    def _leave_out(self, copy: PartitionCopy, batches: Sequence[OutboundBatch], named: str) -> None:
        first, last = batches[0].source_start, batches[-1].source_end - 1
        offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
        copy.leave_out(
            batches,
            f"{self._destination} refuses {offsets} of {copy.source} with {named}: left out, and lost there",
        )

    def _settle(self, touched: Sequence[PartitionCopy], fetched_bytes: int) -> None:
        for copy in touched:
            if copy.state.is_aligned:
                copy.settle(self._destination.partition(copy.destination).leader_epoch)
        self._on_progress(fetched_bytes)

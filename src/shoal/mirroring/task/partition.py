"""One partition in a task: where it stands between the two clusters."""

from __future__ import annotations

import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from ...client.backoff import Backoff
from ...client.config import IsolationLevel
from ...errors import CorruptBatch, PartitionStopped, UnsupportedBatch
from ...protocol.fetch import FetchedPartition
from ...records import (
    AbortedTransactions,
    BatchHeader,
    Codec,
    Decision,
    RecordBatch,
    Run,
    check_dropped,
    decide,
    fingerprint,
    split,
    stamp,
    stamp_run,
)
from ..control.handover import InheritedPosition
from ..model.copy_options import CopyOptions
from ..model.incidents import Incident, IncidentKind
from ..model.offset_map import add_run
from ..model.position import MirrorPosition, topic_id_of
from ..model.ranges import CopyRange
from .outbound import OutboundBatch, Rebuilder, copy_of, copy_of_run
from .suspicion import Suspicion

__all__ = ["LeftOut", "PartitionCopy"]

#: Larger than any batch.
_ANY_SIZE = 2**31

#: Of a partition in one request. A broker checks and decompresses them under the partition's lock, and
#: more made it no faster; no record set may be larger than a segment.
TOGETHER_BYTES = 1024 * 1024


class LeftOut(NamedTuple):
    """
    What the destination refuses, and a partition goes on without.

    Attributes:
        after: The pair's source offset then: nothing is to be mirrored between it and what is left out.
        end: The source offset behind it.
        leader_epoch: In which its last record was written at the source.
        incident: What is lost.

    """

    after: int
    end: int
    leader_epoch: int
    incident: Incident


class PartitionCopy:
    """
    The state of one partition's copying.

    Between :meth:`align` and :meth:`fail` it is aligned: the destination's
    log end is ``pair.destination_offset``, or what is in flight makes it so.

    Attributes:
        range: What to copy.
        pair: Up to where everything is acknowledged, as of the last time that
            nothing was in flight; None before the first alignment.
        fetch_offset: The next source offset to fetch; ahead of the pair by
            what is queued and in flight.
        in_flight: For each request that is not answered, its batches.
        together_bytes: How many bytes of batches may go into one request,
            where the broker takes several.
        stopped: Why this partition cannot go on, once it cannot.
        waiting_for: What it waits for, while it waits.
        empty_answers: How often in a row the source had nothing at ``fetch_offset``.
        out_of_range: Whether the source refused ``fetch_offset`` since the last alignment.
        left: Where a former task left it, until that was looked at.
        leader_epochs: Of source and destination, in which it was aligned last.
        commit_waits_for: Why its position could not be committed at the last try; None where it could.
        source_topic_id: Of the topic that it is aligned with, and that may be fetched from; None if the
            cluster has no topic ids.
        destination_topic_id: Likewise, of the topic that may be written to.
        end_is_former: Whether the range ends where the log of a former topic did.
        committed_offset: The source offset that this task committed last; None before the first.
        departed: Whether another copy of this partition goes on (:meth:`hand_on`).
        told: What the driver was told last of where it stands.
        told_stop: The stop that the driver was told of.
        newest_ms: The newest timestamp of the batch that was acknowledged last,
            or an older one; None before there is any, or where its header does not tell.
        held_back: How many offsets open transactions held back at the source when it answered last.
        left_out: What the destination refused, until the pair was moved past it.

    """

    def __init__(self, copy_range: CopyRange, settings: CopyOptions) -> None:
        self.range = copy_range
        self._settings = settings
        self.source = copy_range.source
        self.destination = copy_range.destination
        self.pair: MirrorPosition | None = None
        self.aligned = False
        self.fetch_offset = -1
        self.queue: deque[OutboundBatch] = deque()
        self.in_flight: deque[Sequence[OutboundBatch]] = deque()
        self.together_bytes = TOGETHER_BYTES
        self._one_by_one_until = -1
        self.stopped: PartitionStopped | None = None
        self.waiting_for: str | None = None
        self.empty_answers = 0
        self.out_of_range = False
        self.left: InheritedPosition | None = None
        self.leader_epochs = (-1, -1)
        self.commit_waits_for: str | None = None
        self.source_topic_id: uuid.UUID | None = None
        self.destination_topic_id: uuid.UUID | None = None
        self.end_is_former = False
        self.committed_offset: int | None = None
        self.departed = False
        self.told: object = None
        self.told_stop: PartitionStopped | None = None
        self._refusal: PartitionStopped | None = None
        self._next_destination = -1
        self._established = False
        self.newest_ms: int | None = None
        self.left_out: LeftOut | None = None
        self._heard_end = -1
        self.held_back: int | None = None
        self._last: OutboundBatch | None = None
        self._rebuilder = Rebuilder(settings)
        self._decodes_all = settings.rebatch is not None and settings.rebatch.everything
        self._join_below_bytes = settings.rebatch.below_bytes if settings.rebatch else 0
        if self._decodes_all:
            self._join_below_bytes = _ANY_SIZE
        self._source_leader_epoch = -1
        self._dropped: Counter[Decision] = Counter()
        #: By source offset, and whether the refusals say what is wrong.
        self._suspicions: dict[tuple[int, bool], Suspicion] = {}
        self._backoff = Backoff()
        self._retry_at = 0.0
        # Taken by whoever reports: what was fetched, and what was acknowledged, since the last report.
        self.decisions: Counter[Decision] = Counter()
        self.incidents: list[Incident] = []
        self.records = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.runs: list[list[int]] = []
        self.retries = 0

    # Where it stands

    @property
    def is_done(self) -> bool:
        """Whether everything of the range is acknowledged (not necessarily committed)."""
        return self.aligned and self.pair is not None and self.pair.source_offset >= self.range.end_offset

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to do: done, stopped, or handed on."""
        return self.departed or self.stopped is not None or self.is_done

    @property
    def is_well(self) -> bool:
        """Whether it waits for nothing, and has shown that it will not soon: it may have been refused."""
        has_proved = self._established or self.position >= self.end_offset
        return self.aligned and self.waiting_for is None and has_proved

    @property
    def position(self) -> int:
        """The first source offset that is not known to be mirrored."""
        return self.pair.source_offset if self.pair else self.range.start_offset

    @property
    def end_offset(self) -> int:
        """The range's end; of an open range, up to where the source said that there is something."""
        return max(self.position, self._heard_end) if self.range.is_open else self.range.end_offset

    @property
    def known_end_offset(self) -> int | None:
        """The same for reports: None for an open range before the source has answered a fetch."""
        return None if self.range.is_open and self._heard_end < 0 else self.end_offset

    @property
    def wants_data(self) -> bool:
        """Whether there is more to fetch."""
        return self.aligned and self._refusal is None and self.fetch_offset < self.range.end_offset

    @property
    def is_due(self) -> bool:
        """Whether it waits for nothing, or has waited long enough to be tried again."""
        return time.monotonic() >= self._retry_at

    @property
    def retry_at(self) -> float:
        """When to try again, on the monotonic clock."""
        return self._retry_at

    # Alignment

    def align(self, pair: MirrorPosition) -> None:
        """Go on from a pair that was found to be what the destination holds."""
        self.pair = pair
        self.source_topic_id = topic_id_of(pair.source_topic_id)
        self.destination_topic_id = topic_id_of(pair.destination_topic_id)
        self.aligned = True
        # An identity's first request goes alone: a broker that does not know
        # the producer id accepts any sequence, so a second request could
        # take the place of a first that failed.
        self._established = False
        self.out_of_range = False
        self._rewind()

    def end_at(self, offset: int) -> None:
        """Let the range end where the log of the new topic does."""
        self.range = self.range._replace(end_offset=offset)
        self.end_is_former = False

    def _rewind(self) -> None:
        assert self.pair is not None
        self.queue.clear()
        self._rebuilder.forget()
        self._dropped.clear()
        self._refusal = None  # what came before it is fetched again, and so is the refused batch
        self.fetch_offset = self.pair.source_offset
        self._source_leader_epoch = self.pair.source_leader_epoch
        self._next_destination = self.pair.destination_offset

    def refetch(self) -> None:
        """Forget what is queued; fetch again from the last acknowledged offset. Nothing is in flight."""
        if self.in_flight:
            self.lose_track()
        elif self.aligned:
            self._advance()
            self._rewind()

    def lose_track(self) -> None:
        """What is in flight has an unknown outcome: the destination has to be asked before anything else."""
        self._advance()
        self.aligned = False
        self.queue.clear()
        self._rebuilder.forget()
        self.in_flight.clear()
        self._dropped.clear()

    def next_delay_s(self) -> float:
        """Return how long to wait: longer each time, until a batch is acknowledged."""
        return self._backoff.next_delay_s()

    def wait(self, reason: str, delay_s: float | None = None) -> None:
        """Wait a while (by default :meth:`next_delay_s`) for something that time can heal."""
        self.waiting_for = reason
        self.retries += 1
        self._retry_at = time.monotonic() + (self.next_delay_s() if delay_s is None else delay_s)

    def hand_on(self) -> PartitionCopy:
        """
        Give this partition up to another carrier. Nothing is in flight.

        Returns:
            The copy that goes on: not aligned, with what was learned of the
            partition; this one only keeps what is to be reported.

        """
        self.lose_track()
        heir = PartitionCopy(self.range, self._settings)
        heir.pair = self.pair
        heir.waiting_for = self.waiting_for
        heir.commit_waits_for = self.commit_waits_for
        heir.out_of_range = self.out_of_range
        heir._heard_end = self._heard_end
        heir._suspicions = self._suspicions
        heir.left_out = self.left_out
        heir.end_is_former = self.end_is_former
        heir._backoff = self._backoff
        heir._retry_at = self._retry_at
        heir._rebuilder.most_bytes = self._rebuilder.most_bytes
        heir.together_bytes = self.together_bytes
        heir._one_by_one_until = self._one_by_one_until
        self.departed = True
        return heir

    def stop(self, reason: str, *, can_heal: bool = True) -> None:
        """Give up on this partition, with a sentence; ``can_heal`` as of :class:`PartitionStopped`."""
        self._advance()
        self.stop_with(PartitionStopped(*self.source, self.position, reason, can_heal=can_heal))

    def stop_for(self, incident: Incident) -> None:
        """Give up on this partition for something that happened to its clusters: only a policy heals that."""
        self.incidents.append(incident)
        self.stop(incident.reason, can_heal=False)

    def stop_with(self, error: PartitionStopped) -> None:
        # Tracebacks hold frames, and with them what was read of both clusters.
        error.__cause__ = error.__context__ = None
        self.stopped = error.with_traceback(None)
        self.waiting_for = None
        self.lose_track()

    # Fetched data

    def hear(self, end_offset: int, high_watermark: int = -1) -> None:
        """
        Keep up to where the source has something to fetch.

        Args:
            end_offset: The last stable offset, or the high watermark, by the isolation level.
            high_watermark: What lies between the two, open transactions hold back.

        """
        self._heard_end = end_offset
        self.held_back = max(0, high_watermark - end_offset)
        if self.aligned and self.is_due and self.position >= end_offset:
            self.waiting_for = None  # it was answered, and there is nothing that could fail

    def take(
        self, fetched: FetchedPartition, isolation_level: IsolationLevel, *, several: bool = False
    ) -> bool:
        """
        Decide on each fetched batch, stamp those that are copied or made anew, and queue them.

        What is copied is stamped in the fetch buffer: the queue holds views of it.
        A batch that cannot be mirrored is remembered, and stops the partition
        when everything before it is acknowledged.

        Args:
            fetched: The partition's part of an answer.
            isolation_level: Of the fetch.
            several: Whether batches will go together, so that they need not be told apart.

        Returns:
            Whether there was any whole batch.

        """
        self.bytes_in += len(fetched.record_set)
        found = False
        end_of_last = 0
        aborted = (
            AbortedTransactions(fetched.aborted_transactions)
            if isolation_level is IsolationLevel.READ_COMMITTED
            else None
        )
        try:
            several = several and not self._join_below_bytes and self.sequence_is_offset
            for batch in self._split(fetched.record_set) if several else split(fetched.record_set):
                found = True
                self.empty_answers = 0
                if batch is None:  # a run of them was taken
                    end_of_last = self.fetch_offset
                    continue
                header = batch.header
                if header.base_offset < end_of_last:
                    # Offsets are not under the CRC. Which of the two is wrong? Neither was sent yet.
                    self._rewind()
                    raise CorruptBatch(f"offset {header.base_offset} comes after {end_of_last - 1}")
                end_of_last = header.next_offset
                if self._is_behind_the_end(header):
                    self.skip_gap()
                    break
                self._take_batch(batch, aborted)
            self._queue_gathered()
        except UnsupportedBatch as error:
            self._queue_gathered()
            self._refuse(error.base_offset, str(error), can_heal=False)
        except CorruptBatch as error:
            self._queue_gathered()
            found = True
            what = f"the source cluster sent the batch at offset {self.fetch_offset} damaged"
            self.suspect(self.fetch_offset, f"{what}: {error.reason}")
        return found

    def _split(self, record_set: memoryview) -> Iterator[RecordBatch | None]:
        """Split a record set, and take what follows on in runs; yield None for each of these."""
        assert self.pair is not None
        identity = self.pair.identity
        position = 0
        while position < len(record_set):
            if not self._rebuilder.is_gathering and self.fetch_offset >= self._one_by_one_until:
                run = stamp_run(
                    record_set,
                    position,
                    first_offset=self.fetch_offset,
                    end_offset=self.range.end_offset,
                    most_bytes=self.together_bytes,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                    base_sequence=identity.sequence(self._next_destination),
                )
                if run is not None:
                    self._queue_run(run)
                    position += len(run.view)
                    yield None
                    continue
            batch = next(split(record_set[position:]), None)
            if batch is None:
                return
            position += len(batch.view)
            yield batch

    def _queue_run(self, run: Run) -> None:
        self.queue.append(copy_of_run(run, self._next_destination))
        self._next_destination += run.records_count
        self.fetch_offset = run.last.header.next_offset
        self._source_leader_epoch = run.last.header.leader_epoch

    def _is_behind_the_end(self, header: BatchHeader) -> bool:
        # A wrapper of magic 0 or 1 has the offset of its last message: the first may lie before the end.
        is_wrapper = header.magic != 2 and header.codec_id != Codec.NONE
        return header.base_offset >= self.range.end_offset and not is_wrapper

    def _take_batch(self, batch: RecordBatch, aborted: AbortedTransactions | None) -> None:
        header = batch.header
        is_apart = header.base_offset < self._one_by_one_until
        decision = decide(
            header,
            self.fetch_offset,
            aborted,
            keep_append_time=self._settings.keep_append_time,
            join_below_bytes=0 if is_apart and not self._decodes_all else self._join_below_bytes,
        )
        if decision is Decision.COPY:
            self._queue_gathered()
            self._queue(copy_of(batch))
        elif decision.is_drop:
            check_dropped(decision, batch, aborted)
            if header.last_offset < self.fetch_offset:
                return  # all of it lies before the range
            self._dropped[decision] += 1
        elif header.last_offset < self.fetch_offset:
            return
        else:
            apart = is_apart and self._decodes_all
            for outgoing in self._rebuilder.take(batch, decision, self.fetch_offset, apart=apart):
                self._queue(outgoing)
        self.fetch_offset = header.next_offset
        self._source_leader_epoch = header.leader_epoch

    def _queue(self, outgoing: OutboundBatch) -> None:
        """Stamp a batch for the place behind all that is queued."""
        assert self.pair is not None
        identity = self.pair.identity
        sequence = identity.sequence(self._next_destination)
        stamp(outgoing.batch, identity.producer_id, identity.producer_epoch, sequence)
        outgoing.destination_offset = self._next_destination
        self._next_destination += outgoing.records_count
        self.queue.append(outgoing)

    def _queue_gathered(self) -> None:
        for outgoing in self._rebuilder.gathered():
            self._queue(outgoing)

    def _refuse(self, offset: int, reason: str, *, can_heal: bool = True) -> PartitionStopped:
        self._refusal = PartitionStopped(*self.source, offset, reason, can_heal=can_heal)
        return self._refusal

    def suspect(self, offset: int, reason: str, *, patience_s: float = 0.0) -> None:
        """
        Try what is at an offset once more, since it is damaged, or refused as if it were; then stop.

        Args:
            offset: Of the source.
            reason: What is wrong, as a sentence.
            patience_s: How long to try again before the partition stops, if the refusal names no cause.

        """
        key = (offset, patience_s == 0.0)
        suspicion = self._suspicions.get(key)
        if suspicion is None or suspicion.has_ended:
            self._suspicions[key] = Suspicion()
            self.wait(f"a second try: {reason}")
        elif suspicion.age_s < patience_s:
            suspicion.confirm()
            self.wait(f"a further try: {reason}")
        else:
            tries = f"{suspicion.tries} more tries" if suspicion.tries > 1 else "a second try"
            refusal = self._refuse(offset, f"{reason}; {tries} ended the same")
            if not self.aligned:
                self.stop_with(refusal)

    def disregard(self, seconds: float) -> None:
        """Let the time that aligning this partition took make no refusal older."""
        for each in self._suspicions.values():
            each.disregard(seconds)

    def is_suspect(self, offset: int) -> bool:
        """Whether what is at an offset was refused with its cause, and has another try."""
        suspicion = self._suspicions.get((offset, True))
        return suspicion is not None and not suspicion.has_ended

    def skip_gap(self) -> None:
        """There is nothing between here and the end, as known now: compaction or deletion took it."""
        self.fetch_offset = max(self.fetch_offset, self.end_offset)
        # No batch says in which epoch the gap lies: it may be later than that of the last batch, whose
        # epoch then ends before this offset. The leader that was asked has the log up to here in its own.
        self._source_leader_epoch = max(self._source_leader_epoch, self.leader_epochs[0])
        self.empty_answers = 0
        self.waiting_for = None

    # Sending

    def may_send(self, forgotten_up_to_ms: float) -> bool:
        """
        Whether the next queued batch may go out now (docs/decisions, 0002).

        Args:
            forgotten_up_to_ms: A producer whose last batch has no newer
                timestamp may be forgotten by the destination; then it would
                take the next batch even if the one before it failed.

        """
        if not self.queue:
            return False
        if not self.in_flight:
            return True
        return (
            self._established
            and self.newest_ms is not None
            and self.newest_ms > forgotten_up_to_ms
            and all(each.newest_ms > forgotten_up_to_ms for request in self.in_flight for each in request)
        )

    @property
    def can_send_several(self) -> bool:
        """Whether a broker that takes several batches in a request would take those that come next."""
        return (
            (len(self.queue) > 1 or any(each.batches_count > 1 for each in self.queue))
            and self.queue[0].source_start >= self._one_by_one_until
            and self.sequence_is_offset
        )

    @property
    def sequence_is_offset(self) -> bool:
        """Whether it may be written to where a broker compares the two."""
        return self.pair is not None and self.pair.identity.sequence_is_offset

    def next_to_send(self, *, several: bool) -> Sequence[OutboundBatch]:
        """Move the next batch from the queue to what is in flight; or several, as many as may go together."""
        batches = [self.queue.popleft()]
        if several:
            room = self.together_bytes - len(batches[0].view)
            while self.queue and (room := room - len(self.queue[0].view)) >= 0:
                batches.append(self.queue.popleft())
        self.in_flight.append(batches)
        return batches

    def send_one_by_one(self, refused: Sequence[OutboundBatch]) -> None:
        """Prepare to send batches again that were refused together, or joined: each has an answer then."""
        self._one_by_one_until = refused[-1].source_end
        self.lose_track()

    def send_fewer(self) -> None:
        """They were too many bytes for one request."""
        self.together_bytes //= 2
        self.lose_track()

    def acknowledge(self, outgoing: OutboundBatch) -> None:
        """Count the oldest batch that was in flight: it landed where it should."""
        self._established = True
        if self._suspicions:
            self._suspicions = {
                key: each for key, each in self._suspicions.items() if key[0] >= outgoing.source_end
            }
        self.newest_ms = outgoing.newest_ms if outgoing.newest_ms >= 0 else None
        self._last = outgoing
        self.decisions[outgoing.decision] += outgoing.batches_count
        self.records += outgoing.records_count
        self.bytes_out += len(outgoing.view)
        landed = outgoing.destination_offset
        for start, end in outgoing.spans or ((outgoing.source_start, outgoing.source_end),):
            self.extend_runs(start, end, landed)
            landed += end - start
        self._backoff.reset()
        self.waiting_for = None

    def displace(self, batches: Sequence[OutboundBatch], by: int) -> None:
        """A request landed so many offsets too far: so will all that follow it, and the sequences go on."""
        assert self.pair is not None
        self.pair = replace(self.pair, identity=self.pair.identity.moved(by))
        for each in chain(batches, *self.in_flight, self.queue):
            each.destination_offset += by
        self._next_destination += by

    def can_send_apart(self, refused: OutboundBatch) -> bool:
        """Whether a batch was joined, so that :meth:`send_one_by_one` makes less of it."""
        is_joined = refused.decision is Decision.JOIN
        return is_joined and (refused.records_count > 1 or not self._decodes_all)

    def leave_out(self, refused: Sequence[OutboundBatch], reason: str) -> None:
        """Prepare to go on behind what the destination refuses, after resuming."""
        self.lose_track()
        assert self.pair is not None
        records = sum(each.records_count for each in refused)
        self.left_out = LeftOut(
            self.pair.source_offset,
            refused[-1].source_end,
            refused[-1].source_leader_epoch,
            Incident(IncidentKind.SEND_FAILURE, reason, records, continued=True),
        )
        self.wait(reason, 0)

    def make_smaller(self, refused: OutboundBatch) -> bool:
        """
        Prepare to send a batch that is too large for the destination in smaller ones, after resuming.

        Returns:
            Whether that can be: it was decoded anyway, and has more than one record.

        """
        if refused.decision is Decision.COPY or refused.records_count == 1:
            return False
        self._rebuilder.most_bytes = len(refused.view) // 2
        self.lose_track()
        return True

    def extend_runs(self, source_start: int, source_end: int, landed: int) -> None:
        """Count in what was acknowledged (see :func:`add_run`)."""
        add_run(self.runs, source_start, source_end, landed)

    def _advance(self) -> None:
        """Move the pair past the last acknowledged batch."""
        last, self._last = self._last, None
        if last is not None and self.pair is not None:
            self.pair = replace(
                self.pair,
                source_offset=last.source_end,
                destination_offset=last.destination_offset + last.records_count,
                last_batch=fingerprint(last.batch).crc,
                source_leader_epoch=last.source_leader_epoch,
            )

    def settle(self, leader_epoch: int) -> None:
        """Bring the pair up to date, before the next fetch is received, where nothing is left to send."""
        if not self.aligned or self.queue or self.in_flight or self.pair is None:
            return
        before = self.pair.source_offset
        self._advance()
        self.pair = replace(
            self.pair,
            source_offset=max(self.pair.source_offset, self.fetch_offset),
            destination_leader_epoch=leader_epoch,
            source_leader_epoch=self._source_leader_epoch,
        )
        self.decisions += self._dropped
        self._dropped.clear()
        if self._refusal is not None:
            self.stop_with(self._refusal)
        elif self.is_done or (self.is_due and self.pair.source_offset > before):
            self.waiting_for = None

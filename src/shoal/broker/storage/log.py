"""
A partition's log: stored batches, and all that a broker knows about them.

Appending copies a batch once, from the request into a segment, under a header
in which the broker's own is written: base offset and leader epoch, which are
not under the CRC, and on a LogAppendTime topic the timestamp. Reading copies
nothing: a read is a slice of a segment, cut where the size limit falls, in the
middle of a batch if need be (KIP-74).

The segments are in memory, or files of a directory. What a log knows beside
its batches (producers, transactions, leader epochs) is not stored: it is in
the batches' headers, and read from them again.

There is one replica, so the high watermark is the log's end.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...error_codes import ErrorCode
from ...records import HEADER_SIZE, BatchHeader, RecordBatch, crc32c, read_header, split
from ...records.aborted import Marker, read_marker
from ..api_error import ApiError
from ..clock import now_ms
from ..config import TopicConfig
from .file_segment import FileSegment
from .log_dir_failure import LogDirFailure
from .marker import end_transaction_marker
from .producers import SEQUENCE_COUNT, Producers
from .ranges import Bytes, FileRange
from .segment import MemorySegment, Segment
from .transaction_index import TransactionIndex
from .validate import HeaderChange, check_crc, decompressed
from .walk import walk

__all__ = ["AppendInfo", "Log", "ProducerSnapshot", "ReadInfo", "TimestampAndOffset"]

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_OFFSET = 12
_CRC = struct.Struct(">I")
_CRC_OFFSET = 17
_CRC_COVERS_FROM = 21
_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_OFFSET = 21
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_OFFSET = 35

#: A segment is twice the one before it, so that an idle partition costs little and a big one has few.
_FIRST_SEGMENT_BYTES = 64 * 1024
_LARGEST_SEGMENT_BYTES = 16 * 1024 * 1024

_EMPTY = memoryview(b"")


@dataclass(frozen=True, slots=True)
class AppendInfo:
    """
    Where a batch is in the log, whether it was written now or before.

    Attributes:
        base_offset: Of its first record.
        log_append_time_ms: -1 where the create times were kept.
        is_duplicate: It was there already, and nothing was written.

    """

    base_offset: int
    log_append_time_ms: int
    is_duplicate: bool


@dataclass(frozen=True, slots=True)
class ReadInfo:
    """
    A slice of the log, and the offsets at the time.

    Attributes:
        record_set: Batches, beginning with the one that holds the offset
            asked for; the last may be cut. A view of a segment in memory, or
            a range of one that is a file.
        high_watermark: The log's end.
        last_stable_offset: Where the oldest open transaction begins, or the end.
        log_start_offset: The first offset that is still there.
        aborted_transactions: ``(producer_id, first_offset)``, for read_committed.

    """

    record_set: memoryview | FileRange
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: Sequence[tuple[int, int]]


class TimestampAndOffset(NamedTuple):
    """An answer to a question about time; both are -1 where there is none."""

    timestamp: int
    offset: int


class ProducerSnapshot(NamedTuple):
    """
    What DescribeProducers tells of one producer.

    Attributes:
        last_sequence: -1 for none, as after a marker with a new epoch.
        last_timestamp: In milliseconds.
        coordinator_epoch: Of the last marker, or -1.
        transaction_start: Where its open transaction begins, or -1.

    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


class Log:
    """
    One partition's batches. Safe to use from several threads.

    Attributes:
        config: The topic's, replaced when it is altered.
        leader_epoch: Goes into every batch; rises with every start of the broker.

    """

    def __init__(
        self,
        name: str,
        config: TopicConfig,
        directory: Path | None = None,
        failure: LogDirFailure | None = None,
    ) -> None:
        """
        Make an empty log.

        Args:
            name: For messages, as ``topic-partition``.
            config: The topic's.
            directory: For its segments, which is made if it is not there
                (what is in it, :meth:`recover` reads); None for a log in memory.
            failure: Takes note of errors of the directory.

        """
        self._failure = failure or LogDirFailure()
        self.name = name
        self.config = config
        self.leader_epoch = 0
        self._lock = threading.Lock()
        self._directory = directory
        self._unflushed_records = 0
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        first_offset = min(FileSegment.base_offsets(directory), default=0) if directory is not None else 0
        self._segments: list[Segment] = [self._new_segment(first_offset, capacity=0)]
        self._log_start_offset = 0
        self._log_end_offset = 0
        self._epoch_starts = [(0, 0)]
        self._producers = Producers()
        self._transactions = TransactionIndex()
        self._watchers: set[threading.Event] = set()

    @property
    def log_start_offset(self) -> int:
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._log_end_offset

    @property
    def last_stable_offset(self) -> int:
        with self._lock:
            return self._last_stable_offset()

    def _last_stable_offset(self) -> int:
        unstable = self._transactions.first_unstable_offset
        return self._log_end_offset if unstable is None else unstable

    # Appending

    def append(self, batch: RecordBatch, change: HeaderChange | None) -> AppendInfo:
        """
        Append a batch from a client, or find that it was appended before.

        Args:
            batch: One that was validated; its bytes are copied.
            change: What validation wants changed in its header.

        Raises:
            ApiError: For its size, its epoch or its sequence.

        """
        header = batch.header
        self._check_fits_segment(header.size)
        with self._lock:
            if header.producer_id < 0:
                (header,) = self._write([(batch, change)])
                return _append_info(header, header.base_offset)
            producer = self._producers.get(header.producer_id)
            duplicate = producer.duplicate_of(header)
            if duplicate is not None:
                return AppendInfo(duplicate.first_offset, duplicate.timestamp, is_duplicate=True)
            producer.check(header)
            (header,) = self._write([(batch, change)])
            producer.appended(header)
            self._producers.keep(producer)
            if header.is_transactional:
                self._transactions.begin(header.producer_id, header.base_offset)
            return _append_info(header, header.base_offset)

    def append_all(
        self,
        batches: Sequence[RecordBatch],
        validated: Callable[[RecordBatch], tuple[RecordBatch, HeaderChange | None]],
    ) -> AppendInfo:
        """
        Append batches without a producer id behind one another, all of them or none.

        Args:
            batches: Those that :func:`~.multi_batch.plain_batches` took.
            validated: As in :meth:`compare_and_append`.

        Raises:
            ApiError: As ``validated`` does, or if they exceed ``segment.bytes`` together.

        """
        with self._lock:
            new = [validated(batch) for batch in batches]
            self._check_fits_segment(sum(batch.header.size for batch, _ in new))
            first, *_ = self._write(new)
            return _append_info(first, first.base_offset)

    def compare_and_append(
        self,
        batches: Sequence[RecordBatch],
        validated: Callable[[RecordBatch], tuple[RecordBatch, HeaderChange | None]],
    ) -> AppendInfo:
        """
        Append those batches of one producer that are not in the log yet, all of them or none.

        Args:
            batches: One or more that :func:`~.multi_batch.admitted_batches` took.
            validated: Checks a batch; returns it, or one in its place, and
                what is to be changed in its header. Is called for new ones.

        Returns:
            Where the first of them is, or is now.

        Raises:
            ApiError: With OUT_OF_ORDER_SEQUENCE_NUMBER where the log neither
                has them at their sequences (modulo 2^31) nor ends there, or
                CORRUPT_MESSAGE if one has a wrong CRC; and as :meth:`append`
                and ``validated`` do.

        """
        with self._lock:
            first_offset = _nearest_offset(batches[0].header.base_sequence, self._log_end_offset)
            count = self._count_written(batches, first_offset)
            if count == len(batches):
                written = self._header_at(first_offset + _distance(batches[0], batches[-1]))
                assert written is not None, "it was counted"
                return AppendInfo(first_offset, written.max_timestamp, is_duplicate=True)
            new = [validated(batch) for batch in batches[count:]]
            self._check_fits_segment(sum(batch.header.size for batch, _ in new))
            producer = self._producers.get(batches[0].header.producer_id)
            producer.check(new[0][0].header)
            for header in self._write(new):
                producer.appended(header)
            self._producers.keep(producer)
            return _append_info(header, first_offset)

    def _count_written(self, batches: Sequence[RecordBatch], first_offset: int) -> int:
        """Return how many batches from the first on the log has where they belong; then it must end."""
        offset = first_offset
        count = 0
        while count < len(batches) and offset != self._log_end_offset:
            header = self._header_at(offset)
            sent = batches[count].header
            if header is None or header.base_offset != offset or not _is_same(header, sent):
                raise self._out_of_order(batches)
            check_crc(batches[count])
            offset = header.next_offset
            count += 1
        # The stock rules would take the rest for duplicates: this producer wrote them without comparing.
        producer = self._producers.get(batches[0].header.producer_id)
        if any(producer.duplicate_of(batch.header) for batch in batches[count:]):
            raise self._out_of_order(batches)
        return count

    def _header_at(self, offset: int) -> BatchHeader | None:
        """Return the header of the batch that holds an offset, if there is one of magic 2."""
        if not self._log_start_offset <= offset < self._log_end_offset:
            return None
        located = self._locate(offset)
        return None if located is None else located[0].header(located[1])

    def _out_of_order(self, batches: Sequence[RecordBatch]) -> ApiError:
        for batch in batches:
            check_crc(batch)  # with a wrong one, the header may be wrong too
        return ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{self.name} ends at {self._log_end_offset} and has no batches like these at sequence "
            f"{batches[0].header.base_sequence}",
        )

    def _check_fits_segment(self, size: int) -> None:
        if size > self.config.segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes exceed segment.bytes, {self.config.segment_bytes}",
            )

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: Marker, coordinator_epoch: int
    ) -> None:
        """
        End a producer's transaction with a control batch of ours.

        Raises:
            ApiError: With INVALID_PRODUCER_EPOCH, for an epoch older than the producer's.

        """
        with self._lock:
            producer = self._producers.get(producer_id)
            if producer_epoch < producer.epoch:
                raise ApiError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"a marker of epoch {producer_epoch} after {producer.epoch}",
                )
            data = memoryview(
                end_transaction_marker(producer_id, producer_epoch, marker, coordinator_epoch, now_ms())
            )
            (header,) = self._write([(RecordBatch(read_header(data), data), None)])
            producer.set_epoch(producer_epoch)
            producer.coordinator_epoch = coordinator_epoch
            producer.last_timestamp = header.max_timestamp
            self._producers.keep(producer)
            self._transactions.end(producer_id, header.base_offset, marker is Marker.ABORT)

    def store(self, record_set: bytes | bytearray | memoryview) -> None:
        """
        Append batches as they are, offsets and all, as a follower does.

        For tests that need what no client can produce: holes, empty batches,
        old formats. Nothing is checked but that the offsets ascend.

        Raises:
            ValueError: They do not.

        """
        with self._lock:
            for batch in split(memoryview(record_set)):
                if batch.header.base_offset < self._log_end_offset:
                    raise ValueError(
                        f"offset {batch.header.base_offset} is not {self._log_end_offset} or later"
                    )
                self._store(batch)
                self._log_end_offset = batch.header.next_offset
            self._tell_watchers()

    def _store(self, batch: RecordBatch) -> None:
        header = batch.header
        self._segment_for(header.size, header.base_offset).append([batch.view], [header])
        self._learn_from(batch)

    def _learn_from(self, batch: RecordBatch) -> None:
        """Take note of who wrote a batch that is in the log, and of its transaction."""
        header = batch.header
        if header.magic != 2 or header.producer_id < 0:
            return
        producer = self._producers.get(header.producer_id)
        if header.is_control:
            producer.set_epoch(header.producer_epoch)
            producer.last_timestamp = header.max_timestamp
            aborted = read_marker(batch) == Marker.ABORT
            self._transactions.end(header.producer_id, header.base_offset, aborted)
        else:
            producer.appended(header)
            if header.is_transactional:
                self._transactions.begin(header.producer_id, header.base_offset)
        self._producers.keep(producer)

    def _write(self, batches: Sequence[tuple[RecordBatch, HeaderChange | None]]) -> list[BatchHeader]:
        """
        Copy batches into the log and make them ours, all or none; return their headers as they are now.

        Raises:
            ApiError: With KAFKA_STORAGE_ERROR: the disk is full, or worse.

        """
        self._failure.check()
        headers: list[BatchHeader] = []
        parts: list[Bytes] = []
        offset = self._log_end_offset
        for batch, change in batches:
            header, start = _made_ours(batch, offset, self.leader_epoch, change)
            headers.append(header)
            parts += start, batch.view[HEADER_SIZE:]
            offset = header.next_offset
        unflushed_records = self._unflushed_records + offset - self._log_end_offset
        is_flush_due = unflushed_records >= self.config.flush_messages
        try:
            segment = self._segment_for(sum(header.size for header in headers), self._log_end_offset)
            segment.append(parts, headers, flushed=is_flush_due)
        except OSError as error:
            raise self._failure.refused(self.name, error) from error
        self._unflushed_records = 0 if is_flush_due else unflushed_records
        self._log_end_offset = offset
        self._tell_watchers()
        return headers

    def _segment_for(self, size: int, base_offset: int) -> Segment:
        active = self._segments[-1]
        if active.has_room(size):
            return active
        doubled = max(2 * active.capacity, _FIRST_SEGMENT_BYTES)
        capacity = max(size, min(doubled, _LARGEST_SEGMENT_BYTES, self.config.segment_bytes))
        if active.batch_count == 0:
            self._segments.pop().delete()
        else:
            active.close()
        self._segments.append(self._new_segment(base_offset, capacity))
        return self._segments[-1]

    def _new_segment(self, base_offset: int, capacity: int) -> Segment:
        """Make a segment; one in a file takes as much as the topic says, and no memory before it is used."""
        if self._directory is None:
            return MemorySegment(base_offset, capacity)
        return FileSegment(
            self._directory,
            base_offset,
            max(capacity, self.config.segment_bytes),
            self.config.index_interval_bytes,
        )

    # Files

    def recover(self, log_start_offset: int, *, verify: bool) -> None:
        """
        Read what is in the directory, and all that is known from it.

        What is no whole batch is cut off, with everything behind it, as Kafka does.

        Args:
            log_start_offset: What was deleted before it stays so.
            verify: Check every CRC: the broker did not stop in good order.

        """
        assert self._directory is not None, "a log in memory has nothing to recover"
        self._segments.clear()
        is_whole = True
        for base_offset in FileSegment.base_offsets(self._directory):
            segment = self._new_segment(base_offset, capacity=0)
            assert isinstance(segment, FileSegment)
            if not is_whole:
                segment.delete()
                continue
            self._log_end_offset = max(self._log_end_offset, base_offset)
            is_whole = segment.recover(self._relearn, self._log_end_offset, verify=verify)
            self._segments.append(segment)
        self._log_start_offset = self._segments[0].base_offset
        self._log_end_offset = max(self._log_end_offset, log_start_offset)
        self._start_at(log_start_offset)

    def _relearn(self, batch: RecordBatch) -> None:
        header = batch.header
        self._log_end_offset = header.next_offset
        if header.magic == 2 and header.leader_epoch > self._epoch_starts[-1][0]:
            self._epoch_starts.append((header.leader_epoch, header.base_offset))
            self.leader_epoch = header.leader_epoch
        self._learn_from(batch)

    def close(self) -> None:
        """Have all of it on the disk, if it is to be there."""
        with self._lock:
            self._segments[-1].close()

    # Reading

    def read(self, offset: int, max_bytes: int, *, committed: bool, at_least_one_batch: bool) -> ReadInfo:
        """
        Read from the batch that holds an offset on.

        Args:
            offset: Where to begin; the log's end gives nothing.
            max_bytes: The most to return; the last batch is cut to fit.
            committed: Stop where the oldest open transaction begins, and tell
                of the aborted ones (isolation level read_committed).
            at_least_one_batch: Return the first batch whole, however large.
                Without it, one that does not fit gives nothing.

        Raises:
            ApiError: With OFFSET_OUT_OF_RANGE.

        """
        with self._lock:
            if not self._log_start_offset <= offset <= self._log_end_offset:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{self.name} has {self._log_start_offset} to {self._log_end_offset}, not {offset}",
                )
            last_stable_offset = self._last_stable_offset()
            upper_offset = last_stable_offset if committed else self._log_end_offset
            record_set, end_offset = self._slice(offset, upper_offset, max_bytes, at_least_one_batch)
            aborted: Sequence[tuple[int, int]] = ()
            if committed and record_set:
                aborted = self._transactions.aborted_in(offset, end_offset)
            return ReadInfo(
                record_set, self._log_end_offset, last_stable_offset, self._log_start_offset, aborted
            )

    def _slice(
        self, offset: int, upper_offset: int, max_bytes: int, at_least_one_batch: bool
    ) -> tuple[memoryview | FileRange, int]:
        """Return a slice of one segment, and the offset after it."""
        located = self._locate(offset)
        if located is None:
            return _EMPTY, offset
        segment, index = located
        start = segment.position(index)
        limit = segment.position_of_offset(upper_offset)
        first_batch_end = segment.position(index + 1)
        if limit <= start or (first_batch_end - start > max_bytes and not at_least_one_batch):
            return _EMPTY, offset
        end = min(limit, max(start + max_bytes, first_batch_end if at_least_one_batch else 0))
        end_offset = segment.offset_after(end)
        return segment.read(start, end), upper_offset if end_offset is None else min(end_offset, upper_offset)

    def _locate(self, offset: int) -> tuple[Segment, int] | None:
        """Find the first batch that ends at an offset or after it."""
        for segment in self._segments_from(offset):
            for index in range(segment.index_of_offset(offset), segment.batch_count):
                if segment.last_offset(index) >= offset:
                    return segment, index
        return None

    def _segments_from(self, offset: int) -> Iterator[Segment]:
        """Yield the segment that an offset belongs to, and those after it."""
        low, high = 0, len(self._segments)
        while low < high:
            middle = (low + high) // 2
            if self._segments[middle].base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        yield from self._segments[max(low - 1, 0) :]

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampAndOffset:
        """Find the first record with a timestamp or a later one."""
        with self._lock:
            for segment in self._segments:
                if segment.batch_count and segment.largest_timestamp >= timestamp_ms:
                    batch = next(split(segment.batch(segment.index_of_timestamp(timestamp_ms))))
                    return _first_record_since(batch, timestamp_ms)
            return TimestampAndOffset(-1, -1)

    def offset_of_max_timestamp(self) -> TimestampAndOffset:
        """Find the first record with the largest timestamp (ListOffsets -3, KIP-734)."""
        with self._lock:
            largest = max(segment.largest_timestamp for segment in self._segments)
        return self.offset_for_timestamp(largest) if largest >= 0 else TimestampAndOffset(-1, -1)

    def segment_starts(self) -> list[TimestampAndOffset]:
        """Return where each segment begins, and when it was last written to; then the log's end and now."""
        with self._lock:
            starts = [
                TimestampAndOffset(segment.modified_ms, max(segment.base_offset, self._log_start_offset))
                for segment in self._segments
            ]
            if self._segments[-1].batch_count:
                starts.append(TimestampAndOffset(now_ms(), self._log_end_offset))
            return starts

    @contextmanager
    def watched(self, by: threading.Event) -> Iterator[None]:
        """Set an event whenever there is more to read."""
        with self._lock:
            self._watchers.add(by)
        try:
            yield
        finally:
            with self._lock:
                self._watchers.discard(by)

    def _tell_watchers(self) -> None:
        for watcher in self._watchers:
            watcher.set()

    # Leader epochs

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Take a new leader epoch, from the log's end on."""
        with self._lock:
            self.leader_epoch = leader_epoch
            # An epoch in which nothing was written leaves no trace (LeaderEpochFileCache).
            written = [entry for entry in self._epoch_starts if entry[1] < self._log_end_offset]
            self._epoch_starts = [*written, (leader_epoch, self._log_end_offset)]
            # Who waits for more may have to ask another leader.
            self._tell_watchers()

    def check_leader_epoch(self, expected: int) -> None:
        """
        Hold a client's idea of the leader epoch against the true one; -1 is no idea (KIP-320).

        Raises:
            ApiError: With FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.

        """
        if expected < 0 or expected == self.leader_epoch:
            return
        code = (
            ErrorCode.FENCED_LEADER_EPOCH if expected < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        )
        raise ApiError(code, f"the leader epoch of {self.name} is {self.leader_epoch}, not {expected}")

    def end_of_leader_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """
        Return the largest epoch up to this one that was, and the offset after its last record.

        ``LeaderEpochFileCache.endOffsetFor``: the current epoch ends at the
        log's end; one that was never heard of gives (-1, -1).

        """
        with self._lock:
            if leader_epoch == self.leader_epoch:
                return leader_epoch, self._log_end_offset
            later = [start for epoch, start in self._epoch_starts if epoch > leader_epoch]
            earlier = [epoch for epoch, _ in self._epoch_starts if epoch <= leader_epoch]
            if leader_epoch < 0 or not later:
                return -1, -1
            return (earlier[-1] if earlier else leader_epoch), later[0]

    # Producers

    def producers(self) -> list[ProducerSnapshot]:
        """Return everyone that wrote here and is not forgotten."""
        with self._lock:
            return [
                ProducerSnapshot(
                    producer.producer_id,
                    producer.epoch,
                    producer.last_sequence,
                    producer.last_timestamp,
                    producer.coordinator_epoch,
                    self._transactions.open.get(producer.producer_id, -1),
                )
                for producer in self._producers
            ]

    def has_open_transaction(self, producer_id: int) -> bool:
        with self._lock:
            return producer_id in self._transactions.open

    def forget_expired_producers(self, now: int, expiration_ms: int) -> None:
        """Forget producers whose last batch is older than ``producer.id.expiration.ms``."""
        with self._lock:
            self._producers.forget_expired(now, expiration_ms, self._transactions.open)

    # Deleting

    def delete_records(self, before_offset: int) -> int:
        """
        Delete the records before an offset, -1 for all of them; return the new start.

        Raises:
            ApiError: With OFFSET_OUT_OF_RANGE, or POLICY_VIOLATION where the
                topic is compacted and nothing else.

        """
        with self._lock:
            if not self.config.deleted:
                raise ApiError(ErrorCode.POLICY_VIOLATION, f"{self.name} is compacted")
            if not -1 <= before_offset <= self._log_end_offset:
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name} ends at {self._log_end_offset}")
            self._start_at(self._log_end_offset if before_offset < 0 else before_offset)
            return self._log_start_offset

    def delete_old_segments(self, now: int) -> None:
        """Delete what retention.ms and retention.bytes no longer keep, by whole segments."""
        with self._lock:
            config = self.config
            if not config.deleted:
                return
            segments = self._segments
            excess = sum(segment.size for segment in segments) - config.retention_bytes
            for index, segment in enumerate(segments):
                has_time = segment.largest_timestamp >= 0
                is_old = has_time and 0 <= config.retention_ms < now - segment.largest_timestamp
                is_too_much = config.retention_bytes >= 0 and excess >= segment.size
                if segment.batch_count == 0 or not (is_old or is_too_much):
                    break
                excess -= segment.size
                later = segments[index + 1 :]
                self._start_at(later[0].base_offset if later else self._log_end_offset)

    def _start_at(self, offset: int) -> None:
        self._log_start_offset = max(offset, self._log_start_offset)
        ends = [*(segment.base_offset for segment in self._segments[1:]), self._log_end_offset]
        kept = [
            segment for segment, end in zip(self._segments, ends, strict=True) if end > self._log_start_offset
        ]
        for segment in self._segments:
            if segment not in kept:
                segment.delete()
        self._segments = kept or [self._new_segment(self._log_end_offset, capacity=0)]
        self._transactions.forget_before(self._log_start_offset)


def _made_ours(
    batch: RecordBatch, base_offset: int, leader_epoch: int, change: HeaderChange | None
) -> tuple[BatchHeader, bytearray]:
    """Return a batch's header as it is to be stored, as values and as bytes."""
    header = batch.header._replace(base_offset=base_offset, leader_epoch=leader_epoch)
    start = bytearray(batch.view[:HEADER_SIZE])
    _BASE_OFFSET.pack_into(start, 0, base_offset)
    _LEADER_EPOCH.pack_into(start, _LEADER_EPOCH_OFFSET, leader_epoch)
    if change is not None:
        header = header._replace(attributes=change.attributes, max_timestamp=change.max_timestamp)
        _ATTRIBUTES.pack_into(start, _ATTRIBUTES_OFFSET, change.attributes)
        _MAX_TIMESTAMP.pack_into(start, _MAX_TIMESTAMP_OFFSET, change.max_timestamp)
        crc = crc32c(batch.view[HEADER_SIZE:], crc32c(memoryview(start)[_CRC_COVERS_FROM:]))
        _CRC.pack_into(start, _CRC_OFFSET, crc)
    return header, start


def _nearest_offset(sequence: int, log_end_offset: int) -> int:
    """Return the offset that a sequence stands for, of those that it may the one nearest to the log's end."""
    ahead = (sequence - log_end_offset) % SEQUENCE_COUNT
    return log_end_offset + (ahead if ahead < SEQUENCE_COUNT // 2 else ahead - SEQUENCE_COUNT)


def _distance(first: RecordBatch, later: RecordBatch) -> int:
    """Return how many records lie between the first ones of two batches of a row."""
    return (later.header.base_sequence - first.header.base_sequence) % SEQUENCE_COUNT


def _is_same(stored: BatchHeader, sent: BatchHeader) -> bool:
    """Compare what the stock broker compares; the payload may have been compressed anew."""
    return (
        stored.producer_id == sent.producer_id
        and stored.producer_epoch == sent.producer_epoch
        and stored.base_sequence == sent.base_sequence
        and stored.last_offset_delta == sent.last_offset_delta
    )


def _append_info(last_written: BatchHeader, base_offset: int) -> AppendInfo:
    append_time = last_written.max_timestamp if last_written.is_log_append_time else -1
    return AppendInfo(base_offset, append_time, is_duplicate=False)


def _first_record_since(batch: RecordBatch, timestamp_ms: int) -> TimestampAndOffset:
    header = batch.header
    if header.magic == 2:
        with decompressed(batch) as pieces:
            # Of a stream the lengths were not looked at, either.
            for record in walk(header, pieces, with_lengths=False):
                if record.timestamp >= timestamp_ms:
                    return TimestampAndOffset(record.timestamp, header.base_offset + record.offset_delta)
    return TimestampAndOffset(max(header.base_timestamp, timestamp_ms), header.base_offset)

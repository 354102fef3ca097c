"""
A partition's log: its batches, and the state that a broker keeps about them.

Appending copies a batch, with its base offset and leader epoch. A read returns batches one after the other,
cut at the size limit, in the middle of a batch if need be (KIP-74).

There is one replica, so the high watermark is the log's end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shoal.error_codes import ErrorCode
from shoal.records import BatchHeader, RecordBatch, split
from shoal.records.aborted import Marker

from ..api_error import ApiError
from ..clock import now_ms
from ..config import TopicConfig
from .batches import Batches, TimestampAndOffset
from .leader_epochs import LeaderEpochs
from .multi_batch import count_written, nearest_offset, sequence_distance
from .producers import Producers, ProducerSnapshot
from .validate import check_crc
from .written import end_transaction_marker, placed

__all__ = ["AppendInfo", "Log", "ReadInfo"]


class AppendInfo(NamedTuple):
    """
    The place of a batch in the log, whether it was written now or before.

    Attributes:
        base_offset: The offset of its first record.
        log_append_time_ms: -1 if the batch was written now and keeps its create times.

    """

    base_offset: int
    log_append_time_ms: int


class ReadInfo(NamedTuple):
    """
    A slice of the log, and the offsets at the time.

    Attributes:
        high_watermark: The log's end.
        last_stable_offset: The start of the oldest open transaction, or the end.
        log_start_offset: The first offset that is not deleted.
        aborted_transactions: ``(producer_id, first_offset)``, for read_committed.
        record_set: Batches, from the one that holds the requested offset; the last may be cut.

    """

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: Sequence[tuple[int, int]]
    record_set: memoryview


class Log:
    """
    One partition's batches. Safe to use from several threads.

    Attributes:
        name: ``topic-partition``.
        config: The topic's, replaced when it is altered.
        epochs: Its leader epochs.

    """

    def __init__(self, name: str, config: TopicConfig) -> None:
        self.name = name
        self.config = config
        self._lock = threading.Lock()
        self._batches = Batches()
        self._log_start_offset = 0
        self._log_end_offset = 0
        self.epochs = LeaderEpochs()
        self._producers = Producers()
        self._watchers: set[threading.Event] = set()

    @property
    def log_start_offset(self) -> int:
        """The first offset that is not deleted."""
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next batch."""
        return self._log_end_offset

    @property
    def high_watermark(self) -> int:
        """The log's end."""
        return self._log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The start of the oldest open transaction, or the log's end."""
        with self._lock:
            return self._last_stable_offset()

    def _last_stable_offset(self) -> int:
        return self._producers.last_stable_offset(self._log_end_offset)

    # Appending

    def append(self, batch: RecordBatch) -> AppendInfo:
        """
        Append a batch from a client, unless the log has it already.

        Args:
            batch: A validated batch; its bytes are copied.

        Raises:
            ApiError: For its size, its epoch or its sequence.

        """
        header = batch.header
        self._check_fits_segment(header.size)
        with self._lock:
            if header.producer_id >= 0:
                producer = self._producers.get(header.producer_id)
                duplicate = producer.duplicate_of(header)
                if duplicate is not None:
                    return AppendInfo(duplicate.base_offset, duplicate.max_timestamp)
                producer.check(header)
            return self._write([batch])

    def compare_and_append(
        self,
        batches: Sequence[RecordBatch],
        validated: Callable[[RecordBatch], RecordBatch],
    ) -> AppendInfo:
        """
        Append those batches of one producer that the log does not have, all of them or none.

        Args:
            batches: One or more that :func:`~.multi_batch.admitted_batches` admitted.
            validated: Checks a batch that the log does not have. Returns it, or a batch in its place.

        Returns:
            The place of the first of them.

        Raises:
            ApiError: With OUT_OF_ORDER_SEQUENCE_NUMBER if the log neither has them at their sequences
                (modulo 2^31) nor ends there, or CORRUPT_MESSAGE if one has a wrong CRC; and as
                :meth:`append` and ``validated`` do.

        """
        with self._lock:
            first_offset = nearest_offset(batches[0].header.base_sequence, self._log_end_offset)
            producer = self._producers.get(batches[0].header.producer_id)
            count = count_written(batches, producer, first_offset, self._log_end_offset, self._header_at)
            if count is None:
                raise self._out_of_order(batches)
            if count == len(batches):
                written = self._header_at(first_offset + sequence_distance(batches[0], batches[-1]))
                assert written is not None, "it was counted"
                return AppendInfo(first_offset, written.max_timestamp)
            new = [validated(batch) for batch in batches[count:]]
            self._check_fits_segment(sum(batch.header.size for batch in new))
            producer.check(new[0].header)
            return self._write(new)._replace(base_offset=first_offset)

    def _header_at(self, offset: int) -> BatchHeader | None:
        is_there = self._log_start_offset <= offset < self._log_end_offset
        return self._batches.header_at(offset) if is_there else None

    def _out_of_order(self, batches: Sequence[RecordBatch]) -> ApiError:
        for batch in batches:
            check_crc(batch)  # if the CRC is wrong, the header may be wrong, too
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

    def append_marker(self, producer_id: int, producer_epoch: int, marker: Marker) -> None:
        """
        End a producer's transaction with a control batch.

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
            self._write([end_transaction_marker(producer_id, producer_epoch, marker, now_ms())])

    def store(self, record_set: bytes | bytearray | memoryview) -> None:
        """
        Append batches with their own offsets, as a follower does.

        For tests that need batches that no client can produce: with holes, empty, or in old formats.

        Raises:
            ValueError: Their offsets do not ascend.

        """
        with self._lock:
            for batch in split(memoryview(bytes(record_set))):
                if batch.header.base_offset < self._log_end_offset:
                    raise ValueError(
                        f"offset {batch.header.base_offset} is not {self._log_end_offset} or later"
                    )
                self._add(batch)
            self._wake_watchers()

    # For tests: what the cleaner, an election and a disk do to a log

    def end_at(self, offset: int) -> None:
        """
        End at an offset behind the last batch, as a log whose last batches compaction removed.

        Raises:
            ValueError: The log ends behind the offset.

        """
        with self._lock:
            if offset < self._log_end_offset:
                raise ValueError(f"{self.name} ends at {self._log_end_offset}, behind {offset}")
            self._log_end_offset = offset

    def inherit(self, other: Log) -> None:
        """Take the ends, leader epochs and producers of another log, as one whose batches were cleaned."""
        with self._lock:
            self._log_start_offset, self._log_end_offset = other.log_start_offset, other.log_end_offset
            self.epochs, self._producers = other.epochs, other._producers

    def truncated(self, end: int) -> Log:
        """Return a log with the batches that end at an offset or before it, as after an unclean election."""
        after = Log(self.name, self.config)
        with self._lock:
            for batch in self._batches:
                if batch.header.next_offset <= end:
                    after._add(batch)
            after.epochs.starts = [each for each in self.epochs.starts if each[1] <= after.log_end_offset]
        return after

    def flip_bit(self, batch_index: int, position: int, bit: int) -> None:
        """Flip one bit of a stored batch, as a disk that fails; a negative position counts from its end."""
        with self._lock:
            self._batches.flip_bit(batch_index, position, bit)

    def _write(self, batches: Sequence[RecordBatch]) -> AppendInfo:
        """Copy batches into the log; return the place of the first one, and the time of the last."""
        first_offset = self._log_end_offset
        for batch in batches:
            stored = placed(batch, self._log_end_offset, self.leader_epoch)
            self._add(stored)
        self._wake_watchers()
        header = stored.header
        return AppendInfo(first_offset, header.max_timestamp if header.is_log_append_time else -1)

    def _add(self, batch: RecordBatch) -> None:
        """Add a batch to the log's end, and note its producer and its transaction."""
        self._batches.append(batch)
        self._log_end_offset = batch.header.next_offset
        if batch.header.magic == 2 and batch.header.producer_id >= 0:
            self._producers.note(batch)

    # Reading

    def read(self, offset: int, max_bytes: int, *, committed: bool, at_least_one_batch: bool) -> ReadInfo:
        """
        Read from the batch that holds an offset.

        Args:
            offset: The first offset; the log's end returns nothing.
            max_bytes: The size limit; the last batch is cut to fit.
            committed: Stop at the last stable offset, and return the aborted transactions (isolation level
                read_committed).
            at_least_one_batch: Return the first batch whole, however large it is. Without it, a first batch
                that does not fit returns nothing.

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
            record_set, end_offset = self._batches.read(
                offset, upper_offset, max_bytes, at_least_one_batch=at_least_one_batch
            )
            aborted: Sequence[tuple[int, int]] = ()
            if committed and record_set:
                aborted = self._producers.aborted_in(offset, end_offset)
            return ReadInfo(
                self._log_end_offset, last_stable_offset, self._log_start_offset, aborted, record_set
            )

    def start(self) -> TimestampAndOffset:
        """Return the log's start, without a time."""
        with self._lock:
            return TimestampAndOffset(-1, self._log_start_offset, self.epochs.at(self._log_start_offset))

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampAndOffset:
        """Find the first record with this timestamp or a later one; raises as ``first_record_since``."""
        with self._lock:
            return self._batches.first_record_since(timestamp_ms, self._log_start_offset)

    def offset_of_max_timestamp(self) -> TimestampAndOffset:
        """Find the first record with the largest timestamp (KIP-734); raises as ``first_record_since``."""
        with self._lock:
            largest = self._batches.largest_timestamp
            if largest < 0:
                return TimestampAndOffset(-1, -1)
            return self._batches.first_record_since(largest, self._log_start_offset)

    def watch(self, by: threading.Event) -> None:
        """Set an event whenever there is more to read, until :meth:`unwatch`."""
        with self._lock:
            self._watchers.add(by)

    def unwatch(self, by: threading.Event) -> None:
        """Set this event no more."""
        with self._lock:
            self._watchers.discard(by)

    def _wake_watchers(self) -> None:
        for watcher in self._watchers:
            watcher.set()

    # Leader epochs

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Begin a new leader epoch at the log's end."""
        with self._lock:
            self.epochs.begin(leader_epoch, self._log_end_offset)
            # A client that waits for more may have to ask another leader.
            self._wake_watchers()

    @property
    def leader_epoch(self) -> int:
        """The epoch that appended batches get; it rises with every start of the broker."""
        return self.epochs.current

    def end_of_leader_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return the end of a leader epoch as :meth:`LeaderEpochs.end_of` does."""
        with self._lock:
            return self.epochs.end_of(leader_epoch, self._log_end_offset)

    # Producers

    def producers(self) -> list[ProducerSnapshot]:
        """Return the producers that wrote to the partition and have not expired."""
        with self._lock:
            return self._producers.snapshots()

    def has_open_transaction(self, producer_id: int) -> bool:
        """Return whether a producer has an open transaction in this partition."""
        with self._lock:
            return self._producers.has_open_transaction(producer_id)

    def forget_expired_producers(self, now: int, expiration_ms: int) -> None:
        """Forget producers whose last batch is older than ``producer.id.expiration.ms``."""
        with self._lock:
            self._producers.forget_expired(now, expiration_ms)

    # Deleting

    def delete_records(self, before_offset: int) -> int:
        """
        Delete the records before an offset, -1 for all of them; return the new start.

        Raises:
            ApiError: With OFFSET_OUT_OF_RANGE, or POLICY_VIOLATION if the topic is only compacted.

        """
        with self._lock:
            if not self.config.deleted:
                raise ApiError(ErrorCode.POLICY_VIOLATION, f"{self.name} is compacted")
            if not -1 <= before_offset <= self._log_end_offset:
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name} ends at {self._log_end_offset}")
            wanted = self._log_end_offset if before_offset < 0 else before_offset
            self._log_start_offset = max(wanted, self._log_start_offset)
            self._batches.delete_before(self._log_start_offset)
            self._producers.forget_before(self._log_start_offset)
            return self._log_start_offset

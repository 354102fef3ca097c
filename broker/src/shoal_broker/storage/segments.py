"""
The segments of a log: the one that takes the next batch, and the one that holds an offset or a time.

They are in memory, or files of a directory. The last one is the active one; there is always one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from shoal.error_codes import ErrorCode
from shoal.errors import CorruptBatch, UnsupportedBatch
from shoal.records import BatchHeader, RecordBatch, read_records, split
from shoal.records.walk import walk

from ..api_error import ApiError
from ..config import TopicConfig
from .file_segment import FileSegment
from .ranges import FileRange
from .segment import MemorySegment, Segment, indexed_header
from .validate import MOST_DECOMPRESSED_BYTES, decompressed

__all__ = ["Segments", "TimestampAndOffset"]

#: A segment in memory is twice as large as the one before it: an idle partition costs little, and a large one
#: has few.
_FIRST_SEGMENT_BYTES = 64 * 1024
_LARGEST_SEGMENT_BYTES = 16 * 1024 * 1024

_EMPTY = memoryview(b"")


class TimestampAndOffset(NamedTuple):
    """A record's timestamp and offset, and the leader epoch of its batch; each is -1 if there is none."""

    timestamp: int
    offset: int
    leader_epoch: int = -1


_NONE = TimestampAndOffset(-1, -1)


class Segments:
    """All segments of a log, in the order of their offsets. The log's lock guards it."""

    def __init__(self, config: TopicConfig, directory: Path | None) -> None:
        """
        Begin with one empty segment.

        Args:
            directory: The directory of the files, which is created if necessary; None for memory. The files
                that it has already are read by :meth:`recover`.

        """
        self._directory = directory
        first_offset = 0
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            first_offset = min(FileSegment.base_offsets(directory), default=0)
        self._all: list[Segment] = [self._new(first_offset, 0, config)]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._all)

    @property
    def active(self) -> Segment:
        """The segment that the next batch goes to, if it has room."""
        return self._all[-1]

    @property
    def base_offset(self) -> int:
        """The base offset of the first segment."""
        return self._all[0].base_offset

    def with_room(self, size: int, base_offset: int, config: TopicConfig) -> Segment:
        """
        Return the active segment, or a new one if it has no room.

        Args:
            size: The size of the batches.
            base_offset: The base offset of a new segment.

        """
        active = self.active
        if active.has_room(size):
            return active
        doubled = max(2 * active.capacity, _FIRST_SEGMENT_BYTES)
        capacity = max(size, min(doubled, _LARGEST_SEGMENT_BYTES, config.segment_bytes))
        if active.batch_count == 0:
            self._all.pop().delete()
        else:
            active.close()
        self._all.append(self._new(base_offset, capacity, config))
        return self.active

    def _new(self, base_offset: int, capacity: int, config: TopicConfig) -> Segment:
        """Create a segment; a file takes ``segment.bytes``, and no memory."""
        if self._directory is None:
            return MemorySegment(base_offset, capacity)
        capacity = max(capacity, config.segment_bytes)
        return FileSegment(self._directory, base_offset, capacity, config.index_interval_bytes)

    def recover(self, config: TopicConfig, replay: Callable[[RecordBatch], None], *, verify: bool) -> int:
        """
        Read the files of the directory.

        The first batch that is not whole is cut off, with everything after it, as Kafka does.

        Args:
            replay: Called with each batch, in order.
            verify: Check every CRC: the broker did not stop cleanly.

        Returns:
            The offset after the last batch.

        """
        assert self._directory is not None, "a log in memory has nothing to recover"
        self._all.clear()
        end_offset = 0
        is_whole = True

        def replayed(batch: RecordBatch) -> None:
            nonlocal end_offset
            end_offset = batch.header.next_offset
            replay(batch)

        for base_offset in FileSegment.base_offsets(self._directory):
            segment = self._new(base_offset, 0, config)
            assert isinstance(segment, FileSegment)
            if not is_whole:
                segment.delete()
                continue
            end_offset = max(end_offset, base_offset)
            is_whole = segment.recover(replayed, end_offset, verify=verify)
            self._all.append(segment)
        return end_offset

    def header_at(self, offset: int) -> BatchHeader | None:
        """Return the header of the batch that holds an offset; None if there is none of magic 2."""
        located = self._locate(offset)
        return None if located is None else located[0].header(located[1])

    def slice(
        self, offset: int, upper_offset: int, max_bytes: int, *, at_least_one_batch: bool
    ) -> tuple[memoryview | FileRange, int]:
        """
        Return batches of one segment, and the offset after them.

        Args:
            offset: The first batch is the one that holds it.
            upper_offset: The first batch that is not returned begins here.
            max_bytes: The size limit; it may fall into the middle of a batch (KIP-74).
            at_least_one_batch: Return the first batch whole, however large it is.

        """
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
        first = max(bisect_right(self._all, offset, key=lambda segment: segment.base_offset) - 1, 0)
        for segment in self._all[first:]:
            for index in range(segment.index_of_offset(offset), segment.batch_count):
                if segment.last_offset(index) >= offset:
                    return segment, index
        return None

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of all batches, in milliseconds; -1 for none."""
        return max(segment.largest_timestamp for segment in self._all)

    def first_record_since(self, timestamp_ms: int, start: int) -> TimestampAndOffset:
        """
        Find the first record with this timestamp or a later one, at an offset or after it.

        Kafka's ``UnifiedLog`` searches one segment, too: the first whose batches have this timestamp or a
        later one. Compaction may have emptied these batches, so the answer may be that there is none.
        """
        for segment in self._all:
            if segment.batch_count and segment.largest_timestamp >= timestamp_ms:
                return _first_in_segment(segment, timestamp_ms, start)
        return _NONE

    def starts(self) -> list[TimestampAndOffset]:
        """Return the base offset of each segment, with the time of its last write."""
        return [TimestampAndOffset(segment.modified_ms, segment.base_offset) for segment in self._all]

    def expired_before(self, config: TopicConfig, now: int, log_end_offset: int) -> int | None:
        """Return the end offset of the segments that retention.ms or retention.bytes expire, if any."""
        excess = sum(segment.size for segment in self._all) - config.retention_bytes
        end_offset = None
        for index, segment in enumerate(self._all):
            has_time = segment.largest_timestamp >= 0
            is_old = has_time and 0 <= config.retention_ms < now - segment.largest_timestamp
            is_too_much = config.retention_bytes >= 0 and excess >= segment.size
            if segment.batch_count == 0 or not (is_old or is_too_much):
                break
            excess -= segment.size
            end_offset = self._all[index + 1].base_offset if index + 1 < len(self._all) else log_end_offset
        return end_offset

    def delete_before(self, offset: int, log_end_offset: int, config: TopicConfig) -> None:
        """Delete the segments that end before an offset."""
        ends = [*(segment.base_offset for segment in self._all[1:]), log_end_offset]
        kept = [segment for segment, end in zip(self._all, ends, strict=True) if end > offset]
        for segment in self._all:
            if segment not in kept:
                segment.delete()
        self._all = kept or [self._new(log_end_offset, 0, config)]


def _first_in_segment(segment: Segment, timestamp_ms: int, start: int) -> TimestampAndOffset:
    for index in range(segment.index_of_timestamp(timestamp_ms), segment.batch_count):
        if segment.last_offset(index) < start:
            continue
        header = segment.header(index)
        if header is not None and (header.max_timestamp < timestamp_ms or not header.records_count):
            continue
        batch = next(split(segment.batch(index)))
        if header is None:
            found = _first_in_message(batch, timestamp_ms, start)
        else:
            found = _first_in_batch(batch, timestamp_ms, start)
        if found is not None:
            return found
    return _NONE


def _first_in_message(message: RecordBatch, timestamp_ms: int, start: int) -> TimestampAndOffset | None:
    """Search a message of magic 0 or 1. One of magic 0 has no time, and neither has a leader epoch."""
    if indexed_header(message).max_timestamp < timestamp_ms:
        return None
    try:
        records = read_records(message, MOST_DECOMPRESSED_BYTES)
    except CorruptBatch as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, error.reason) from error
    except UnsupportedBatch as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, error.reason) from error
    for record in records:
        if record.timestamp >= timestamp_ms and record.offset >= start:
            return TimestampAndOffset(record.timestamp, record.offset)
    return None


def _first_in_batch(batch: RecordBatch, timestamp_ms: int, start: int) -> TimestampAndOffset | None:
    header = batch.header
    with decompressed(batch) as pieces:
        # The broker did not check the lengths in a compressed batch, either.
        for record in walk(header, pieces, with_lengths=False):
            offset = header.base_offset + record.offset_delta
            if record.timestamp >= timestamp_ms and offset >= start:
                return TimestampAndOffset(record.timestamp, offset, header.leader_epoch)
    return None

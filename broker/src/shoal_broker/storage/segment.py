"""
A run of a partition's batches, back to back, as in one of Kafka's segment files.

Every segment has an index of all its batches in memory. The bytes are in memory (:class:`MemorySegment`), or
in a file (:mod:`.file_segment`).
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from shoal.records import HEADER_SIZE, BatchHeader, RecordBatch, read_header
from shoal.records.batch import MAGIC_OFFSET

from ..clock import now_ms
from .ranges import Bytes, FileRange

__all__ = ["MemorySegment", "Segment", "indexed_header"]

#: The timestamp of a message of magic 1, behind its attributes.
_MESSAGE_TIMESTAMP = struct.Struct(">q")
_MESSAGE_TIMESTAMP_OFFSET = MAGIC_OFFSET + 2


def indexed_header(batch: RecordBatch) -> BatchHeader:
    """Return a batch's header, for a message of magic 1 with its time; compressed ones have their largest."""
    header = batch.header
    if header.magic != 1 or len(batch.view) < _MESSAGE_TIMESTAMP_OFFSET + _MESSAGE_TIMESTAMP.size:
        return header
    (timestamp,) = _MESSAGE_TIMESTAMP.unpack_from(batch.view, _MESSAGE_TIMESTAMP_OFFSET)
    return header._replace(max_timestamp=timestamp)


class Segment(ABC):
    """
    Batches one after the other, with an index of all of them.

    Attributes:
        base_offset: The offset of its first record, now or later.
        capacity: The most bytes.
        size: The bytes in use.

    """

    def __init__(self, base_offset: int, capacity: int) -> None:
        self.base_offset = base_offset
        self.capacity = capacity
        self.size = 0
        self._base_offsets = array("q")
        self._last_offsets = array("q")
        self._positions = array("q")
        # The largest timestamp up to and with each batch: ascending, so it can be searched.
        self._largest_timestamps = array("q")

    @property
    def batch_count(self) -> int:
        """The number of batches."""
        return len(self._positions)

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of all its batches, in milliseconds; -1 for none."""
        return self._largest_timestamps[-1] if self._largest_timestamps else -1

    def has_room(self, size: int) -> bool:
        """Return whether batches of this size fit."""
        return self.size + size <= self.capacity

    @property
    @abstractmethod
    def modified_ms(self) -> int:
        """The time of the last write."""

    def append(
        self, parts: Sequence[Bytes], headers: Sequence[BatchHeader], *, flushed: bool = False
    ) -> None:
        """
        Copy batches to the end, all of them or none.

        Args:
            parts: All their bytes, in order.
            headers: The header of each batch, with its final base offset and timestamp.
            flushed: Flush them, and all batches before them.

        Raises:
            OSError: They could not be written; nothing changed.

        """
        try:
            self._write(parts)
            if flushed:
                self.flush()
        except OSError:
            self._cut()
            raise
        for header in headers:
            self._add_to_index(header)

    def _add_to_index(self, header: BatchHeader) -> None:
        self._base_offsets.append(header.base_offset)
        self._last_offsets.append(header.last_offset)
        self._positions.append(self.size)
        self._largest_timestamps.append(max(header.max_timestamp, self.largest_timestamp))
        self.size += header.size

    @abstractmethod
    def flush(self) -> None:
        """Flush all batches to the disk."""

    @abstractmethod
    def close(self) -> None:
        """Complete the index files, and flush; more batches may still be appended."""

    @abstractmethod
    def delete(self) -> None:
        """Free memory or files; ranges that were read stay valid."""

    @abstractmethod
    def _write(self, parts: Sequence[Bytes]) -> None:
        """Write parts after the bytes in use."""

    @abstractmethod
    def _cut(self) -> None:
        """Cut off the rest of an append that failed."""

    @abstractmethod
    def read(self, start: int, end: int) -> memoryview | FileRange:
        """Return the bytes between two positions, in a form that is sent without a copy."""

    @abstractmethod
    def peek(self, start: int, end: int) -> memoryview:
        """Return the bytes between two positions, in memory."""

    def batch(self, index: int) -> memoryview:
        """Return the bytes of a batch."""
        return self.peek(self.position(index), self.position(index + 1))

    def header(self, index: int) -> BatchHeader | None:
        """Return the header of a batch; None for one that is not of magic 2."""
        start = self.position(index)
        found = self.peek(start, min(start + HEADER_SIZE, self.size))
        return read_header(found) if found[MAGIC_OFFSET] == 2 else None

    def position(self, index: int) -> int:
        """Return the position of a batch; of the index after the last, the end of the segment."""
        return self._positions[index] if index < self.batch_count else self.size

    def last_offset(self, index: int) -> int:
        """Return the last offset of a batch."""
        return self._last_offsets[index]

    def position_of_offset(self, offset: int) -> int:
        """Return the position of the first batch that begins at ``offset`` or after it."""
        return self.position(bisect_left(self._base_offsets, offset))

    def index_of_offset(self, offset: int) -> int:
        """Return the index of the last batch that begins at ``offset`` or before it, or 0."""
        return max(bisect_right(self._base_offsets, offset) - 1, 0)

    def offset_after(self, position: int) -> int | None:
        """Return the base offset of the first batch at ``position`` or after it, if there is one."""
        index = bisect_left(self._positions, position)
        return self._base_offsets[index] if index < self.batch_count else None

    def index_of_timestamp(self, timestamp_ms: int) -> int:
        """Return the index of the first batch with a record at this time or later; the count for none."""
        return bisect_left(self._largest_timestamps, timestamp_ms)


class MemorySegment(Segment):
    """
    Batches in one buffer.

    The buffer never moves, so views of it stay valid while more is appended
    after them. It is allocated at once, but the system provides its pages only
    when they are written. A log's first segment has no capacity.
    """

    def __init__(self, base_offset: int, capacity: int) -> None:
        super().__init__(base_offset, capacity)
        self._buffer = memoryview(bytearray(capacity))
        self._modified_ms = now_ms()

    @property
    def modified_ms(self) -> int:
        """The time of the last write."""
        return self._modified_ms

    def _write(self, parts: Sequence[Bytes]) -> None:
        position = self.size
        for part in parts:
            end = position + len(part)
            self._buffer[position:end] = part
            position = end
        self._modified_ms = now_ms()

    def read(self, start: int, end: int) -> memoryview:
        """Return the bytes between two positions, as a view that cannot be written."""
        return self._buffer[start:end].toreadonly()

    def peek(self, start: int, end: int) -> memoryview:
        """Return the bytes between two positions."""
        return self.read(start, end)

    def _cut(self) -> None:
        """Do nothing: the next append overwrites it."""

    def flush(self) -> None:
        """Do nothing: memory has no disk."""

    def close(self) -> None:
        """Do nothing: memory has no index files."""

    def delete(self) -> None:
        """Do nothing: the buffer is freed with its last view."""

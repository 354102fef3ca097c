"""
A run of a partition's batches, back to back, as in one of Kafka's segment files.

In memory for now. What a log asks of a segment is what a file can give too:
append bytes at the end, read a range of positions, find the position of an
offset or of a timestamp.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from ..records import BatchHeader

__all__ = ["Segment"]


class Segment:
    """
    Batches in one buffer, with an index of all of them.

    The buffer never moves, so views of it stay valid while more is appended
    behind them. It is taken at once, but the system lends its pages only as
    they are written.

    Attributes:
        base_offset: The offset of its first record, or where that would go.
        size: Bytes in use.

    """

    def __init__(self, base_offset: int, capacity: int) -> None:
        """Take ``capacity`` bytes; a log's first segment begins with none."""
        self.base_offset = base_offset
        self.size = 0
        self._buffer = memoryview(bytearray(capacity))
        self._base_offsets = array("q")
        self._positions = array("q")
        # The largest timestamp up to and with each batch: ascending, so it can be searched.
        self._largest_timestamps = array("q")

    @property
    def capacity(self) -> int:
        return len(self._buffer)

    @property
    def batch_count(self) -> int:
        return len(self._positions)

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of all its batches, in milliseconds; -1 for none."""
        return self._largest_timestamps[-1] if self._largest_timestamps else -1

    def has_room(self, size: int) -> bool:
        return self.size + size <= self.capacity

    def append(self, data: memoryview, header: BatchHeader) -> memoryview:
        """
        Copy a batch to the end.

        Args:
            data: All bytes of it.
            header: What the index shall hold: the final base offset and timestamp.

        Returns:
            The stored bytes, to be put right before anyone is told of them.

        """
        start, end = self.size, self.size + len(data)
        self._buffer[start:end] = data
        self._base_offsets.append(header.base_offset)
        self._positions.append(start)
        self._largest_timestamps.append(max(header.max_timestamp, self.largest_timestamp))
        self.size = end
        return self._buffer[start:end]

    def read(self, start: int, end: int) -> memoryview:
        """Return the bytes between two positions, as a view that cannot be written."""
        return self._buffer[start:end].toreadonly()

    def batch(self, index: int) -> memoryview:
        return self.read(self.position(index), self.position(index + 1))

    def position(self, index: int) -> int:
        """Return where a batch begins; for the index after the last, where the segment ends."""
        return self._positions[index] if index < self.batch_count else self.size

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

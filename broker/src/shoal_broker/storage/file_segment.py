"""
A segment in Kafka's own files: ``.log``, ``.index`` and ``.timeindex``.

::

    00000000000000000042.log        batches back to back, as they go over the wire
    00000000000000000042.index      offset - 42 (int32), position (int32)
    00000000000000000042.timeindex  timestamp (int64), offset - 42 (int32)

The name is the base offset. An index has an entry about every
``index.interval.bytes``: the last offset of a batch and where it begins; the
largest timestamp so far and the last offset of its batch. This broker has its own
index of every batch and never reads them; they are for Kafka's tools, and for a
Kafka that gets the directory.

A write goes to the system's cache: it survives the process. Only
:meth:`FileSegment.flush` makes it survive the machine.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from shoal.errors import CorruptBatch
from shoal.net.gathered import IOV_MAX
from shoal.printable import logger
from shoal.records import BatchHeader, RecordBatch, split, verify_crc

from .log_dir_failure import flush_data, flush_directory
from .ranges import Bytes, FileRange, OpenFile
from .segment import Segment, indexed_header

__all__ = ["FileSegment", "file_names"]

_log = logger("shoal_broker")

_INDEX_ENTRY = struct.Struct(">ii")
_TIME_INDEX_ENTRY = struct.Struct(">qi")
#: Offsets in an index are relative and of 32 bits.
_MOST_OFFSETS = 2**31 - 1

_NAME_DIGITS = 20
_SUFFIXES = (".log", ".index", ".timeindex")


def file_names(base_offset: int) -> list[str]:
    """Return the names of a segment's files, the log's first."""
    return [f"{base_offset:0{_NAME_DIGITS}}{suffix}" for suffix in _SUFFIXES]


class _IndexFile:
    """
    An index file of a segment, and the entries that are not written yet.

    An index never makes an append fail: if an entry could not be written, the next entry tries again.
    """

    def __init__(self, path: Path) -> None:
        """Begin an empty file."""
        self._path = path
        self._path.write_bytes(b"")
        self._written_bytes = 0
        self._noted = bytearray()

    def note(self, entry: bytes) -> None:
        self._noted += entry

    def write(self) -> None:
        """
        Write the entries that are not written yet.

        Raises:
            OSError: Some could not be written; they stay noted.

        """
        if not self._noted:
            return
        with self._path.open("r+b", buffering=0) as file:
            file.seek(self._written_bytes)
            while self._noted:
                count = file.write(self._noted)
                self._written_bytes += count
                del self._noted[:count]


class FileSegment(Segment):
    """A segment whose bytes are in a directory of its partition."""

    def __init__(self, directory: Path, base_offset: int, capacity: int, index_interval_bytes: int) -> None:
        """
        Open a segment's files, or create them.

        :meth:`recover` reads the batches that they have already.

        """
        super().__init__(base_offset, capacity)
        self._path = directory / file_names(base_offset)[0]
        self._file = OpenFile(self._path)
        self._index_interval_bytes = index_interval_bytes
        self._name_is_flushed = False
        self._bytes_since_entry = 0
        self._largest = (-1, base_offset)
        self._newest_in_index = -1
        self._index = _IndexFile(self._path.with_suffix(".index"))
        self._time_index = _IndexFile(self._path.with_suffix(".timeindex"))

    @property
    def modified_ms(self) -> int:
        """The time of the last write."""
        return os.fstat(self._file.descriptor).st_mtime_ns // 1_000_000

    @staticmethod
    def base_offsets(directory: Path) -> list[int]:
        """Return the base offsets of a partition's segments, in order."""
        return sorted(int(path.stem) for path in directory.glob("*.log") if path.stem.isdigit())

    def has_room(self, size: int) -> bool:
        """Return whether batches of this size fit, and their offsets into the index."""
        is_near = not self.batch_count or self.last_offset(self.batch_count - 1) - self.base_offset < (
            _MOST_OFFSETS - size
        )
        return super().has_room(size) and is_near

    def recover(self, replay: Callable[[RecordBatch], None], next_offset: int, *, verify: bool) -> bool:
        """
        Read the file, and cut off the first batch that is not whole, with everything after it.

        Args:
            replay: Called with each batch, in order.
            next_offset: The first batch begins at this offset or later.
            verify: Check CRCs, too: the broker did not stop cleanly.

        Returns:
            Whether the file was whole.

        """
        length = os.fstat(self._file.descriptor).st_size
        if length:
            mapped = mmap.mmap(self._file.descriptor, length, access=mmap.ACCESS_READ)
            self._replay(memoryview(mapped), replay, next_offset, verify)
        self._write_indexes()
        if self.size == length:
            return True
        _log.warning("%s: cutting off %d bytes that are not a whole batch", self._path, length - self.size)
        os.ftruncate(self._file.descriptor, self.size)
        return False

    def _replay(
        self, stored: memoryview, replay: Callable[[RecordBatch], None], next_offset: int, verify: bool
    ) -> None:
        try:
            for batch in split(stored):
                header = batch.header
                if verify:
                    verify_crc(batch)
                if header.base_offset < next_offset:
                    raise CorruptBatch(f"offset {header.base_offset} is not {next_offset} or later")
                self._add_to_index(indexed_header(batch))
                next_offset = header.next_offset
                replay(batch)
        except CorruptBatch as error:
            _log.warning("%s, position %d: %s", self._path, self.size, error.reason)

    def append(
        self, parts: Sequence[Bytes], headers: Sequence[BatchHeader], *, flushed: bool = False
    ) -> None:
        """Append batches as :meth:`Segment.append` does, and write the index files."""
        super().append(parts, headers, flushed=flushed)
        try:
            self._write_indexes()
        except OSError as error:
            _log.warning("%s: its indexes are behind: %s", self._path, error)

    def _add_to_index(self, header: BatchHeader) -> None:
        """Note the entries of the index files, as ``LogSegment.append`` does."""
        if header.max_timestamp > self._largest[0]:
            self._largest = header.max_timestamp, header.last_offset
        if self._bytes_since_entry > self._index_interval_bytes:
            self._index.note(_INDEX_ENTRY.pack(header.last_offset - self.base_offset, self.size))
            self._add_largest_timestamp()
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size
        super()._add_to_index(header)

    def _add_largest_timestamp(self) -> None:
        timestamp, offset = self._largest
        if timestamp > self._newest_in_index:
            self._time_index.note(_TIME_INDEX_ENTRY.pack(timestamp, offset - self.base_offset))
            self._newest_in_index = timestamp

    def _write_indexes(self) -> None:
        self._index.write()
        self._time_index.write()

    def _write(self, parts: Sequence[Bytes]) -> None:
        left = [memoryview(part) for part in parts]
        position = self.size
        while left:
            written = os.pwritev(self._file.descriptor, left[:IOV_MAX], position)
            position += written
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = left[0][written:]

    def _cut(self) -> None:
        os.ftruncate(self._file.descriptor, self.size)

    def flush(self) -> None:
        """Flush the file, and its name once."""
        flush_data(self._file.descriptor)
        if not self._name_is_flushed:
            flush_directory(self._path.parent)
            self._name_is_flushed = True

    def close(self) -> None:
        """Complete the index files, and flush; more batches may still be appended."""
        self._add_largest_timestamp()
        try:
            self._write_indexes()
        finally:
            self.flush()

    def delete(self) -> None:
        """Remove its files; ranges that are being sent stay readable."""
        for suffix in _SUFFIXES:
            self._path.with_suffix(suffix).unlink(missing_ok=True)

    def read(self, start: int, end: int) -> FileRange:
        """Return the bytes between two positions, as a range of the file."""
        return FileRange(self._file, start, end)

    def peek(self, start: int, end: int) -> memoryview:
        """Return the bytes between two positions, in memory."""
        return memoryview(bytes(self.read(start, end)))

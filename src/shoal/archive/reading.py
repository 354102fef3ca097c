"""
The batches of an archived partition, read from its objects in the order of their offsets.

The whole object is read against its digest before the first byte of it is returned, once in a process. So a
damaged object stops its partition where it begins.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import xxhash

from ..records import read_header, read_records
from ..records.batch import HEADER_SIZE, LOG_OVERHEAD, RecordBatch
from .aborted import AbortedEntry, read_index
from .directory import DamagedObject, PartitionObjects
from .names import ObjectName
from .segment import digest_of
from .store import StoredFile

__all__ = ["PartitionReader", "ReadBatches"]

_PIECE_BYTES = 8 * 1024 * 1024
_HEAD = struct.Struct(">qiib")
_DELTA = struct.Struct(">i")

#: Objects that this process has read against their digests.
_verified: set[str] = set()
_verifying = threading.Lock()


class ReadBatches(NamedTuple):
    """
    Batches of one object.

    Attributes:
        record_set: Whole batches; the first has the wanted offset, or is the next one behind it.
        aborted: ``(producer_id, first_offset)`` of the aborted transactions among them.

    """

    record_set: bytes
    aborted: Sequence[tuple[int, int]]


class _Opened(NamedTuple):
    """An object that is being read: its file, its index, and the offset at which another one takes over."""

    name: ObjectName
    file: StoredFile
    entries: Sequence[AbortedEntry]
    until: int


class PartitionReader:
    """The batches of one partition; for one thread."""

    def __init__(self, objects: PartitionObjects) -> None:
        self.objects = objects
        self._opened: _Opened | None = None
        #: The place in the opened object, and the offset there.
        self._position = 0
        self._offset = -1

    def read(self, offset: int, most_bytes: int) -> ReadBatches | None:
        """
        Return batches from an offset on: at least one, and otherwise at most so many bytes.

        Returns:
            None at the end of the archive.

        Raises:
            DamagedObject: The object is damaged, or missing.
            ShoalError: The store does not answer.

        """
        while True:
            opened = self._open_at(offset)
            if opened is None:
                return None
            found, next_offset = _read_until(opened, self._position, most_bytes, self.objects)
            if found:
                self._position, self._offset = self._position + len(found), next_offset
                return ReadBatches(found, self._aborted(opened, offset, next_offset))
            # Nothing is left of the object: the next one begins behind it.
            offset = max(offset, min(opened.until, self.objects.facts(opened.name).next_offset))
            self.close()

    def _open_at(self, offset: int) -> _Opened | None:
        opened = self._opened
        if opened is not None and offset == self._offset:
            behind = min(opened.until, self.objects.facts(opened.name).next_offset)
            if offset < behind:
                return opened
        self.close()
        found = self.objects.at(offset)
        if found is None:
            return None
        name, until = found
        self._opened = opened = self._open(name, until)
        self._position, self._offset = _seek(opened, offset, self.objects)
        return opened

    def _open(self, name: ObjectName, until: int) -> _Opened:
        objects = self.objects
        facts = objects.facts(name)
        try:
            file = objects.store.open(f"{objects.path}/{name}.log")
        except FileNotFoundError:
            raise DamagedObject(objects.where(name), "it is missing") from None
        try:
            _verify(file, objects.where(name), facts.log_digest, facts.log_bytes)
            entries = self._read_index(name) if facts.index_bytes else []
        except BaseException:
            file.close()
            raise
        return _Opened(name, file, entries, until)

    def _read_index(self, name: ObjectName) -> Sequence[AbortedEntry]:
        objects, facts = self.objects, self.objects.facts(name)
        where = objects.where(name, "txnindex")
        try:
            file = objects.store.open(f"{objects.path}/{name}.txnindex")
        except FileNotFoundError:
            raise DamagedObject(where, "it is missing") from None
        try:
            if file.size != facts.index_bytes:
                raise DamagedObject(
                    where, f"it has {file.size:,} bytes, but its description {facts.index_bytes:,}"
                )
            data = file.read_at(0, file.size)
        finally:
            file.close()
        if digest_of(data) != facts.index_digest:
            raise DamagedObject(where, "its digest differs from its description")
        try:
            return read_index(data)
        except ValueError as error:
            raise DamagedObject(where, str(error)) from None

    def _aborted(self, opened: _Opened, offset: int, end: int) -> Sequence[tuple[int, int]]:
        ended = [
            (each.producer_id, each.first_offset)
            for each in opened.entries
            if each.last_offset >= offset and each.first_offset < end
        ]
        later = [each for each in self.objects.facts(opened.name).aborted_later if each[1] < end]
        return [*ended, *later]

    def offset_at(self, timestamp_ms: int, most_decompressed_bytes: int) -> tuple[int, int] | None:
        """
        Return the first offset whose record is not before a time, with that time; None without one.

        Raises:
            ShoalError: As :meth:`read`, or a batch cannot be decoded.

        """
        for name in self.objects.names:
            facts = self.objects.facts(name)
            if facts.newest_ms < timestamp_ms:
                continue
            offset = max(name.base_offset, self.objects.start_offset or 0)
            while offset < facts.next_offset and (found := self.read(offset, _PIECE_BYTES)) is not None:
                record = _first_since(found.record_set, timestamp_ms, offset, most_decompressed_bytes)
                if record is not None:
                    return record
                offset = self._offset
        return None

    def close(self) -> None:
        """Close the object that is open."""
        if self._opened is not None:
            self._opened.file.close()
        self._opened = None


def _verify(file: StoredFile, where: str, digest: str, size: int) -> None:
    key = f"{where} {digest}"
    with _verifying:
        if key in _verified:
            return
    if file.size != size:
        raise DamagedObject(where, f"it has {file.size:,} bytes, but its description {size:,}")
    computed = xxhash.xxh3_128()
    position = 0
    while position < size:
        piece = file.read_at(position, _PIECE_BYTES)
        if not piece:
            raise DamagedObject(where, f"it ends after {position:,} bytes, but its description has {size:,}")
        computed.update(piece)
        position += len(piece)
    if computed.hexdigest() != digest:
        raise DamagedObject(where, "its digest differs from its description")
    with _verifying:
        _verified.add(key)


def _walk(data: memoryview, see: Callable[[int, int], bool]) -> int:
    """
    Call a function for each whole batch, until it returns False; return the position behind the last.

    Args:
        see: Receives the base offset and the offset behind the batch.

    """
    position, end = 0, len(data)
    while end - position >= LOG_OVERHEAD + _HEAD.size - 12:
        base, length, _, magic = _HEAD.unpack_from(data, position)
        following = position + LOG_OVERHEAD + length
        if length <= 0 or following > end:
            break
        delta = _DELTA.unpack_from(data, position + 23)[0] if magic == 2 and length >= HEADER_SIZE - 12 else 0
        if not see(base, base + delta + 1):
            break
        position = following
    return position


def _read_until(
    opened: _Opened, position: int, most_bytes: int, objects: PartitionObjects
) -> tuple[bytes, int]:
    """Return whole batches from a position on that begin before `until`, and the offset behind them."""
    next_offset = 0

    def see(base: int, behind: int) -> bool:
        nonlocal next_offset
        if base >= opened.until:
            return False
        next_offset = behind
        return True

    return _read_whole(opened, position, most_bytes, objects, see), next_offset


def _read_whole(
    opened: _Opened,
    position: int,
    most_bytes: int,
    objects: PartitionObjects,
    see: Callable[[int, int], bool],
) -> bytes:
    """Return whole batches from a position on, up to the first for which a function returns False."""
    size = opened.file.size
    if position >= size:
        return b""
    data = opened.file.read_at(position, min(max(most_bytes, HEADER_SIZE), size - position))
    end = _walk(memoryview(data), see)
    if not end and len(data) >= LOG_OVERHEAD:
        whole = LOG_OVERHEAD + _DELTA.unpack_from(data, 8)[0]
        if _HEAD.size <= len(data) < whole <= size - position:
            data = opened.file.read_at(position, whole)  # one batch is larger than all that was wanted
            end = _walk(memoryview(data), see)
        elif whole > size - position:
            raise DamagedObject(objects.where(opened.name), f"the batch at byte {position} is cut short")
    return data[:end]


def _seek(opened: _Opened, offset: int, objects: PartitionObjects) -> tuple[int, int]:
    """Return the position of the batch that has an offset, or of the next one, with the offset itself."""
    position, size = 0, opened.file.size
    if offset <= opened.name.base_offset:
        return 0, offset
    is_found = False

    def see(base: int, behind: int) -> bool:
        nonlocal is_found
        is_found = behind > offset
        return not is_found

    while position < size and not is_found:
        position += len(_read_whole(opened, position, _PIECE_BYTES, objects, see))
    return position, offset


def _first_since(
    record_set: bytes, timestamp_ms: int, offset: int, most_decompressed_bytes: int
) -> tuple[int, int] | None:
    view = memoryview(record_set)
    position = 0
    while len(view) - position >= HEADER_SIZE:
        header = read_header(view, position)
        size = LOG_OVERHEAD + header.batch_length
        if header.magic == 2 and header.max_timestamp >= timestamp_ms and not header.is_control:
            batch = RecordBatch(header, view[position : position + size])
            for record in read_records(batch, most_decompressed_bytes):
                at_ms = header.max_timestamp if header.is_log_append_time else record.timestamp
                if record.offset >= offset and at_ms >= timestamp_ms:
                    return record.offset, at_ms
        position += size
    return None

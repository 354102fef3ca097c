"""
The batches of an archived partition, read from its objects in the order of their offsets.

The whole object is read against its digest before the first byte of it is returned. So a damaged object
stops its partition where it begins. That reading marks places between batches, so that a local file is sent
from one to another without being read again by this process. It also makes a local file of an object of a
store, which is downloaded once, by a thread of its own (:mod:`.downloads`).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import xxhash

from ..errors import BeingDownloaded
from ..records import RecordBatch, read_records, split
from ..records.batch import DELETE_HORIZON, HEADER_SIZE, LOG_OVERHEAD
from ..records.compression import DEFAULT_LIMIT_BYTES
from ..records.legacy import read_timestamp
from . import downloads
from .aborted import AbortedEntry, read_index
from .description import DamagedObject
from .files import StoredFile, read_whole
from .names import ObjectName
from .objects import PartitionObjects
from .segment import digest_of

__all__ = ["PartitionReader", "ReadBatches"]

_HEAD = struct.Struct(">qi4xb")
_LENGTH = _DELTA = struct.Struct(">i")

#: The least length of a batch by its magic: that of a record without key and value, in the first two.
_LEAST_LENGTHS = (14, 22, HEADER_SIZE - LOG_OVERHEAD)


#: A request waits so long for a local object. If its disk is slower, the client asks again meanwhile.
_LOCAL_DISK_S = 1.0


class ReadBatches(NamedTuple):
    """
    Batches of one object.

    Attributes:
        record_set: Whole batches to be sent, perhaps a :class:`~.files.FileRange`; the first has the wanted
            offset, or is the next one behind it.
        aborted: ``(producer_id, first_offset)`` of the aborted transactions among them.

    """

    record_set: memoryview
    aborted: Sequence[tuple[int, int]]


@dataclass(slots=True)
class _Opened:
    """An object that is being read."""

    name: ObjectName
    where: str
    file: StoredFile
    entries: Sequence[AbortedEntry]
    #: The offset at which another object takes over, or the offset behind this one.
    until: int
    #: The position of the next batch, and an offset that it is not before.
    position: int
    offset: int
    #: Such places, one behind each piece that was read against the digest.
    marks: list[tuple[int, int]] = field(default_factory=list)

    def seek(self, offset: int) -> None:
        """Go to the batch that has an offset, or the next one."""
        room = self._room()
        while self.offset < offset and self.position < self.file.size:
            begins_at = self.position
            for following, _, next_offset in _batches(self._piece(room), self.offset):
                if next_offset > offset:
                    self.offset = offset
                    return
                self.position, self.offset = begins_at + following, next_offset

    def verify(self, digest: str, check: Callable[[], None]) -> None:
        """
        Read the whole object against its digest, mark places, keep it in a local file, and come back.

        Args:
            digest: The digest.
            check: Raises if it is to end.

        """
        computed = xxhash.xxh3_128()
        with ExitStack() as stack:
            copy = self.file.local_copy()
            if copy is not None:
                stack.callback(copy.close)
            for piece in self.pieces():
                check()
                computed.update(piece)
                self.marks.append((self.position, self.offset))
                copy = copy if copy is not None and copy.append(piece) else None
            self.rewind()
            if computed.hexdigest() != digest:
                raise DamagedObject(self.where, "its digest differs from its description")
            if copy is not None:
                self.file.close()
                self.file = copy
                stack.pop_all()

    def rewind(self) -> None:
        """Go back to the first batch."""
        self.position, self.offset = 0, self.name.base_offset

    def pass_on(self, room: memoryview) -> memoryview:
        """Return the next batches up to a marked place, to be sent; without one, as :meth:`read`."""
        begin = self.position
        in_reach = bisect_right(self.marks, (begin + len(room), self.until))
        position, offset = self.marks[in_reach - 1] if in_reach else (begin, self.offset)
        if position <= begin or offset > self.until:
            return self.read(room)
        self.position, self.offset = position, offset
        return self.file.part(begin, position - begin, room)

    def pieces(self) -> Iterator[memoryview]:
        """Yield the batches from here on, each piece in the memory of the one before."""
        room = self._room()
        while piece := self.read(room):
            yield piece

    def batches(self) -> Iterator[RecordBatch]:
        """Yield the batches from here on, each a view that is valid until the next piece."""
        for piece in self.pieces():
            yield from split(piece)

    def _room(self) -> memoryview:
        return memoryview(bytearray(min(self.file.piece_bytes, self.file.size)))

    def read(self, room: memoryview) -> memoryview:
        """Return the next batches that begin before :attr:`until`, and go behind them; see :meth:`_piece`."""
        if self.position >= self.file.size or self.offset >= self.until:
            return room[:0]
        data, end = self._piece(room), 0
        for following, begins, next_offset in _batches(data, self.offset):
            if begins >= self.until:
                break
            end, self.offset = following, next_offset
        self.position += end
        return data[:end]

    def _piece(self, room: memoryview) -> memoryview:
        """Return the next bytes, with one whole batch at least: in the room, unless that batch is larger."""
        if len(room) < HEADER_SIZE:
            room = memoryview(bytearray(HEADER_SIZE))
        data = room[: self.file.read_into(self.position, room)]
        if next(_batches(data, self.offset), None) is not None:
            return data
        whole = LOG_OVERHEAD + _LENGTH.unpack_from(data, 8)[0] if len(data) >= LOG_OVERHEAD else 0
        if len(data) < whole <= self.file.size - self.position:
            return self._piece(memoryview(bytearray(whole)))
        reason = f"from byte {self.position} on it has no whole batch at offset {self.offset} or behind"
        raise DamagedObject(self.where, reason)

    def close(self) -> None:
        self.file.close()


def _batches(data: memoryview, offset: int) -> Iterator[tuple[int, int, int]]:
    """
    Yield the position behind each whole batch, an offset at which it begins or before, and the one behind it.

    The header of an old wrapper has the offset of its last message alone. The walk ends before bytes that are
    no whole batch, and before a batch that does not follow: it ends at or before the given offset, or the end
    of the last one.
    """
    position, end = 0, len(data)
    while end - position >= _HEAD.size:
        base, length, magic = _HEAD.unpack_from(data, position)
        following = position + LOG_OVERHEAD + length
        if not 0 <= magic <= 2 or length < _LEAST_LENGTHS[magic] or following > end:
            return
        delta = _DELTA.unpack_from(data, position + 23)[0] if magic == 2 else 0
        if delta < 0 or base + delta < offset:
            return
        begins, position, offset = base if magic == 2 else offset, following, base + delta + 1
        yield position, begins, offset


class PartitionReader:
    """The batches of one partition; for one thread."""

    def __init__(self, objects: PartitionObjects) -> None:
        self.objects = objects
        self._opened: _Opened | None = None
        #: Overlapping objects that were compared.
        self._compared: set[tuple[ObjectName, ObjectName]] = set()
        #: The offsets of times that were looked up, with the times of their records.
        self._offsets: dict[int, tuple[int, int]] = {}
        #: By times that are being looked up, the offsets before which no record has one.
        self._looked_to: dict[int, int] = {}

    def read(self, offset: int, room: memoryview) -> ReadBatches | None:
        """
        Return batches from an offset on: as many as there is room for, and at least one.

        Args:
            offset: The offset.
            room: Memory for the batches; one that is larger has memory of its own.

        Returns:
            None at the end of the archive.

        Raises:
            DamagedObject: The object is damaged, or missing.
            BeingDownloaded: The store has not sent all of it yet.
            ShoalError: The store does not answer.

        """
        while (opened := self._open_at(offset)) is not None:
            if found := opened.pass_on(room):
                return ReadBatches(found, self._aborted(opened, offset))
            # Nothing is left of the object: the next one begins behind it.
            offset = max(offset, opened.until)
        return None

    def _open_at(self, offset: int) -> _Opened | None:
        """Return the object that has an offset, or the next one, at this offset."""
        opened = self._opened
        if opened is not None and opened.offset == offset < opened.until:
            return opened
        found = self.objects.at(offset)
        if found is None:
            self.close()
            return None
        name, until = found
        for other in self.objects.overlapping(name):
            self._compare(name, other)
        if opened is None or opened.name != name:
            # While the next one is downloaded, this one stays: who asks again may go through it again.
            following = self._open(name)
            self.close()
            self._opened = opened = following
        opened.rewind()
        opened.until = min(until, self.objects.facts(name).next_offset)
        opened.seek(offset)
        return opened

    def _compare(self, *names: ObjectName) -> None:
        """Compare the batches of two objects at the offsets that both have, once."""
        earlier, later = sorted(names, key=lambda each: (each.generation, each.base_offset))
        if (earlier, later) in self._compared:
            return
        begin = max(each.base_offset for each in names)
        end = min(self.objects.facts(each).next_offset for each in names)
        # Neither is taken before both are there.
        for pending in [self._begin(each) for each in names]:
            if pending is not None:
                raise pending
        with closing(self._open(earlier)) as before, closing(self._open(later)) as after:
            before.until = after.until = end
            before.seek(begin)
            after.seek(begin)
            offset = _first_difference(before.batches(), after.batches())
        if offset is not None:
            raise DamagedObject(
                self.objects.where(later),
                f"it and {earlier}.log, of an earlier writer, have different batches at offset {offset}. "
                "Compaction does not explain that, so one of them is of another log",
            )
        self._compared.add((earlier, later))

    def _begin(self, name: ObjectName) -> BeingDownloaded | None:
        """Begin to read an object; wait for one of this machine, unless its disk is slow."""
        where, read = self.objects.where(name), partial(self._read, name)
        pending = downloads.begin(where, read)
        if pending is not None and self.objects.store.is_local:
            downloads.wait_for_any([where], _LOCAL_DISK_S)
            pending = downloads.begin(where, read)
        return pending

    def _open(self, name: ObjectName) -> _Opened:
        if (pending := self._begin(name)) is not None:
            raise pending
        return downloads.take(self.objects.where(name), partial(self._read, name))

    def _read(self, name: ObjectName, check: Callable[[], None]) -> _Opened:
        """Return an object at its first batch, once it was read against its digest."""
        objects, facts = self.objects, self.objects.facts(name)
        file = objects.open(name, "log")
        opened = _Opened(name, objects.where(name), file, [], facts.next_offset, 0, name.base_offset)
        try:
            opened.verify(facts.log_digest, check)
            opened.entries = self._read_index(name) if facts.index_bytes else []
        except BaseException:
            opened.close()
            raise
        return opened

    def _read_index(self, name: ObjectName) -> Sequence[AbortedEntry]:
        with closing(self.objects.open(name, "txnindex")) as file:
            data = read_whole(file)
        try:
            if digest_of(data) != self.objects.facts(name).index_digest:
                raise ValueError("its digest differs from its description")
            return read_index(data)
        except ValueError as error:
            raise DamagedObject(self.objects.where(name, "txnindex"), str(error)) from None

    def _aborted(self, opened: _Opened, offset: int) -> Sequence[tuple[int, int]]:
        ended = [
            (each.producer_id, each.first_offset)
            for each in opened.entries
            if each.last_offset >= offset and each.first_offset < opened.offset
        ]
        later = [each for each in self.objects.facts(opened.name).aborted_later if each[1] < opened.offset]
        return [*ended, *later]

    def knows(self, timestamp_ms: int) -> bool:
        """Whether the offset of a time was found before."""
        return timestamp_ms in self._offsets

    def offset_at(self, timestamp_ms: int, most_decompressed_bytes: int) -> tuple[int, int] | None:
        """
        Return the first offset whose record is not before a time, with that time; None without one.

        The reader looks it up once: a client of many partitions asks again until the last object is there.

        Raises:
            ShoalError: As :meth:`read`, or a batch cannot be decoded.

        """
        found = self._offsets.get(timestamp_ms)
        if found is None or found[0] < (self.objects.start_offset or 0):
            found = self._look_up(timestamp_ms, most_decompressed_bytes)
            self.close()
        if found is not None:
            self._offsets[timestamp_ms] = found
        return found

    def _look_up(self, timestamp_ms: int, most_decompressed_bytes: int) -> tuple[int, int] | None:
        looked_to = max(self._looked_to.get(timestamp_ms, 0), self.objects.start_offset or 0)
        for name in self.objects.names:
            facts = self.objects.facts(name)
            if facts.newest_ms < timestamp_ms:
                continue
            offset = max(name.base_offset, looked_to)
            while offset < facts.next_offset and (opened := self._open_at(offset)) is not None:
                for piece in opened.pieces():
                    found = _first_since(piece, timestamp_ms, offset, most_decompressed_bytes)
                    if found is not None:
                        return found
                # Kept: who asks again would begin with an object that is not open any more.
                offset = looked_to = self._looked_to[timestamp_ms] = max(offset, opened.until)
        return None

    def close(self) -> None:
        """Close the object that is open."""
        if self._opened is not None:
            self._opened.close()
        self._opened = None


def _first_difference(earlier: Iterator[RecordBatch], later: Iterator[RecordBatch]) -> int | None:
    """
    Return the base offset of the first batch that compaction does not explain; None without one.

    A task writes only while its lease lasts, but a lease can end between its last look and the last file.
    Then two objects have the same offsets, of the same log. Compaction may have removed batches, or records
    of a batch, before the later one was written.
    """
    for batch in later:
        base_offset = batch.header.base_offset
        same = next((each for each in earlier if each.header.base_offset >= base_offset), None)
        if same is None or not _has_all(same, batch):
            return base_offset
    return None


def _has_all(earlier: RecordBatch, later: RecordBatch) -> bool:
    """Whether a batch is another one, or what compaction has left of it."""
    header, former = later.header, earlier.header
    if header.magic == former.magic == 2:  # compaction keeps the base offset
        if header.base_offset != former.base_offset:
            return False
        if header.crc == former.crc or header.records_count < former.records_count:
            return True
        # The cleaner may keep all records, and note when tombstones or a marker among them go (KIP-534).
        if not header.attributes & ~former.attributes & DELETE_HORIZON:
            return False
    left = read_records(later, DEFAULT_LIMIT_BYTES)
    return set(left) <= set(read_records(earlier, DEFAULT_LIMIT_BYTES))


def _first_since(
    record_set: memoryview, timestamp_ms: int, offset: int, most_decompressed_bytes: int
) -> tuple[int, int] | None:
    for batch in split(record_set):
        header = batch.header
        newest_ms = header.max_timestamp if header.magic == 2 else read_timestamp(batch)
        if newest_ms < timestamp_ms or header.is_control:
            continue
        append_time_ms = header.append_time
        for record in read_records(batch, most_decompressed_bytes):
            at_ms = record.timestamp if append_time_ms is None else append_time_ms
            if record.offset >= offset and at_ms >= timestamp_ms:
                return record.offset, at_ms
    return None

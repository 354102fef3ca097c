"""
One partition's records from an offset back, on either side, without their bytes.

Kafka reads forwards only. So a log is read in pieces, each one before the piece that was read last. Only the
batch that a piece begins in is read twice. The size of the last batch determines the length of a piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from enum import Enum
from typing import NamedTuple, TypeAlias

from ....errors import CorruptBatch, UnsupportedBatch
from ....records import (
    Decision,
    Fingerprint,
    Record,
    RecordBatch,
    fingerprint,
    read_key_value_headers,
)
from .logs import PartitionLogs, create_time_of

__all__ = ["Absent", "CopyBackwards", "Entry", "Gap", "Seen", "SourceBackwards", "Step", "Stored"]

#: Records of the copy to keep at most: some 50 MB.
_MOST_ENTRIES = 200_000

#: For the answers that hold a few records.
_FIRST_BUFFER_BYTES = 256 * 1024

#: If a piece has more bytes than it may have, one that is shorter by this is read.
_SHORTER = 8


class Seen(NamedTuple):
    """
    A record without its bytes.

    Attributes:
        body: The hash of its key, value and headers.
        time: Its create time; None if it may have been replaced.
        key: The hash of its key; None if it has none.
        is_tombstone: Whether it has a key and no value.

    """

    body: int
    time: int | None
    key: int | None
    is_tombstone: bool

    @classmethod
    def of(cls, record: Record, time: int | None) -> Seen:
        """Return a record's hashes, with its create time."""
        key, value, _ = read_key_value_headers(record)
        is_tombstone = key is not None and value is None
        return cls(hash(record.body), time, None if key is None else hash(key), is_tombstone)

    def is_same(self, other: Seen) -> bool:
        """Whether two records are equal, as far as their times are known."""
        return self.body == other.body and (self.time == other.time or None in (self.time, other.time))


class Absent(Enum):
    """Why a copy has no record to compare at an offset."""

    COMPACTED = "compacted"
    UNREADABLE = "cannot be decoded"


#: The copy's record at an offset, or the reason why there is none.
Entry: TypeAlias = Seen | Absent


class Gap(NamedTuple):
    """So many offsets that the source has nothing at: each may have had a record that was mirrored."""

    offsets: int


class Stored(NamedTuple):
    """
    Records of the source that follow each other without a gap.

    Attributes:
        records_count: How many there are.
        records: Them; None if they cannot be decoded.
        fingerprint: Of their batch, if they are all of it and it is copied as it is.

    """

    records_count: int
    records: list[Seen] | None
    fingerprint: Fingerprint | None = None


Step: TypeAlias = Gap | Stored


class SourceBackwards:
    """
    The records of the source before an offset that the mirror copies.

    Attributes:
        position: Down to which offset it was read.
        bytes: How much was read.

    """

    def __init__(self, logs: PartitionLogs, end: int, floor: int) -> None:
        """Begin at an offset, and read no further than ``floor``."""
        self._logs = logs
        self._floor = floor
        self.position = end
        self.bytes = 0

    @property
    def is_whole(self) -> bool:
        """Whether all was read, down to the floor."""
        return self.position <= self._floor

    def read(self, offsets: int, most_bytes: int) -> list[Step] | None:
        """
        Read so many offsets more, or fewer: a piece begins with a batch.

        Returns:
            Their records and gaps, the last first; None if they have more bytes than that.

        """
        start = max(self._floor, self.position - offsets)
        piece = _SourcePiece(self._logs, start, self.position, is_last=start <= self._floor)
        limit = self.bytes + most_bytes
        with closing(self._logs.source_batches(start)) as decided:
            for decision, batch in decided:
                if piece.is_behind(batch):
                    break
                self.bytes += len(batch.view)
                if self.bytes > limit:
                    return None
                piece.take(decision, batch)
        piece.end()
        self.position = piece.start
        return piece.steps[::-1]

    def first_records(self, most: int, most_bytes: int) -> list[Step]:
        """Return the first batches with so many records, or of so many bytes; the last first."""
        piece = _SourcePiece(self._logs, self._floor, self.position, is_last=True)
        limit = self.bytes + most_bytes
        with closing(self._logs.source_batches(self._floor, _FIRST_BUFFER_BYTES)) as decided:
            for decision, batch in decided:
                if piece.is_behind(batch) or piece.records >= most or self.bytes > limit:
                    break
                self.bytes += len(batch.view)
                piece.take(decision, batch)
        return piece.steps[::-1]


class _SourcePiece:
    """
    Some offsets of the source, read forwards.

    Attributes:
        start: The first of them: behind a batch that begins before them, unless this is the last piece.
        steps: Their records and gaps.
        records: The number of records in the steps.

    """

    def __init__(self, logs: PartitionLogs, start: int, end: int, *, is_last: bool) -> None:
        self._logs = logs
        self._offset = start
        self._end = end
        self._is_last = is_last
        self.start = start
        self.steps: list[Step] = []
        self.records = 0

    def is_behind(self, batch: RecordBatch) -> bool:
        header = batch.header
        return self._offset >= self._end or (header.magic == 2 and header.base_offset >= self._end)

    def take(self, decision: Decision, batch: RecordBatch) -> None:
        header = batch.header
        if header.magic == 2 and header.base_offset < self.start and not self._is_last:
            self.start = self._offset = min(header.next_offset, self._end)
        elif decision is Decision.DROP_EMPTY:
            pass  # its offsets are a gap
        elif decision.is_drop:
            # Nothing was mirrored of its offsets, whether their records are still there or not.
            self._pass_gap(header.base_offset)
            self._offset = header.next_offset
        elif decision is Decision.COPY and header.next_offset <= self._end:
            self._pass_gap(header.base_offset)
            self._add(Stored(header.records_count, self._seen(batch), fingerprint(batch)))
            self._offset = header.next_offset
        else:
            self._take_part(batch)

    def _take_part(self, batch: RecordBatch) -> None:
        """Take the records of a batch that lie in this piece, or have gaps between them."""
        records = self._decoded(batch)
        if records is None:
            self._add(Stored(1, None))
            self._offset = min(batch.header.next_offset, self._end)
            return
        for record in records:
            if record.offset < self._end:
                self._pass_gap(record.offset)
                self._add(Stored(1, [Seen.of(record, self._logs.mirrored_time_of(batch.header, record))]))
                self._offset = record.offset + 1

    def _seen(self, batch: RecordBatch) -> list[Seen] | None:
        records = self._decoded(batch)
        if records is None:
            return None
        return [Seen.of(record, self._logs.mirrored_time_of(batch.header, record)) for record in records]

    def _decoded(self, batch: RecordBatch) -> list[Record] | None:
        try:
            return self._logs.records_to_mirror(batch, self._offset)
        except (CorruptBatch, UnsupportedBatch):
            return None

    def _add(self, stored: Stored) -> None:
        self.steps.append(stored)
        self.records += stored.records_count

    def _pass_gap(self, offset: int) -> None:
        if offset > self._offset:
            self.steps.append(Gap(offset - self._offset))
            self._offset = offset

    def end(self) -> None:
        """Go on to the end of the piece."""
        self._pass_gap(self._end)


class CopyBackwards:
    """
    The records of a copy before an offset.

    Attributes:
        entries: One for each offset, the last first.
        batches: The fingerprint of each batch and how many records it has, by the index of its last one.

    """

    def __init__(self, logs: PartitionLogs, end: int) -> None:
        """Begin at an offset."""
        self._logs = logs
        self._log = logs.log
        self._position = end
        self._bytes = 0
        self.entries: list[Entry] = []
        self.batches: dict[int, Fingerprint] = {}

    @property
    def is_whole(self) -> bool:
        """Whether all was read, down to the beginning of its log."""
        return self._position <= self._log.start

    def read(self, count: int, most_bytes: int) -> None:
        """Read until there are so many entries, or there is no more, or no more may be read."""
        wanted = min(count, _MOST_ENTRIES)
        offsets = wanted - len(self.entries)
        while len(self.entries) < wanted and not self.is_whole and self._bytes < most_bytes:
            found = self._piece(offsets, most_bytes - self._bytes)
            if found is None:
                offsets = max(1, offsets // _SHORTER)
            elif not found:
                offsets *= _SHORTER  # all of it lies in one batch, or is no data
            else:
                offsets = max(1, wanted - len(self.entries))

    def _piece(self, offsets: int, most_bytes: int) -> list[Entry] | None:
        """Read so many offsets more; return their entries, None if they have too many bytes."""
        start = max(self._log.start, self._position - offsets)
        piece = _CopyPiece(self._logs, start, self._position, is_last=start <= self._log.start)
        read = 0
        for batch in self._logs.destination_batches(start):
            if batch.header.base_offset >= self._position:
                break
            read += len(batch.view)
            if read > most_bytes:
                self._bytes += read
                return None
            piece.take(batch)
        piece.end()
        self._bytes += read
        self._position = piece.start
        count = len(self.entries) + len(piece.entries)
        self.batches |= {count - end: found for end, found in piece.batches.items()}
        self.entries += piece.entries[::-1]
        return piece.entries

    def from_offset(self, offset: int, most: int, most_bytes: int) -> list[Entry]:
        """Return the entries at some offsets from one on, the last first; nothing of it is kept."""
        start = max(self._log.start, offset)
        piece = _CopyPiece(self._logs, start, min(self._log.end, start + most), is_last=True)
        read = 0
        for batch in self._logs.destination_batches(start):
            if batch.header.base_offset >= start + most or read > most_bytes:
                break
            read += len(batch.view)
            piece.take(batch)
        return piece.entries[::-1]


class _CopyPiece:
    """
    Some offsets of the copy, read forwards; a program that writes transactions left markers among them.

    Attributes:
        start: As of :class:`_SourcePiece`.
        entries: One for each offset.
        batches: The fingerprint of each whole batch, by the number of entries up to its end.

    """

    def __init__(self, logs: PartitionLogs, start: int, end: int, *, is_last: bool) -> None:
        self._settings = logs.settings
        self._offset = start
        self._end = end
        self._is_last = is_last
        self.start = start
        self.entries: list[Entry] = []
        self.batches: dict[int, Fingerprint] = {}

    def take(self, batch: RecordBatch) -> None:
        header = batch.header
        if header.base_offset < self.start and not self._is_last:
            self.start = self._offset = min(header.next_offset, self._end)
            return
        end = min(header.next_offset, self._end)
        self._pass_compacted(header.base_offset)
        is_batch = header.base_offset == self._offset and end == header.next_offset
        if not header.is_control:
            self.entries += self._entries(batch, end)
            if is_batch:
                self.batches[len(self.entries)] = fingerprint(batch)
        self._offset = max(self._offset, end)

    def _entries(self, batch: RecordBatch, end: int) -> Iterator[Entry]:
        try:
            records = self._settings.decode(batch)
        except (CorruptBatch, UnsupportedBatch):
            return iter([Absent.UNREADABLE] * (end - self._offset))
        found = {record.offset: Seen.of(record, create_time_of(batch.header, record)) for record in records}
        return (found.get(offset, Absent.COMPACTED) for offset in range(self._offset, end))

    def _pass_compacted(self, offset: int) -> None:
        if offset > self._offset:
            self.entries += [Absent.COMPACTED] * (min(offset, self._end) - self._offset)
            self._offset = offset

    def end(self) -> None:
        """Go on to the end of the piece."""
        self._pass_compacted(self._end)

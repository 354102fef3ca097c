"""
A bounded stretch of each side before the copy's last batch: what the source stores and misses, and the copy.

Kafka reads forwards only. So the beginning of a stretch is a guess, by the size of the last batch. If it has
too few records, a longer one is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ....errors import CorruptBatch, UnsupportedBatch
from ....records import Decision, Fingerprint, Record, RecordBatch, fingerprint
from .logs import PartitionLogs
from .record_key import RecordKey, copied_key
from .source_walk import SourceWalk
from .written import Written, WrittenBatch

__all__ = ["CopyStretch", "Gap", "SourceStretch", "Step", "Stored", "Undecodable"]


class Gap(NamedTuple):
    """So many offsets that the source has nothing at: each may have had a record that was mirrored."""

    offsets: int


class Stored(NamedTuple):
    """A record of the source."""

    offset: int
    key: RecordKey


class Undecodable(NamedTuple):
    """
    A batch of the source, or a part of one, that cannot be decoded.

    Attributes:
        offset: The offset of the first record.
        records: How many it has.
        fingerprint: Of the batch, if it is copied as it is.

    """

    offset: int
    records: int
    fingerprint: Fingerprint | None


Step: TypeAlias = Gap | Stored | Undecodable


@dataclass
class SourceStretch:
    """
    The source between two offsets, as the mirror copies it.

    Attributes:
        start: The first offset.
        steps: Its records and gaps.
        records: The number of records in the steps.
        bytes: How much was read for it.
        is_cut: Whether it has more bytes than it may have, and ends early.

    """

    start: int
    steps: list[Step] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    is_cut: bool = False

    @classmethod
    def read(
        cls,
        logs: PartitionLogs,
        start: int,
        end: int,
        most_bytes: int,
        *,
        is_first: bool,
        most_records: int | None = None,
    ) -> SourceStretch:
        """Read a stretch; unless it is the first of the log, it begins with a batch, perhaps a later one."""
        stretch, walk = cls(start), SourceWalk(logs, start, end, most_bytes)
        for decision, batch in walk.batches():
            header = batch.header
            if header.magic == 2 and header.base_offset < start and not is_first:
                stretch.start = walk.offset = min(header.next_offset, end)
            else:
                stretch._take(logs, walk, decision, batch, end)
            if most_records is not None and stretch.records >= most_records:
                break
        else:
            if not walk.is_cut:
                stretch._skip_to(walk, end)
        stretch.bytes, stretch.is_cut = walk.bytes, walk.is_cut
        return stretch

    def _take(
        self, logs: PartitionLogs, walk: SourceWalk, decision: Decision, batch: RecordBatch, end: int
    ) -> None:
        header = batch.header
        is_whole = decision is Decision.COPY and header.next_offset <= end
        if is_whole:
            self._skip_to(walk, header.base_offset)
        try:
            records = walk.decode(batch)
        except (CorruptBatch, UnsupportedBatch):
            count, found = (header.records_count, fingerprint(batch)) if is_whole else (1, None)
            self.steps.append(Undecodable(walk.offset, count, found))
            self.records += count
            walk.offset = min(header.next_offset, end)
            return
        for record in records:
            if record.offset < end:
                self._skip_to(walk, record.offset)
                self.steps.append(Stored(record.offset, logs.mirrored_key(header, record)))
                self.records += 1
                walk.offset = record.offset + 1

    def _skip_to(self, walk: SourceWalk, offset: int) -> None:
        gap = walk.skip_to(offset)
        if gap:
            self.steps.append(Gap(gap))

    @property
    def gaps(self) -> int:
        """How many offsets have no record."""
        return sum(step.offsets for step in self.steps if isinstance(step, Gap))


class CopyStretch:
    """
    The copy between two offsets; a program that writes transactions left markers among its records.

    Attributes:
        records: Its records, by number.
        is_cut: Whether it has more bytes than it may have.

    """

    def __init__(self, logs: PartitionLogs, start: int, end: int, most_bytes: int) -> None:
        """Read a stretch; it begins with a batch, perhaps an earlier one."""
        self._logs = logs
        self._start = start
        self._end = end
        self._most_bytes = most_bytes
        self._markers = 0
        self._fingerprints: dict[int, Fingerprint] = {}
        self.is_cut = False
        self.records = Written(self._batches(), end - start, logs.settings, undecodable_fits=False)
        self.records.load_all()
        if not self.is_cut:
            self.records.fill(end - self._start - self._markers)

    @property
    def is_whole(self) -> bool:
        """Whether it begins with the copy's log."""
        return self._start <= self._logs.log.start

    def fingerprint_before(self, number: int) -> Fingerprint | None:
        """Return the fingerprint of the whole batch that ends before a record; None if there is none."""
        return self._fingerprints.get(number)

    def read_again(self, first: int) -> Iterator[tuple[Record, RecordKey]]:
        """Yield the records from a number on that can be decoded."""
        for number, batch, _ in self._batches():
            with suppress(CorruptBatch, UnsupportedBatch):
                for record in self._logs.settings.decode(batch):
                    if number + record.offset - batch.header.base_offset >= first:
                        yield record, copied_key(batch.header, record)

    def _batches(self) -> Iterator[WrittenBatch]:
        read = self._markers = 0
        for batch in self._logs.destination_batches(self._start):
            header = batch.header
            if header.base_offset >= self._end:
                return
            self._start = min(self._start, header.base_offset)
            read += len(batch.view)
            if read > self._most_bytes:
                self.is_cut = True
                return
            if header.is_control:
                self._markers += header.last_offset_delta + 1
                continue
            number = header.base_offset - self._start - self._markers
            self._fingerprints[number + header.last_offset_delta + 1] = fingerprint(batch)
            yield WrittenBatch(number, batch, is_ours=True)

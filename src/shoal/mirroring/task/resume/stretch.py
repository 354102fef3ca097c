"""
A bounded stretch of each side before the copy's last batch: what the source stores and misses, and the copy.

Kafka reads forwards only. So the beginning of a stretch is a guess, by the size of the last batch. If it has
too few records, a longer one is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from ....errors import CorruptBatch, UnsupportedBatch
from ....records import Fingerprint, Record, fingerprint
from .logs import PartitionLogs
from .record_key import RecordKey, copied_key
from .source_walk import Gap, SourceRecord, SourceWalk, Step, Undecodable
from .written import WrittenBatch, WrittenRecords

__all__ = ["CopyStretch", "SourceStretch"]


@dataclass(frozen=True)
class SourceStretch:
    """
    The source between two offsets, as the mirror copies it.

    Attributes:
        start: The first offset.
        steps: Its records and gaps.
        records: How many records it has.
        bytes: How much was read for it.
        is_cut: Whether it has more bytes than it may have, and ends early.

    """

    start: int
    steps: Sequence[Step] = ()
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
        most_records: int | None = None,
        from_batch: bool = False,
    ) -> SourceStretch:
        """Read a stretch, up to so many records; see :meth:`SourceWalk.steps`."""
        walk = SourceWalk(logs, start, end, most_bytes)
        steps: list[Step] = []
        records = 0
        with closing(walk.steps(from_batch=from_batch)) as found:
            for step in found:
                steps.append(step)
                records += step.records if isinstance(step, Undecodable) else isinstance(step, SourceRecord)
                if most_records is not None and records >= most_records:
                    break
        return cls(walk.start, steps, records, walk.bytes, walk.is_cut)

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
        self.records = WrittenRecords(self._batches(), end - start, logs.settings, undecodable_fits=False)
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
        # The first batch may begin before the log does: DeleteRecords takes any offset.
        for batch in self._logs.destination_batches(max(self._start, self._logs.log.start)):
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

"""
The source from an offset on, step by step: the records to mirror, and the offsets that have none.

Each comparison with the destination keeps the same account of the source's offsets. Nothing was mirrored
of a marker or an aborted batch, whether it is still there or not. An offset that is missing, before a batch
or in it, may have had a record that was mirrored: compaction or retention removed it since.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ....errors import CorruptBatch, UnsupportedBatch
from ....records import BatchHeader, Decision, Fingerprint, Record, RecordBatch, fingerprint
from .logs import PartitionLogs
from .record_key import RecordKey

__all__ = ["Copied", "Gap", "SourceRecord", "SourceWalk", "Step", "Undecodable", "keys_between"]

#: No limit of offsets or bytes.
_NO_LIMIT = 2**63


class Gap(NamedTuple):
    """A stretch of offsets at which the source has nothing now, but may have had mirrored records."""

    offsets: int


class SourceRecord(NamedTuple):
    """
    A record to mirror.

    Attributes:
        end: The next offset that may have a record: behind the batch, if it is the last one there.
        leader_epoch: The leader epoch of its batch.

    """

    offset: int
    end: int
    key: RecordKey
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Undecodable:
    """
    A batch that cannot be decoded, or a part of one.

    Attributes:
        fingerprint: The batch's, if all of it is copied as it is; None otherwise.

    """

    header: BatchHeader
    error: CorruptBatch | UnsupportedBatch
    fingerprint: Fingerprint | None

    @property
    def records(self) -> int:
        """How many records it has at least."""
        return self.header.records_count if self.fingerprint else 1


class Copied(NamedTuple):
    """A batch that was taken as a whole."""

    header: BatchHeader


Step: TypeAlias = Gap | SourceRecord | Undecodable | Copied


class SourceWalk:
    """
    A walk over one partition of the source.

    Attributes:
        start: The first offset.
        offset: Everything before it is accounted for.
        bytes: The size of the batches that were read, those without records to mirror included.
        is_cut: Whether the walk ended early, since the batches were larger than the limit.

    """

    def __init__(
        self, logs: PartitionLogs, start_offset: int, end_offset: int = _NO_LIMIT, most_bytes: int = _NO_LIMIT
    ) -> None:
        self.start = start_offset
        self.offset = start_offset
        self.bytes = 0
        self.is_cut = False
        self._logs = logs
        self._end_offset = end_offset
        self._most_bytes = most_bytes
        self._gap = 0

    def steps(
        self, take_copy: Callable[[RecordBatch], bool] = lambda batch: False, *, from_batch: bool = False
    ) -> Generator[Step]:
        """
        Yield the records and gaps up to the end, or up to the last batch if there is no end.

        Args:
            take_copy: Takes a batch that is copied as it is; returns whether it need not be decoded.
            from_batch: Whether to begin with a whole batch, behind one that the first offset lies in.

        """
        for decision, batch in self._batches():
            header = batch.header
            if from_batch and header.magic == 2 and header.base_offset < self.start:
                self.start = self.offset = min(header.next_offset, self._end_offset)
                continue
            is_whole = decision is Decision.COPY and header.next_offset <= self._end_offset
            if is_whole:
                yield from self.skip_to(header.base_offset)
                if take_copy(batch):
                    self.offset = header.next_offset
                    yield Copied(header)
                    continue
            try:
                records = self._logs.records_to_mirror(batch, self.offset)
            except (CorruptBatch, UnsupportedBatch) as error:
                yield Undecodable(header, error, fingerprint(batch) if is_whole else None)
                self.offset = min(header.next_offset, self._end_offset)
            else:
                yield from self._stored(header, records)
        if not self.is_cut and self._end_offset < _NO_LIMIT:
            yield from self.skip_to(self._end_offset)

    def _stored(self, header: BatchHeader, records: list[Record]) -> Iterator[Step]:
        for number, record in enumerate(records, 1):
            if record.offset >= self._end_offset:
                return
            yield from self.skip_to(record.offset)
            self.offset = record.offset + 1
            end = self.offset if number < len(records) else max(header.next_offset, self.offset)
            yield SourceRecord(
                record.offset, end, self._logs.mirrored_key(header, record), header.leader_epoch
            )

    def skip_to(self, offset: int) -> Iterator[Gap]:
        """Account for all offsets before one; yield those that have no record."""
        gap, self._gap = self._gap + max(0, offset - self.offset), 0
        self.offset = max(self.offset, offset)
        if gap:
            yield Gap(gap)

    def _batches(self) -> Generator[tuple[Decision, RecordBatch]]:
        """Yield each batch with records to mirror; the last one may reach behind the end."""
        with closing(self._logs.source_batches(self.offset, self._most_bytes)) as decided:
            for decision, batch in decided:
                header = batch.header
                # Messages of an old format show their offsets only when they are decoded.
                if self.offset >= self._end_offset or (
                    header.magic == 2 and header.base_offset >= self._end_offset
                ):
                    return
                self.bytes += len(batch.view)
                if self.bytes > self._most_bytes:
                    self.is_cut = True
                    return
                if not decision.is_drop:
                    yield decision, batch
                elif decision is not Decision.DROP_EMPTY:
                    self._gap += max(0, header.base_offset - self.offset)
                    self.offset = header.next_offset


def keys_between(
    logs: PartitionLogs, start_offset: int, end_offset: int, *, skips_undecodable: bool = False
) -> Iterator[tuple[Record, RecordKey]]:
    """Yield the source's records to mirror between two offsets; raises as ``records_to_mirror``."""
    for decision, batch in logs.source_batches(start_offset):
        if batch.header.base_offset >= end_offset:
            return
        try:
            records = [] if decision.is_drop else logs.records_to_mirror(batch, start_offset)
        except (CorruptBatch, UnsupportedBatch):
            if not skips_undecodable:
                raise
            continue
        for record in records:
            if record.offset < end_offset:
                yield record, logs.mirrored_key(batch.header, record)

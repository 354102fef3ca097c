"""The source's remaining records behind a position, compared with those that the mirror wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass

from ....errors import UnsupportedBatch
from ....records import BatchHeader, Decision, Record, RecordBatch, read_key_value_headers
from .logs import PartitionLogs, create_time_of
from .merge import Cut, Merge
from .written import OutOfSight, Written, WrittenBatch

__all__ = ["Survivors"]

#: So many records may be compared if the place is not certain.
_MOST_BETWEEN = 500_000


@dataclass(frozen=True)
class Survivors:
    """
    One partition of the source behind an offset, and the records that were written from there on.

    Attributes:
        logs: Both logs of the partition.
        source_offset: The offset of the first written record, or a later one.
        source_start: The first offset of the source's log.
        source_end: The offset up to which it can be read.
        written: Begins to read the written batches from the first one on.
        size: The number of written records.

    """

    logs: PartitionLogs
    source_offset: int
    source_start: int
    source_end: int
    written: Callable[[], Generator[WrittenBatch]]
    size: int

    def merge(self, *, is_unchanged: bool) -> Merge:
        """
        Go through the source for the possible places of the mirror.

        Args:
            is_unchanged: Whether the source lost only records before its start since: other offsets
                without a record had none when they were mirrored.

        Raises:
            OutOfSight: Too much would have to be compared.
            BrokerError: A leader refuses.

        """
        start = max(self.source_offset, self.source_start)
        with closing(self.written()) as batches, closing(self.logs.source_batches(start)) as decided:
            written = Written(batches, self.size, self.logs.settings)
            merge = Merge(written, self.source_offset)
            merge.pass_gap(start - self.source_offset)
            reading = _Reading(self.logs, merge, start, is_unchanged=is_unchanged)
            for decision, batch in decided:
                if merge.is_over:
                    return merge
                reading.take(decision, batch)
        reading.end(self.source_end)
        return merge

    def are_written(self, first: Cut, last: Cut, *, is_compacted: bool) -> bool:
        """
        Whether the mirror may go on at the last of several places, whichever is the right one.

        The source's records between the first and the last may repeat mirrored ones, with the same key,
        value and time. In a compacted topic that makes no difference, if the destination's last record of
        each such key is the source's: no key has an older value then. In a topic that keeps all its records
        each of them must also be the only one of its kind.

        Raises:
            OutOfSight: There are too many records.

        """
        between = _Records()
        start = max(first.source_offset, self.source_start)
        with closing(self.logs.source_batches(start)) as decided:
            for decision, batch in decided:
                if batch.header.base_offset >= last.source_offset:
                    break
                if not decision.is_drop:
                    records = self.logs.records_to_mirror(batch, start)
                    between.add(
                        (record, self.logs.mirrored_time_of(batch.header, record))
                        for record in records
                        if record.offset < last.source_offset
                    )
        written = self._written_like(between)
        if is_compacted:
            return None not in between.last_of_key and between.ends_as(written)
        is_only = all(count == 1 for count in between.counts.values())
        return is_only and between.counts == written.counts and between.ends_as(written)

    def _written_like(self, between: _Records) -> _Records:
        """Return the written records that have a key or content of the source between two places."""
        found = _Records()
        with closing(self.written()) as batches:
            for number, batch, _ in batches:
                found.add(
                    (
                        (record, create_time_of(batch.header, record))
                        for record in self.logs.settings.decode(batch)
                        if number + record.offset - batch.header.base_offset >= 0
                    ),
                    like=between,
                )
        return found


class _Records:
    """
    Records without their bytes.

    Attributes:
        counts: The number of equal records, by a hash of their content.
        last_of_key: The last record of each key: a hash of its content, and its create time.

    """

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.last_of_key: dict[bytes | None, tuple[int, int | None]] = {}

    def add(self, records: Iterable[tuple[Record, int | None]], like: _Records | None = None) -> None:
        """Add records and their times, or those that are like others."""
        for record, time in records:
            key = read_key_value_headers(record)[0]
            if like is None or key in like.last_of_key:
                self.last_of_key[key] = hash(record.body), time
            what = hash((record.body, time))
            if like is None or what in like.counts:
                self.counts[what] += 1
        if len(self.counts) > _MOST_BETWEEN:
            raise OutOfSight

    def ends_as(self, others: _Records) -> bool:
        """Whether the last record of each key is the same, as far as there are keys."""
        return all(
            key is None or (key in others.last_of_key and _are_equal(last, others.last_of_key[key]))
            for key, last in self.last_of_key.items()
        )


def _are_equal(one: tuple[int, int | None], other: tuple[int, int | None]) -> bool:
    return one[0] == other[0] and (one[1] == other[1] or None in (one[1], other[1]))


class _Reading:
    """Passes each batch of the source to the merge, and the missing offsets before it."""

    def __init__(self, logs: PartitionLogs, merge: Merge, offset: int, *, is_unchanged: bool) -> None:
        self._logs = logs
        self._merge = merge
        self._offset = offset
        self._is_unchanged = is_unchanged

    def take(self, decision: Decision, batch: RecordBatch) -> None:
        header = batch.header
        if decision is Decision.DROP_EMPTY:
            return  # its offsets count as missing
        if decision.is_drop:
            # Nothing was mirrored of its offsets, whether their records are still there or not.
            self._pass_gap(header.base_offset)
            self._offset = header.next_offset
            return
        if decision is Decision.COPY:
            self._pass_gap(header.base_offset)
            if self._merge.take_copy(batch):
                self._offset = header.next_offset
                return
        try:
            records = self._logs.records_to_mirror(batch, self._offset)
        except UnsupportedBatch:
            if decision is not Decision.COPY:
                raise  # then it was never mirrored either
            self._merge.take_undecodable(batch)
            self._offset = header.next_offset
            return
        self._take_records(header, records)

    def _take_records(self, header: BatchHeader, records: list[Record]) -> None:
        for number, record in enumerate(records, 1):
            self._pass_gap(record.offset)
            end = record.offset + 1 if number < len(records) else max(header.next_offset, record.offset + 1)
            time = self._logs.mirrored_time_of(header, record)
            self._merge.take(record, time, end, header.leader_epoch)
            self._offset = record.offset + 1

    def end(self, source_end: int) -> None:
        """Go on to the end of the source's log."""
        self._pass_gap(source_end)

    def _pass_gap(self, offset: int) -> None:
        if not self._is_unchanged:
            self._merge.pass_gap(offset - self._offset)
        self._offset = max(self._offset, offset)

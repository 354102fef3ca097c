"""
Whether a copy without a position has the source's records before the copy's last batch.

The source may hold that batch once and be another log all the same: a topic that was deleted is often filled
again with other records, and then with some that it had before. To go on behind the batch would pass over
the records before it. So a stretch of both sides before it is compared, from the batch back: down to the
beginning of the source's log or of the mirror, or over so many records and bytes.

Each offset that the source has nothing at may have had a record that was mirrored. So several numbers of the
copy's records may lie behind a place in the source. :class:`~.merge.Reach` keeps every number that is
possible, and none that is not. If none is left, the source has other records there.

Three checks cover records that are not compared. If both logs are too long to be compared as a whole, the
source's first records have to be in the copy, too. If the copy was compacted, it must have the newest record
of each key. If the copy deleted its first records, or began later, all that it has left must be the same.

``shoal verify`` cannot answer this. It looks for the likeliest differences, and a record that one side lacks
at a gap is "not compared". That would be the same answer for a copy that compaction took an older value from,
and for one that never had the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from ....client.offsets import list_offsets
from .contents import Contents
from .logs import PartitionLogs
from .merge import Reach
from .places import retention_is_faster
from .record_key import RecordKey, differ_enough
from .search import SourcePlace
from .source_walk import Gap, SourceRecord, Step, Undecodable, keys_between
from .stretch import CopyStretch, SourceStretch
from .tail import Tail

__all__ = ["Preceding", "compare_preceding"]

#: The most records of the source that are compared before the last batch, and their most bytes on each side.
#: A shorter log is compared as a whole, so that the answer is exact.
MOST_RECORDS = 10_000
MOST_BYTES = 4 * 1024 * 1024

#: More bytes are read as long as they hold too few records: large ones, aborted or compacted ones.
_MOST_BYTES_FOR_FEW = 64 * 1024 * 1024

#: The most offsets of the copy that are read if the source lost many records.
_MOST_COPIED = 200_000

#: The number of equal records in the same order that are no accident, if they differ enough from each other.
_LEAST_SAME = 16

#: The number of the source's first records that must be in a copy that is not compared as a whole. They are
#: looked for among this number of the copy's first records.
FIRST_RECORDS = 64
FIRST_AMONG = 10_000
_FIRST_BYTES = 256 * 1024

#: The most comparisons: a topic that repeats itself, and was compacted, may need very many.
_MOST_COMPARISONS = 2_000_000

#: If a stretch has too few records, one that is longer by this is read; a shorter one if it is too large.
_LONGER = 8


class Preceding(Enum):
    """The evidence about the records before a copy's last batch."""

    SHOWN = "they were mirrored"
    CONTRADICTED = "the source has other records there than the copy"
    NOT_SHOWN = "nothing shows whether they were mirrored"


def compare_preceding(
    logs: PartitionLogs,
    tail: Tail,
    place: SourcePlace,
    source_start: int,
    *,
    is_rest: bool = False,
) -> Preceding:
    """
    Say whether the source has nothing before a copy's last batch that was not mirrored.

    Args:
        logs: Both logs of the partition.
        tail: The copy's last batch.
        place: The place behind that batch in the source.
        source_start: The first offset of the source's log.
        is_rest: Whether the source has only the end of that batch, as its first messages. Without times
            these may be another log's that begins alike, so enough of them have to differ.

    Raises:
        ShoalError: A cluster does not answer.

    """
    with retention_is_faster():
        return _Comparison(logs, tail, place.source_offset, source_start, is_rest).run()


@dataclass(frozen=True)
class _Comparison:
    """
    The source before an offset, and the copy, which may have been made of it.

    Attributes:
        logs: Both logs of the partition.
        tail: The copy's last batch.
        end: The source offset behind the same batch.
        source_start: The first offset of the source's log.
        is_rest: Whether the source has only the end of that batch.

    """

    logs: PartitionLogs
    tail: Tail
    end: int
    source_start: int
    is_rest: bool

    def run(self) -> Preceding:
        match = self._match
        for step in reversed(self._source.steps):
            match.take(step)
        if match.is_over and not (match.ran_out or match.is_cut):
            return Preceding.CONTRADICTED
        if match.has_compacted and not self._has_newest_of_each_key():
            return Preceding.CONTRADICTED
        return Preceding.SHOWN if self._is_enough() else Preceding.NOT_SHOWN

    @property
    def _begins_anywhere(self) -> bool:
        """Whether the mirror's start proves nothing about the records before the place."""
        return self.logs.copy.range.start_offset >= self.end

    @property
    def _wanted_from(self) -> int:
        """The first offset of the mirror."""
        start = 0 if self._begins_anywhere else self.logs.copy.range.start_offset
        return max(self.source_start, start)

    @property
    def _tail_size(self) -> int:
        return self.tail.header.last_offset_delta + 1

    # Reading

    @cached_property
    def _source(self) -> SourceStretch:
        """The longest stretch that may be read, or that is needed."""
        bytes_each = max(1, self.tail.header.size // self._tail_size)
        least = self._tail_size + _LEAST_SAME
        offsets = max(least, self._tail_size + min(MOST_RECORDS, MOST_BYTES // bytes_each))
        left_bytes = _MOST_BYTES_FOR_FEW
        found = SourceStretch(self.end)
        while left_bytes > 0:
            is_last_try = offsets <= least or found.records > 0
            most_bytes = left_bytes if is_last_try else min(left_bytes, 2 * MOST_BYTES)
            stretch = self._read_source(offsets, most_bytes)
            left_bytes -= stretch.bytes
            if stretch.is_cut:
                if is_last_try:
                    break
                offsets = max(least, offsets // _LONGER)
                continue
            found = stretch
            read = max(1, self.end - found.start)
            before_tail = found.records - self._tail_size
            if found.start <= self._wanted_from or before_tail >= MOST_RECORDS:
                break
            most = _MOST_BYTES_FOR_FEW if before_tail < _LEAST_SAME else MOST_BYTES
            left_bytes = min(left_bytes, most - found.bytes)
            offsets = min(max(offsets, read) * _LONGER, left_bytes * read // max(1, found.bytes))
            if offsets <= read:
                break
        return found

    def _read_source(self, offsets: int, most_bytes: int) -> SourceStretch:
        start = max(self._wanted_from, self.end - offsets)
        is_part = start > self._wanted_from
        return SourceStretch.read(self.logs, start, self.end, most_bytes, from_batch=is_part)

    @cached_property
    def _copied(self) -> CopyStretch:
        """As much of the copy as may have been made of the source's stretch; its last record is number 0."""
        end = self.tail.header.next_offset
        wanted = min(self._source.records + self._source.gaps, _MOST_COPIED)
        offsets = wanted
        while True:
            start = max(self.logs.log.start, end - offsets)
            copied = CopyStretch(self.logs, start, end, _MOST_BYTES_FOR_FEW)
            if copied.is_cut:
                offsets = wanted = max(1, offsets // _LONGER)
            elif copied.is_whole or copied.records.size >= wanted:
                copied.records.reverse()
                return copied
            else:
                offsets *= 2  # the others are markers

    @cached_property
    def _match(self) -> _Match:
        return _Match(Reach(self._copied.records), self._copied)

    # Evidence

    def _is_enough(self) -> bool:
        match = self._match
        if match.is_over:
            # The copy has nothing left to compare, or nothing that could be read.
            may_begin_later = self._begins_anywhere or self.logs.log.start > 0
            return may_begin_later and match.ran_out and _is_no_accident(match.same)
        if self._source.start <= self._wanted_from and not match.is_exhausted:
            have_times = all(time is not None and time >= 0 for _, time in match.same)
            return not self.is_rest or have_times or _is_no_accident(match.same)
        if not _is_no_accident(match.same[self._tail_size :]):
            return False
        return self._begins_anywhere or self.logs.log.start > 0 or self._has_first_records()

    def _has_newest_of_each_key(self) -> bool:
        """Whether the copy has the newest record of each key that was compared, or that is a tombstone."""
        source, copied = Contents(), Contents()
        compared = keys_between(self.logs, self._match.compared_from, self.end, skips_undecodable=True)
        source.add(compared)
        copied.add(self._copied.read_again(self._copied.records.size - self._match.furthest))
        return source.all_have_keys and source.ends_as(copied, tombstones_may_be_gone=True)

    def _has_first_records(self) -> bool:
        """Whether the copy has the source's first records, in their order."""
        first = SourceStretch.read(
            self.logs,
            self._wanted_from,
            self._source.start,
            _FIRST_BYTES,
            most_records=FIRST_RECORDS,
        )
        steps = first.steps[1:] if first.steps and isinstance(first.steps[0], Gap) else first.steps
        if not steps or not isinstance(steps[0], SourceRecord):
            return False
        between = self._source.start - steps[0].offset
        by_count = max(self.logs.log.start, self.tail.header.next_offset - self._match.furthest - between)
        near = _near(steps)
        return self._is_among(by_count, near) or self._is_among(self._offset_at(steps[0].key.time), near)

    def _is_among(self, offset: int | None, steps: Sequence[Step]) -> bool:
        if offset is None:
            return False
        log = self.logs.log
        start = max(log.start, offset)
        copied = CopyStretch(self.logs, start, min(log.end, start + FIRST_AMONG), MOST_BYTES)
        match = _Match(Reach(copied.records, 0, copied.records.size))
        for step in steps:
            match.take(step)
        return not match.is_ended

    def _offset_at(self, time: int | None) -> int | None:
        """Return the copy's first offset with a time, as far as its leader says."""
        if time is None or time < 0:
            return None
        clusters, partition = self.logs.clusters, self.logs.copy.destination
        offset = list_offsets(clusters.destination, {partition: time})[partition]
        return offset if isinstance(offset, int) and offset >= 0 else None


class _Match:
    """
    How many of the copy's records lie behind a place in the source, as it goes back.

    Attributes:
        compared_from: The source offset of the last record that was compared, the first of all.
        same: Those that the copy has, too, the last first.
        furthest: The largest number that was possible.
        ran_out: Whether the copy may have begun behind a record that the source has.
        is_cut: Whether a number was left out that may have been the right one.
        is_exhausted: Whether more would have to be compared than may be.
        has_compacted: Whether records were compared that the copy has no more.

    """

    def __init__(self, reach: Reach, copied: CopyStretch | None = None) -> None:
        """Begin with some numbers; without a copy's stretch, its records are all that there are."""
        self._reach = reach
        self._copied = copied
        self._comparisons = 0
        self.compared_from = 0
        self.same: list[RecordKey] = []
        self.furthest = 0
        self.ran_out = False
        self.is_cut = False
        self.is_exhausted = False
        self.has_compacted = False

    @property
    def is_over(self) -> bool:
        """Whether no number is possible any more."""
        return not self._reach.spans

    @property
    def is_ended(self) -> bool:
        """Whether nothing more is compared."""
        return self.is_over or self.is_exhausted

    @property
    def _is_whole(self) -> bool:
        return self._copied is None or self._copied.is_whole

    def take(self, step: Step) -> None:
        """Go back over one step of the source."""
        if self.is_ended:
            return
        if isinstance(step, Gap):
            self._take_gap(step.offsets)
        elif isinstance(step, SourceRecord):
            self._take_record(step)
        elif isinstance(step, Undecodable):
            self._take_undecodable(step)
        if not self.is_over:
            self.furthest = self._reach.last

    def _take_gap(self, offsets: int) -> None:
        if self._reach.last + offsets > self._reach.size and not self._is_whole:
            self.is_exhausted = True
        else:
            self._reach.pass_gap(offsets)

    def _take_undecodable(self, step: Undecodable) -> None:
        """Go back over a batch that is known by its fingerprint alone."""
        size, numbers = self._reach.size, self._reach.numbers()
        found = [
            number
            for number in numbers
            if step.fingerprint
            and self._copied
            and self._copied.fingerprint_before(size - number) == step.fingerprint
        ]
        self.ran_out = self.ran_out or (self._is_whole and numbers[-1] >= size)
        self.is_cut = self.is_cut or len(found) < sum(number < size for number in numbers)
        self._reach.go_on((number + step.records, number + step.records) for number in found)
        if step.fingerprint:
            self.same.append(RecordKey(step.fingerprint.crc, None))

    def _take_record(self, record: SourceRecord) -> None:
        reach = self._reach
        self._comparisons += reach.width
        if self._comparisons > _MOST_COMPARISONS or (reach.last >= reach.size and not self._is_whole):
            self.is_exhausted = True
            return
        self.ran_out = self.ran_out or reach.last >= reach.size
        self.is_cut = self.is_cut or reach.has_unreadable()
        self.has_compacted = self.has_compacted or reach.has_unknown()
        is_same = reach.has(record.key)
        reach.take(record.key)
        if not self.is_over:
            self.compared_from = record.offset
            if is_same:
                self.same.append(record.key)


def _near(steps: Sequence[Step]) -> list[Step]:
    """Return the first steps that are not too far from the first record to be looked for together."""
    found: list[Step] = []
    offsets = 0
    for step in steps:
        offsets += step.offsets if isinstance(step, Gap) else 1
        if offsets > FIRST_AMONG // 2:
            break
        found.append(step)
    return found


def _is_no_accident(same: Sequence[RecordKey]) -> bool:
    """Whether so many records are the same that differ from each other."""
    return len(same) >= _LEAST_SAME and differ_enough(same)

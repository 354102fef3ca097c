"""
Whether a copy without a position has the source's records before the copy's last batch.

The source may hold that batch once and be another log all the same: a topic that was deleted is often filled
again with other records, and then with some that it had before. To go on behind the batch would pass over
the records before it. So both sides are read backwards from there, each once, and compared in order: down to
the beginning of the source's log or of the mirror, or over so many records and bytes.

Each offset that the source has nothing at may have had a record that was mirrored. So there may be several
numbers of the copy's records that lie behind a place in the source, and all of them are kept: every number
that is possible, and none that is not. If none is left, the source has other records there.

Three checks cover records that are not compared. If both logs are too long to be compared as a whole, the
source's first records have to be in the copy, too. If the copy was compacted, it must have the newest record
of each key. If the copy deleted its first records, or began later, all that it has left must be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from ....client.offsets import list_offsets
from .backwards import Absent, CopyBackwards, Entry, Gap, Seen, SourceBackwards, Step, Stored
from .logs import PartitionLogs
from .places import retention_is_faster
from .search import Place
from .tail import Tail

__all__ = ["Preceding", "compare_preceding"]

#: So many records of the source are compared before the last batch, if they have no more bytes than that on
#: each side. All of a shorter log, so that the answer is exact.
_MOST_RECORDS = 10_000
_MOST_BYTES = 4 * 1024 * 1024

#: More bytes are read as long as they hold too few records: large ones, aborted or compacted ones.
_MOST_BYTES_FOR_FEW = 64 * 1024 * 1024

#: So many equal records in the same order are no accident, if so many of them, or of their times, differ from
#: each other.
_LEAST_SAME = 16
_LEAST_TIMES = 8

#: So many of the source's first records have to be in the copy of a log that is not compared as a whole. They
#: are looked for among so many of the copy's.
_FIRST_RECORDS = 64
_FIRST_AMONG = 10_000
_FIRST_BYTES = 256 * 1024

#: So many comparisons at most; a topic that repeats itself, and was compacted, may need very many.
_MOST_COMPARISONS = 2_000_000

#: If a piece of the source has too few records, one that is longer by this is read before it.
_LONGER = 8


class Preceding(Enum):
    """The evidence about the records before a copy's last batch."""

    SHOWN = "they were mirrored"
    CONTRADICTED = "the source has other records there than the copy"
    NOT_SHOWN = "nothing shows whether they were mirrored"


def compare_preceding(
    logs: PartitionLogs,
    tail: Tail,
    place: Place,
    source_start: int,
    *,
    is_rest: bool = False,
) -> Preceding:
    """
    Say whether the source has nothing before a copy's last batch that was not mirrored.

    Args:
        logs: Both logs of the partition.
        tail: The copy's last batch.
        place: Behind that batch in the source.
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
        self._go_back()
        if match.is_over and not (match.ran_out or match.is_cut):
            return Preceding.CONTRADICTED
        if match.has_compacted and not match.has_newest_of_each_key():
            return Preceding.CONTRADICTED
        return Preceding.SHOWN if self._is_enough() else Preceding.NOT_SHOWN

    @cached_property
    def _source(self) -> SourceBackwards:
        return SourceBackwards(self.logs, self.end, self._wanted_from)

    @cached_property
    def _copied(self) -> CopyBackwards:
        return CopyBackwards(self.logs, self.tail.header.next_offset)

    @cached_property
    def _match(self) -> _Match:
        return _Match(self._copied.entries, self._copied)

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

    def _go_back(self) -> None:
        """Compare piece by piece, until it is enough, or no more may be read."""
        bytes_each = max(1, self.tail.header.size // self._tail_size)
        offsets = self._tail_size + max(_LEAST_SAME, min(_MOST_RECORDS, _MOST_BYTES // bytes_each))
        while not (self._source.is_whole or self._match.is_ended or self._left_bytes <= 0):
            before = self._source.position
            is_short = offsets <= self._tail_size + _LEAST_SAME
            most_bytes = _MOST_BYTES_FOR_FEW if is_short else 2 * _MOST_BYTES
            steps = self._source.read(offsets, min(self._left_bytes, most_bytes))
            if steps is None:
                offsets = max(1, offsets // _LONGER)
                continue
            self._compare(steps)
            if self._before_tail >= _MOST_RECORDS:
                return
            read = max(1, self.end - self._source.position)
            offsets = min(max(offsets, before - self._source.position) * _LONGER, self._affordable(read))

    def _affordable(self, read: int) -> int:
        """Return how many offsets may still be read if they have as many bytes as those before."""
        return max(1, self._left_bytes * read // max(1, self._source.bytes))

    @property
    def _left_bytes(self) -> int:
        is_few = self._before_tail < _LEAST_SAME
        return (_MOST_BYTES_FOR_FEW if is_few else _MOST_BYTES) - self._source.bytes

    @property
    def _before_tail(self) -> int:
        return self._match.records - self._tail_size

    def _compare(self, steps: Sequence[Step]) -> None:
        records = sum(step.records_count for step in steps if isinstance(step, Stored))
        missing = sum(step.offsets for step in steps if isinstance(step, Gap))
        for needed in (records, records + missing):
            self._copied.read(self._match.furthest + needed, _MOST_BYTES_FOR_FEW)
        for step in steps:
            self._match.take(step)

    # Evidence

    def _is_enough(self) -> bool:
        match = self._match
        if match.is_over:
            # The copy has nothing left to compare, or nothing that could be read.
            may_begin_later = self._begins_anywhere or self.logs.log.start > 0
            return may_begin_later and match.ran_out and _is_no_accident(match.same)
        if self._source.is_whole and not match.is_exhausted:
            return not self.is_rest or _have_times(match.same) or _is_no_accident(match.same)
        if not _is_no_accident(match.same[self._tail_size :]):
            return False
        return self._begins_anywhere or self.logs.log.start > 0 or self._has_first_records()

    def _has_first_records(self) -> bool:
        """Whether the copy has the source's first records, in their order."""
        steps = self._source.first_records(_FIRST_RECORDS, _FIRST_BYTES)
        missing = 0
        while steps and isinstance(steps[-1], Gap):
            missing += steps[-1].offsets
            del steps[-1]
        first = steps[-1].records if steps and isinstance(steps[-1], Stored) else None
        if not first:
            return False
        between = self._source.position - self._wanted_from - missing
        by_count = max(self.logs.log.start, self.tail.header.next_offset - self._match.furthest - between)
        near = _first_of(steps, _FIRST_AMONG // 2)
        return self._is_among(by_count, near) or self._is_among(self._offset_at(first[0].time), near)

    def _is_among(self, offset: int | None, steps: Sequence[Step]) -> bool:
        if offset is None:
            return False
        entries = self._copied.from_offset(offset, _FIRST_AMONG, _MOST_BYTES)
        match = _Match(entries, reached=list(range(len(entries) + 1)))
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
        records: So many of the source's were compared.
        same: Those that the copy has, too, the last first.
        furthest: The largest number that was possible.
        ran_out: Whether the copy may have begun behind a record that the source has.
        is_cut: Whether a number was left out that may have been the right one.
        is_exhausted: Whether more would have to be compared than may be.
        has_compacted: Whether records were compared that the copy has no more.

    """

    def __init__(
        self, entries: Sequence[Entry], copied: CopyBackwards | None = None, reached: list[int] | None = None
    ) -> None:
        """Begin at the copy's end, with no number but 0, or with others."""
        self._entries = entries
        self._copied = copied
        self._reached = [0] if reached is None else reached
        self._newest: dict[int | None, Seen] = {}
        self._comparisons = 0
        self.records = 0
        self.same: list[tuple[int, int | None]] = []
        self.furthest = 0
        self.ran_out = False
        self.is_cut = False
        self.is_exhausted = False
        self.has_compacted = False

    @property
    def is_over(self) -> bool:
        """Whether no number is possible any more."""
        return not self._reached

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
        elif not self._take_copy(step):
            for record in reversed(step.records or ()):
                self._take_record(record)
        if self._reached:
            self.furthest = self._reached[-1]

    def _take_gap(self, offsets: int) -> None:
        wider: list[int] = []
        size = len(self._entries)
        if self._reached[-1] + offsets > size and not self._is_whole:
            self.is_exhausted = True
            return
        for number in self._reached:
            first = max(number, wider[-1] + 1) if wider else number
            wider += range(first, min(number + offsets, size) + 1)
        self._reached = wider

    def _take_copy(self, step: Stored) -> bool:
        """Go back over a batch that cannot be decoded, or that is the same as the only one in question."""
        if step.records is not None and len(self._reached) > 1:
            return False
        batches = self._copied.batches if self._copied else {}
        found = [each for each in self._reached if step.fingerprint and batches.get(each) == step.fingerprint]
        if step.records is not None and not found:
            return False
        size = len(self._entries)
        self.ran_out = self.ran_out or (self._is_whole and self._reached[-1] >= size)
        self.is_cut = self.is_cut or len(found) < sum(each < size for each in self._reached)
        self._reached = [each + step.records_count for each in found]
        self.records += step.records_count
        if step.records is None:
            self.same += [(each.crc, None) for each in (step.fingerprint,) if each]
        for record in reversed(step.records or ()):
            self._note(record)
            self.same.append((record.body, record.time))
        return True

    def _take_record(self, record: Seen) -> None:
        if self.is_ended:
            return
        self._comparisons += len(self._reached)
        if self._comparisons > _MOST_COMPARISONS or not (
            self._is_whole or self._reached[-1] < len(self._entries)
        ):
            self.is_exhausted = True
            return
        found = [self._entries[each] for each in self._reached if each < len(self._entries)]
        self.ran_out = self.ran_out or len(found) < len(self._reached)
        self.is_cut = self.is_cut or Absent.UNREADABLE in found
        self.has_compacted = self.has_compacted or Absent.COMPACTED in found
        self._reached = [
            each + 1 for each, entry in zip(self._reached, found, strict=False) if _may_be(entry, record)
        ]
        if self.is_over:
            return
        self.records += 1
        self._note(record)
        if any(isinstance(entry, Seen) and entry.is_same(record) for entry in found):
            self.same.append((record.body, record.time))

    def _note(self, record: Seen) -> None:
        self._newest.setdefault(record.key, record)

    def has_newest_of_each_key(self) -> bool:
        """Whether the copy has the newest record of each key of the source's, or it is a tombstone."""
        copied: dict[int | None, Seen] = {}
        for entry in self._entries[: self.furthest]:
            if isinstance(entry, Seen):
                copied.setdefault(entry.key, entry)
        return None not in self._newest and all(
            copied[key].is_same(record) if key in copied else record.is_tombstone
            for key, record in self._newest.items()
        )


def _first_of(steps: Sequence[Step], most_offsets: int) -> list[Step]:
    """Return the first records, no more than are looked for; the last first, as they are given."""
    found: list[Step] = []
    records = offsets = 0
    for step in reversed(steps):
        offsets += step.offsets if isinstance(step, Gap) else 1
        if records >= _FIRST_RECORDS or (records and offsets > most_offsets):
            break
        if isinstance(step, Stored) and step.records is not None:
            first = step.records[: _FIRST_RECORDS - records]
            records += len(first)
            offsets += len(first) - 1
            step = Stored(len(first), first)
        found.append(step)
    return found[::-1]


def _may_be(entry: Entry, record: Seen) -> bool:
    return entry is Absent.COMPACTED or (isinstance(entry, Seen) and entry.is_same(record))


def _have_times(same: Sequence[tuple[int, int | None]]) -> bool:
    return all(time is not None and time >= 0 for _, time in same)


def _is_no_accident(same: Sequence[tuple[int, int | None]]) -> bool:
    """Whether so many records are the same that differ from each other."""
    differ = len(set(same)) >= _LEAST_SAME or len({time for _, time in same}) >= _LEAST_TIMES
    return len(same) >= _LEAST_SAME and differ

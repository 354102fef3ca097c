"""
Whether a copy without a pair has what the source has before the copy's last batch.

The source may hold that batch once and be another log all the same: a topic that was deleted is often filled
again with other records, and then with some that it had before. To go on behind the batch would pass over
what lies before it. So the records before it are compared, in order, as those behind a pair are
(:mod:`~shoal.mirroring.realign.merge`), back to where the source's log or the mirror begins, or over
:data:`_MOST_OFFSETS`.

Either side may have lost records since. A record that only the copy has is no contradiction if the source has
none at some offset there: compaction took it. A record that only the source has counts as mirrored in two
cases: the copy was compacted, and has the newest record of each key; or the copy deleted its first records,
or began later, and many records behind that one are the same on both sides.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ...errors import UnsupportedBatch
from ...records import Decision
from ..decoding import records_to_mirror
from ..partition_copy import PartitionCopy
from ..reading import read_decided
from .logs import Clusters, DestinationLog
from .merge import Cut
from .places import retention_is_faster
from .second_place import are_distinct
from .survivors import Survivors
from .tail import Place, Tail, batches_at
from .written import OutOfSight, WrittenBatch

__all__ = ["has_preceding"]

#: So many offsets of the source are compared. All of a shorter log, so that the answer is exact.
_MOST_OFFSETS = 10_000

#: So many records that are the same in order are no accident, if they differ from each other.
_LEAST_SAME = 16


def has_preceding(
    clusters: Clusters,
    copy: PartitionCopy,
    log: DestinationLog,
    tail: Tail,
    place: Place,
    source_start: int,
) -> bool:
    """
    Whether the source has nothing before a copy's last batch that was not mirrored.

    Args:
        clusters: Both clusters.
        copy: The partition.
        log: Its log at the destination.
        tail: The copy's last batch.
        place: Behind that batch in the source.
        source_start: Where the source's log begins.

    Returns:
        False also if nothing shows it.

    Raises:
        ShoalError: A cluster does not answer, or has a damaged batch.

    """
    with retention_is_faster():
        try:
            return _Comparison(clusters, copy, log, tail, place.source_offset, source_start).run()
        except (OutOfSight, UnsupportedBatch):
            return False


class _Stretch(NamedTuple):
    """
    Some offsets of the source.

    Attributes:
        records: How many records are to be mirrored of them.
        missing: At how many of them the source has nothing, so that it may have had a record.

    """

    records: int
    missing: int


@dataclass(frozen=True)
class _Comparison:
    """
    A stretch of the source, and the end of the copy, which may have been made of it.

    Attributes:
        clusters: Both clusters.
        copy: The partition.
        log: Its log at the destination.
        tail: The copy's last batch.
        end: The source offset behind the same batch.
        source_start: Where the source's log begins.

    """

    clusters: Clusters
    copy: PartitionCopy
    log: DestinationLog
    tail: Tail
    end: int
    source_start: int

    def run(self) -> bool:
        if self._unmatched_offsets < 0:
            return False  # the source has more records there than the copy ever had
        merge = self._survivors.merge(is_unchanged=False)
        if merge.last is None or merge.last.source_offset != self.end:
            return False
        if self._has_holes and not self._has_newest_of_each_key():
            return False
        return (self._is_whole and not self._deleted) or self._are_same_by_no_accident()

    # The source

    @cached_property
    def _wanted_from(self) -> int:
        """Where the mirror begins; a start behind the place says nothing of what lies before it."""
        start = self.copy.range.start_offset
        return max(self.source_start, start if start < self.end else 0)

    @cached_property
    def _start(self) -> int:
        return max(self._wanted_from, self.end - self._tail_size - _MOST_OFFSETS)

    @property
    def _is_whole(self) -> bool:
        return self._start == self._wanted_from

    @cached_property
    def _stretch(self) -> _Stretch:
        """Count what lies before the place, as :class:`Survivors` goes over it."""
        settings = self.clusters.settings
        offset, records, missing = self._start, 0, 0
        for decision, batch in read_decided(
            self.clusters.source,
            self.copy.source,
            offset,
            settings.source.isolation_level,
            keep_append_time=settings.keep_append_time,
        ):
            header = batch.header
            if offset >= self.end or (header.magic == 2 and header.base_offset >= self.end):
                break
            if decision is Decision.DROP_EMPTY:
                continue  # its offsets count as missing
            if decision.is_drop:
                missing += max(0, header.base_offset - offset)
                offset = header.next_offset
            elif decision is Decision.COPY:
                missing += header.base_offset - offset
                offset = min(header.next_offset, self.end)
                records += offset - header.base_offset
            else:
                for record in records_to_mirror(batch, offset, settings):
                    if record.offset < self.end:
                        missing += record.offset - offset
                        offset = record.offset + 1
                        records += 1
        return _Stretch(records, missing + max(0, self.end - offset))

    # The copy

    @property
    def _tail_size(self) -> int:
        return self.tail.header.last_offset_delta + 1

    @cached_property
    def _first(self) -> int:
        """
        Return the destination offset from which on the copy may have been made of the stretch.

        It lies before the log's start if the copy deleted its first records; and before offset 0 if the
        mirror begins anywhere, as at the source's end: then the copy may have begun later than the stretch.
        """
        first = self.tail.header.next_offset - self._stretch.records - self._stretch.missing
        begins_anywhere = self.copy.range.start_offset >= self.end
        return first if begins_anywhere else max(0, first)

    @property
    def _size(self) -> int:
        return self.tail.header.next_offset - self._first

    @property
    def _unmatched_offsets(self) -> int:
        """How many offsets of the copy are there for what the source does not have any more."""
        return self._size - self._stretch.records

    @property
    def _deleted(self) -> int:
        """How many of these offsets lie before the copy's log."""
        return max(0, self.log.start - self._first)

    @cached_property
    def _survivors(self) -> Survivors:
        """Both, with the offsets that may be missing put in front: their records end together."""
        return Survivors(
            self.clusters,
            self.copy,
            self._start - self._unmatched_offsets,
            self._start,
            self.end,
            self._batches,
            self._size,
        )

    def _batches(self) -> Generator[WrittenBatch]:
        for batch in batches_at(self.clusters, self.copy, max(self._first, self.log.start)):
            if batch.header.base_offset >= self.tail.header.next_offset:
                return
            yield WrittenBatch(batch.header.base_offset - self._first, batch, is_ours=True)

    @cached_property
    def _has_holes(self) -> bool:
        """Whether compaction took records of the copy."""
        offset = max(self._first, self.log.start)
        for _, batch, _ in self._batches():
            if batch.header.base_offset > offset or batch.header.has_holes:
                return True
            offset = batch.header.next_offset
        return offset < self.tail.header.next_offset

    # What shows that a record was mirrored that is not there

    def _has_newest_of_each_key(self) -> bool:
        start, end = Cut(0, self._start, -1), Cut(self._stretch.records, self.end, -1)
        return self._survivors.are_written(start, end, is_compacted=True)

    def _are_same_by_no_accident(self) -> bool:
        if not self._is_whole and self.end < self.tail.header.next_offset:
            return False  # the copy had more records than the source: of a former topic, or of others
        first = max(self._first, self.log.start)
        held = self.tail.header.base_offset - first
        same = self._stretch.records - self._deleted - self._tail_size
        return same >= _LEAST_SAME and are_distinct(self.clusters, self.copy, first, held)

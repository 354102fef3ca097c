"""
The ends of a range at the destination: where its source offsets are there.

The records at both ends of a range are searched at the destination, near their times. Offsets and batch
boundaries play no part. A range whose ends are not found for sure is not compared: its first records may
repeat themselves, or the destination writes its own times.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import islice

from ..mirroring.model.window import Until
from .errors import NotComparable
from .extent import LEAST_OFFSETS
from .findings import OffsetRange, Place
from .locate import Found, earliest_time, find_first, first_records
from .log import Log, LogRecord
from .plan import PartitionPlan

__all__ = ["Places"]

#: How far the place of a record at the destination may lie from the first record of its time.
_BEFORE, _BEHIND = 4_096, 65_536

#: The offsets at the end of a log whose times are read.
_LAST_OFFSETS = 256


class Places:
    """Finds the ends of ranges of one partition at the destination."""

    def __init__(self, plan: PartitionPlan, ours: Log, theirs: Log) -> None:
        self._plan = plan
        self._ours = ours
        self._theirs = theirs

    def offset_since(self, time_ms: int) -> int:
        """
        Return the source's first offset of a time.

        Raises:
            NotComparable: The log cleaner hides the time from the broker.

        """
        offset = self._ours.first_at(time_ms)
        if offset is None:
            _check_end(self._ours, time_ms)
        return self._ours.offsets.end if offset is None else offset

    def offset_until(self, until: Until | None) -> int | None:
        """
        Return the source's first offset that is not wanted any more; None if there is none.

        Raises:
            NotComparable: The log cleaner hides a time from the broker.

        """
        if until is None or until.timestamp_ms is None:
            return None if until is None else until.offset
        return self.offset_since(until.timestamp_ms)

    def check_nothing_since(self, time_ms: int) -> None:
        """
        Check that the destination has no record of a time or later either, if the source has none.

        Raises:
            NotComparable: The destination has one, or the log cleaner hides the time from the broker.

        """
        first, end = self._theirs.first_at(time_ms), self._theirs.offsets.end
        if first is None:
            _check_end(self._theirs, time_ms)
        found = first_records(self._theirs, first, min(first + 1, end)) if first is not None else []
        # A time of the destination's own may be that of the copying.
        if found and found[0].append_time is None:
            raise NotComparable(
                "the source has no record of the range's time, but the destination has one at offset "
                f"{first}. Compare all records of the topic"
            )

    def part(self, source: OffsetRange) -> PartitionPlan:
        """
        Return the plan of a range. If the copy does not reach it yet, it has no record of the copy.

        Raises:
            NotComparable: The destination does not have its records, or they repeat themselves.

        """
        start, end = self._start(source.start), self._end(source.end)
        if start.destination == end.destination == self._theirs.offsets.end:
            self._check_lag(source.start)
        return self._plan.between(start, end)

    def _start(self, offset: int) -> Place:
        """Return the place behind the last record before an offset that both sides have."""
        first = Place(self._ours.offsets.start, self._theirs.offsets.start)
        if offset - first.source < LEAST_OFFSETS:
            return first  # the comparison finds its beginning by itself
        head = first_records(self._ours, offset - LEAST_OFFSETS, offset)
        found = self._find(offset, head)
        if found is None:
            return Place(offset, self._theirs.offsets.end)
        return Place(head[found.last.at].offset + 1, found.last.offset + 1)

    def _check_lag(self, offset: int) -> None:
        """
        Check that the copy ends before a source offset: the source has the copy's last records before it.

        Raises:
            NotComparable: The source does not have them: the copy may have other records there.

        """
        start, end = self._theirs.offsets
        copied = self._plan.copied
        if offset < self._plan.mirrored_until or (copied and end <= copied.progress.destination):
            return  # all that the copy lacks is missing, or the position shows that it lags
        last = first_records(self._theirs, max(start, end - LEAST_OFFSETS), end)
        time = earliest_time(last)
        near = self._ours.offsets.start if time is None else self._ours.first_at(time)
        if last and near is not None:
            near = max(self._ours.offsets.start, near - _BEFORE)
            found = find_first(last, self._ours, near, min(offset, near + _BEFORE + _BEHIND))
            if found is not None and found.is_proof:
                return
        raise NotComparable(
            "the destination does not have these records, and its last records are not before them in the "
            "source: nothing shows that it does not have them yet. Compare all records of the topic"
        )

    def _end(self, offset: int) -> Place:
        """Return the place of the first record from an offset on that both sides have."""
        head = first_records(self._ours, offset, self._ours.offsets.end)
        if not head:
            return Place(offset, self._theirs.offsets.end)
        found = self._find(offset, head)
        if found is None:
            return Place(offset, self._end_of_copy(offset))
        return Place(head[found.first.at].offset, found.first.offset)

    def _end_of_copy(self, offset: int) -> int:
        """
        Return the destination's offset behind as many records as the source has before an offset.

        The records that the destination may have behind it are copies of later ones, but other records.
        """
        head = first_records(self._ours, max(self._ours.offsets.start, offset - LEAST_OFFSETS), offset)
        found = self._find(offset, head) if head else None
        if found is None:
            return self._theirs.offsets.end
        with (
            closing(self._ours.records(head[found.last.at].offset + 1, offset)) as ours,
            closing(self._theirs.records(found.last.offset + 1, self._theirs.offsets.end)) as theirs,
        ):
            behind = islice(theirs, sum(each.records for each in ours), None)
            return next((each.offset for each in behind), self._theirs.offsets.end)

    def _find(self, offset: int, head: Sequence[LogRecord]) -> Found | None:
        """Find records before or behind an offset at the destination; None if it ends before them."""
        there, time = self._theirs.offsets, earliest_time(head)
        near = there.start if time is None else self._theirs.first_at(time)
        if near is None and time is not None:
            _check_end(self._theirs, time)
        if near is None or near >= there.end:
            return None
        end = min(there.end, near + _BEHIND)
        found = find_first(head, self._theirs, max(there.start, near - _BEFORE), end)
        if found is None and head and end == there.end:
            return None
        if found is None or not found.is_proof:
            raise NotComparable(
                f"the destination does not have the records at source offset {offset} near their times, or "
                "they repeat themselves, or they are too few, so that their place is not certain. Compare "
                "all records of the topic"
            )
        return found


def _check_end(log: Log, time_ms: int) -> None:
    """
    Check that a log, in which its broker finds no record of a time or later, does not end with such records.

    A broker searches one segment alone, the first with a batch of this time: emptied batches mislead it.

    Raises:
        NotComparable: The log ends with later records.

    """
    start, end = log.offsets
    with closing(log.records(max(start, end - _LAST_OFFSETS), end)) as records:
        if any(max(each.timestamp, each.append_time or -1) >= time_ms for each in records if each.body):
            raise NotComparable(
                f"the broker of the {log.side.value} finds no record of the range's time, but the log "
                "ends with later records: the log cleaner has emptied batches. Compare all records of "
                "the topic"
            )

"""
The ends of a range at the destination: where its source offsets are there.

The records at both ends of a range are searched at the destination, near their times. Offsets and batch
boundaries play no part. A range whose ends are not found for sure is not compared: its first records may
repeat themselves, or the destination writes its own times.
"""

from __future__ import annotations

from contextlib import closing

from ..mirroring.model.window import Until
from .errors import NotComparable
from .extent import LEAST_OFFSETS
from .findings import OffsetRange, Place
from .locate import earliest_time, find_first, first_records
from .log import Log
from .plan import PartitionPlan

__all__ = ["Places"]

#: How far the place of a record at the destination may lie from the first record of its time.
_BEFORE, _BEHIND = 4_096, 65_536

#: The offsets at the end of a log whose times are read.
_LAST_OFFSETS = 256

#: How far before its first offset a range may begin, if the copy ends too soon behind that to find it.
_FURTHER_BACK = (0, LEAST_OFFSETS, 8_192, 65_536, 524_288)


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

    def part(self, source: OffsetRange) -> PartitionPlan | None:
        """
        Return the plan of a range; None if the copy does not reach it yet.

        Raises:
            NotComparable: The destination does not have its records, or they repeat themselves.

        """
        start = self._start(source.start)
        if start is None:
            return None
        end, is_there = self._place(source.end)
        if end is None:
            # The copy ends within the range; or so soon behind it that both logs are compared to their ends.
            end = self._plan.ends if is_there else Place(source.end, self._plan.ends.destination)
        return self._plan.between(start, end)

    def _start(self, offset: int) -> Place | None:
        """Return the place at which to begin, or an earlier one; None if the copy does not reach it."""
        first, copied = Place(self._ours.offsets.start, self._theirs.offsets.start), self._plan.copied
        for before in _FURTHER_BACK:
            tried = offset - before
            if tried - first.source < LEAST_OFFSETS:
                return first
            place, is_there = self._place(tried)
            if place is not None and place.source <= offset:
                return place
            if place is None and not is_there and (copied is None or copied.progress.source <= tried):
                return None
        return first

    def _place(self, offset: int) -> tuple[Place | None, bool]:
        """
        Return the place of a source offset at the destination, and whether any record behind it is there.

        There is no place if the destination ends before it, or so soon behind it that it is not certain.
        """
        here, there = self._ours.offsets, self._theirs.offsets
        if offset == here.end:
            return Place(here.end, there.end), True
        if offset == here.start:
            # The comparison of a first range finds its beginning by itself.
            return Place(here.start, there.start), True
        head = first_records(self._ours, offset)
        time = earliest_time(head)
        near = there.start if time is None else self._theirs.first_at(time)
        if near is None and time is not None:
            _check_end(self._theirs, time)
        if near is None or near >= there.end:
            return None, False
        end = min(there.end, near + _BEHIND)
        found = find_first(head, self._theirs, max(there.start, near - _BEFORE), end)
        if found is not None and found.is_proof:
            return Place(head[found.first.at].offset, found.first.offset), True
        if end < there.end:
            raise NotComparable(
                f"the destination does not have the records from source offset {offset} on near their times, "
                "or they repeat themselves, so that their place is not certain. Compare all records of the "
                "topic"
            )
        return None, found is not None


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

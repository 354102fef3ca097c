"""Which offsets of a part of a log a copy would take, as far as was read. The module sends no requests."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from ..model.offset_map import TakenOffsets

__all__ = ["LogPart"]

#: So many runs stay apart. Further back they are joined, and known as wholes alone. A mirror of thousands of
#: partitions keeps a few parts of each for a round.
_MOST_RUNS = 64


class _Run(NamedTuple):
    """
    Consecutive offsets of one or more batches.

    Attributes:
        start: The first offset.
        end: The offset behind the last one.
        taken: The number of offsets that a copy would take.
        dropped: The number of offsets in batches that a copy drops whole.

    """

    start: int
    end: int
    taken: int
    dropped: int

    @property
    def is_uniform(self) -> bool:
        """Whether the run says of each single offset whether it is taken, dropped, or neither."""
        return self.end - self.start in (self.taken, self.dropped) or not (self.taken or self.dropped)

    def within(self, first: int, end: int) -> _Run | None:
        """Return the part between two offsets; None if only the whole is known."""
        start, end = max(self.start, first), min(self.end, end)
        if (start, end) == (self.start, self.end):
            return self
        if not self.is_uniform:
            return None
        return _Run(start, end, end - start if self.taken else 0, end - start if self.dropped else 0)


class LogPart:
    """
    A part of a log without a gap in what was read.

    Attributes:
        begin: The first offset that was read.
        end: The offset up to which all batches were read.

    """

    def __init__(self, begin: int) -> None:
        """Begin at an offset, with nothing read."""
        self.begin = self.end = begin
        self._runs: list[_Run] = []

    def add_taken(self, start: int, end: int) -> None:
        """Add a batch of which each offset is taken."""
        start = max(start, self.begin)
        self._add(_Run(start, end, end - start, 0))

    def add_dropped(self, start: int, end: int) -> None:
        """Add a batch that a copy drops whole."""
        start = max(start, self.begin)
        self._add(_Run(start, end, 0, end - start))

    def add_some(self, start: int, end: int, taken: int) -> None:
        """Add a batch of whose offsets so many are taken."""
        self._add(_Run(start, end, taken, 0))

    def add_spans(self, spans: Iterable[tuple[int, int]], end: int) -> None:
        """Add a batch with the first and the end of each run of taken offsets."""
        for span in spans:
            self.add_taken(*span)
        self.end = max(self.end, end)

    def count(self, first: int, end: int) -> TakenOffsets | None:
        """Count between two offsets that were read; None if one lies within a run that is no longer apart."""
        taken = dropped = 0
        for number in range(bisect_right(self._runs, first, key=attrgetter("end")), len(self._runs)):
            run = self._runs[number]
            if run.start >= end:
                break
            part = run.within(first, end)
            if part is None:
                return None
            taken += part.taken
            dropped += part.dropped
        return TakenOffsets(taken, taken + dropped == end - first)

    def _add(self, run: _Run) -> None:
        last = self._runs[-1] if self._runs else None
        if last is not None and last.end == run.start and _are_alike(last, run):
            self._runs[-1] = _joined(last, run)
        else:
            self._runs.append(run)
        self.end = max(self.end, run.end)

    def thin(self) -> None:
        """Join the older runs while there are too many."""
        while len(self._runs) > _MOST_RUNS:
            older = len(self._runs) // 4 * 2
            self._runs[:older] = [_joined(*self._runs[each : each + 2]) for each in range(0, older, 2)]


def _are_alike(first: _Run, second: _Run) -> bool:
    """Whether two runs can be joined, and still say the same of each offset."""
    is_taken = [each.taken == each.end - each.start for each in (first, second)]
    is_dropped = [each.dropped == each.end - each.start for each in (first, second)]
    return all(is_taken) or all(is_dropped)


def _joined(first: _Run, second: _Run) -> _Run:
    return _Run(first.start, second.end, first.taken + second.taken, first.dropped + second.dropped)

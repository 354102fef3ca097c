"""
Two streams of batches, and where they differ. No I/O; memory is bounded.

As long as both sides agree, batches are paired one by one. Where they do not,
both streams are looked at further ahead, until they meet again
(:mod:`.look_ahead`), and what lies before that is matched up piece by piece
(:mod:`.slots`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .digest import Agreement, Digest, agree
from .finding import Finding, Kind
from .look_ahead import LookAhead, MeetingPoint, meeting_point
from .slots import OpenSlots, Recent, Slot, have_in_common, match_up, reach

__all__ = ["LOOK_AHEAD_BATCHES", "diff"]

#: How far is looked to meet again, how many batches wait to turn up elsewhere,
#: and how many are remembered to recognise a double. One takes some 500 bytes
#: here: 2 MB for each of these.
LOOK_AHEAD_BATCHES = 4096

#: The look ahead grows by steps: most differences are short.
_LOOKS = (16, 128, 1024)

#: So many batches at the end of one side may be altered for all we know; more
#: of which none is found within the look ahead belong elsewhere.
_MOST_ALTERED_AT_THE_END = 64


def diff(
    source: Iterable[Digest],
    destination: Iterable[Digest],
    *,
    start: tuple[int, int] = (0, 0),
    mirrored_until: int = 0,
    look_ahead_batches: int = LOOK_AHEAD_BATCHES,
) -> Iterator[Finding]:
    """
    Compare two streams of batches that begin in the same place.

    Args:
        source: What a mirror would have copied, in order.
        destination: What is there, in order.
        start: The offsets where the two begin.
        mirrored_until: Source offset before which everything must be at the
            destination, even where that ends earlier.
        look_ahead_batches: How far is looked on each side to meet again.

    Yields:
        Findings: each batch of each side is in exactly one, but for those
        after the last finding. They are not strictly in order: what may have
        been reordered waits. The last may be ``NOT_MIRRORED`` (the destination
        ends there), or ``DIVERGED`` (within the look ahead the sides do not
        meet again).

    Raises:
        ShoalError: What the streams raise, after the last finding.

    """
    return _Diff(source, destination, start, mirrored_until, look_ahead_batches).run()


class _Diff:
    def __init__(
        self,
        source: Iterable[Digest],
        destination: Iterable[Digest],
        start: tuple[int, int],
        mirrored_until: int,
        look_ahead_batches: int,
    ) -> None:
        self._source = LookAhead(source, start[0])
        self._destination = LookAhead(destination, start[1])
        self._mirrored_until = mirrored_until
        self._look_ahead = look_ahead_batches
        self._looks = [*(count for count in _LOOKS if count < look_ahead_batches), look_ahead_batches]
        self._recent = Recent(look_ahead_batches)
        self._open = OpenSlots(look_ahead_batches, self._recent)

    def run(self) -> Iterator[Finding]:
        while (source := self._source.first()) and (destination := self._destination.first()):
            agreement = agree(source, destination)
            if agreement is not Agreement.NONE:
                self._source.pop()
                self._destination.pop()
                yield self._paired(source, destination, agreement)
            elif point := self._meeting_point():
                yield from self._step_over(point)
            else:
                yield from self._open.close_all()
                self._raise_failure()
                yield Finding(Kind.DIVERGED, (source,), (destination,), *self._places())
                return
        if self._source.failure or self._destination.failure:
            # What was found so far is told all the same.
            yield from self._open.close_all()
            self._raise_failure()
        yield from self._finish_destination()
        yield from self._finish_source()
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure = self._source.failure or self._destination.failure
        if failure is not None:
            raise failure

    def _places(self) -> tuple[int, int]:
        return self._source.position, self._destination.position

    def _paired(self, source: Digest, destination: Digest, agreement: Agreement) -> Finding:
        kind = Kind.SAME if agreement is Agreement.SAME else Kind.UNDECODED
        if source.damage or destination.damage:
            kind = Kind.ALTERED
        self._recent.add(source)
        return Finding(kind, (source,), (destination,), source.base_offset, destination.base_offset)

    # Where the sides differ

    def _meeting_point(self) -> MeetingPoint | None:
        """Find how much to step over; None where no look ahead is long enough."""
        for count in self._looks:
            source, destination = self._source.look(count), self._destination.look(count)
            ends = self._source.ends_within(count), self._destination.ends_within(count)
            point = meeting_point(source, destination, are_the_last=all(ends), confirmed=True)
            if point is not None:
                return point
            if all(ends):
                break
        return self._last_resort(source, destination, *ends)

    def _last_resort(
        self,
        source: Sequence[Digest],
        destination: Sequence[Digest],
        source_ends: bool,
        destination_ends: bool,
    ) -> MeetingPoint | None:
        """Find how much to step over where both sides are not seen in step again."""
        new = self._new(destination)
        if destination_ends and (source_ends or _belong_here(new, source)):
            return MeetingPoint(reach(new, source), len(destination))
        if source_ends and _belong_here(source, destination):
            return MeetingPoint(len(source), reach(source, destination))
        if source_ends or destination_ends:
            return None
        return meeting_point(source, destination, are_the_last=False, confirmed=False)

    def _new(self, destination: Sequence[Digest]) -> list[Digest]:
        """Return those that are no doubles of what was found already."""
        return [batch for batch in destination if self._recent.like(batch) is None]

    def _step_over(self, point: MeetingPoint) -> Iterator[Finding]:
        """Match up what lies before a point where both sides agree again."""
        places = self._places()
        source = self._source.take(point.source)
        destination = self._destination.take(point.destination)
        slots = match_up(source, destination, places, self._recent)
        _excuse(slots, _gap(source, self._source.first()), _gap(destination, self._destination.first()))
        for slot in slots:
            if slot.agreement is Agreement.NONE:
                yield from self._open.add(slot)
            else:
                yield self._paired(slot.source[0], slot.destination[0], slot.agreement)

    # Where one side ends

    def _finish_destination(self) -> Iterator[Finding]:
        """What the destination has after the end of the source is extra."""
        while self._destination.first():
            yield from self._step_over(MeetingPoint(0, 1))

    def _finish_source(self) -> Iterator[Finding]:
        """What the source has after the end of the destination is missing, or not mirrored yet."""
        if self._open.awaits_source:
            awaited = self._open.last_awaited(self._source.look(self._look_ahead))
            yield from self._step_over(MeetingPoint(awaited, 0))
        while (batch := self._source.first()) and batch.base_offset < self._mirrored_until:
            yield from self._step_over(MeetingPoint(1, 0))
        yield from self._open.close_all()
        if batch:
            yield Finding(Kind.NOT_MIRRORED, (batch,), (), batch.base_offset, self._destination.position)


def _belong_here(last: Sequence[Digest], others: Sequence[Digest]) -> bool:
    """Whether the last batches of one side stand for some of the other, though they are not in step."""
    return len(last) <= _MOST_ALTERED_AT_THE_END or have_in_common(last, others)


def _gap(batches: Sequence[Digest], following: Digest | None) -> int:
    """Return how many offsets have no record around some batches."""
    return sum(batch.gap_before for batch in [*batches, *([following] if following else [])])


def _excuse(slots: Sequence[Slot], source_gap: int, destination_gap: int) -> None:
    """
    Find out what compaction explains.

    A mirror writes offsets without gaps, so a gap at the destination is what
    compaction left there; a gap in the source may be older than the mirror.
    """
    missing = [slot for slot in slots if slot.source and not slot.destination]
    extra = [slot for slot in slots if slot.destination and not slot.source]
    for one_sided, gap in ((missing, destination_gap), (extra, source_gap)):
        if sum(slot.records for slot in one_sided) <= gap:
            for slot in one_sided:
                slot.compacted = True

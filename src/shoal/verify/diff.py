"""
The differences between two sides of a partition. No I/O of its own; memory is bounded.

As long as the next batches have the same bytes on both sides, they are taken
together by their digests, and nothing is decoded. If they do not, their records are
compared one by one, wherever each side was cut. So a copy that is equal is never
taken for another. From the first record that is not the same, both sides are
looked at further ahead. If they were in step by batches, the place at which they
agree again is found by digests. Up to there it is a *stretch*, which has whole
batches that are missing, moved or doubled, or else the records in it are compared:

1. in a window of records, which grows, for a place at which they agree again;
2. by digests, for the end of a stretch;
3. if one side ends, its last records stand for some of the other's.

The batches or records before that place are matched up (:mod:`.matching`), and the comparison
continues there. If no such place is near, both sides have diverged: the caller searches on.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import NamedTuple

from ..errors import ShoalError
from .decoded import Decoded, Decoder, Times
from .digest import Digest, Digests, Entry, are_pair, are_same, begin_pair, resemble
from .finding import AnyFinding, Finding, Gap, Kind, Part, SameBatches, SameRecords, SameRun
from .gaps import gap_before_likes, meeting_behind_gaps, name_gaps
from .matching import MatchSlot, Recent, are_alike, are_beside_gap, have_in_common, match_up, reach
from .meeting import MeetingPoint, Proof, meeting_point
from .open_slots import OpenSlots
from .side import ComparedSide

__all__ = ["LOOK_AHEAD_BATCHES", "LOOK_AHEAD_RECORDS", "Decoders", "diff"]

#: The number of batches to look at to meet again, and to remember to recognise a
#: double. One takes some 500 bytes here: 2 MB for each of these.
LOOK_AHEAD_BATCHES = 4096

#: The same for records, and so many wait to turn up elsewhere. A batch of 1 MiB
#: has so many if they are small. 8 MB for each of these.
LOOK_AHEAD_RECORDS = 16_384

#: The number of records before a difference to decode to recognise a double, if
#: that takes no more than the batches that are remembered.
_RECORDS_BEFORE = 1024

#: A window of batches or records grows by steps: most differences are short.
_LOOKS = (16, 128, 1024)

#: The most records at the end of one side that may be altered ones. If there are
#: more, and none is found within the window, they belong elsewhere.
_MOST_ALTERED_AT_THE_END = 64

#: The number of records that only one side has to take at a time.
_AT_ONCE = 1024

_END_OF_OFFSETS = 2**63

#: The source's, and the destination's.
Decoders = tuple[Decoder, Decoder]


def diff(
    source: Iterable[Digests],
    destination: Iterable[Digests],
    decoders: Decoders,
    *,
    start: tuple[int, int] = (0, 0),
    ends: tuple[int, int] | None = None,
    mirrored_until: int = 0,
    look_ahead_batches: int = LOOK_AHEAD_BATCHES,
    look_ahead_records: int = LOOK_AHEAD_RECORDS,
) -> Iterator[AnyFinding]:
    """
    Compare two streams of batches that begin in the same place.

    Args:
        source: The batches that a mirror would have copied, in order.
        destination: The copy's batches, in order.
        decoders: Decode batches that are not the same by their bytes.
        start: The offsets at which the two begin.
        ends: The offsets at which the two end, behind any gap; None if these are not known.
        mirrored_until: Source offset before which everything must be at the
            destination, even if that ends earlier.
        look_ahead_batches: How far to look on each side to meet again.
        look_ahead_records: The same in records.

    Yields:
        Findings: each batch of each side is in exactly one, or each of its
        records is, but for those after the last finding. They are not strictly
        in order: records that may have been reordered wait. The last may be
        ``NOT_MIRRORED`` (the destination ends there), or ``DIVERGED`` (within
        the look ahead the sides do not meet again).

    Raises:
        ShoalError: As the streams and the decoders, after the last finding.

    """
    our_end, their_end = ends or (None, None)
    ours, theirs = (
        ComparedSide(source, start[0], decoders[0], our_end),
        ComparedSide(destination, start[1], decoders[1], their_end),
    )
    return _Diff(ours, theirs, mirrored_until, look_ahead_batches, look_ahead_records).run()


class _NextRecords(NamedTuple):
    """The next records of both sides, and whether these are the last ones."""

    source: Sequence[Entry]
    destination: Sequence[Entry]
    source_ends: bool
    destination_ends: bool

    @property
    def is_all(self) -> bool:
        return self.source_ends and self.destination_ends

    def meeting_point(self, proof: Proof) -> MeetingPoint | None:
        """Find how much to step over."""
        return meeting_point(
            self.source,
            self.destination,
            are_pair,
            begins=begin_pair,
            are_the_last=self.is_all,
            proof=proof,
        )


class _Diff:
    def __init__(
        self,
        source: ComparedSide,
        destination: ComparedSide,
        mirrored_until: int,
        most_batches: int,
        most_records: int,
    ) -> None:
        self._source = source
        self._destination = destination
        self._mirrored_until = mirrored_until
        self._most_batches = most_batches
        self._most_records = most_records
        self._looks = _looks_up_to(most_records)
        self._recent = Recent(most_batches, most_records)
        #: Source records before this offset are known to it.
        self._remembered_until = 0
        self._open = OpenSlots(most_records, self._recent)
        self._is_stretch = False
        #: Records in step had the append times of the source's batches at the destination.
        self._of_append = False
        #: The last batch that ended was the same on both sides.
        self._is_by_batches = False

    def run(self) -> Iterator[AnyFinding]:
        try:
            yield from self._compare()
        except ShoalError:
            # Differences that were found so far count all the same.
            yield from self._open.close_all()
            raise

    def _compare(self) -> Iterator[AnyFinding]:
        while True:
            yield from self._in_step()
            if self._source.first() and self._destination.first():
                if self._is_by_batches and (yield from self._step_over_batches()):
                    continue
                point = self._meeting_point()
                if point is None:
                    self._raise_failure()
                    yield from self._open.close_all()
                    yield Finding(Kind.DIVERGED, (), (), *self._places())
                    return
                yield from self._step_over(point)
            elif self._is_stretch:
                yield from self._finish_stretch()
            else:
                break
        self._raise_failure()
        yield from self._take_rest(self._destination)
        yield from self._finish_source()
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure = self._source.failure or self._destination.failure
        if failure is not None:
            raise failure

    def _places(self) -> tuple[int, int]:
        return self._source.position, self._destination.position

    # In step

    def _in_step(self) -> Iterator[AnyFinding]:
        """Take batches and records as long as they are the same on both sides."""
        while True:
            yield from self._take_runs()
            first, other = self._source.first(), self._destination.first()
            if first is None or other is None:
                return
            if self._source.batch() and self._destination.batch() and are_same(first, other):
                yield self._take_batches()
                continue
            ours, theirs = self._source.decoded(), self._destination.decoded()
            if ours is not None and theirs is not None:
                if not (yield from self._compare_decoded(ours, theirs)):
                    return
            elif not (yield from self._compare_entries()):
                return

    def _take_runs(self) -> Iterator[SameBatches]:
        while (ours := self._source.run()) and (theirs := self._destination.run()):
            count = ours.same_as(theirs)
            if not count:
                return
            taken = SameBatches(self._source.take_run(count), self._destination.take_run(count))
            self._recent.add_batches(taken.source)
            self._is_by_batches = True
            yield taken

    def _take_batches(self) -> Finding:
        places = self._places()
        source, destination = self._source.pop_batch(), self._destination.pop_batch()
        if source.damage or destination.damage:
            return Finding(Kind.ALTERED, (source,), (destination,), *places)
        self._recent.add_batches(source)
        self._is_by_batches = True
        return Finding(Kind.SAME, (source,), (destination,), *places)

    def _compare_decoded(self, ours: Decoded, theirs: Decoded) -> Generator[AnyFinding, None, bool]:
        """Take the records that are the same from here to the end of a batch; return whether one ended."""
        source, destination = self._source, self._destination
        source.forget_entries()
        destination.forget_entries()
        count = _same_records(ours, source.index, theirs, destination.index)
        is_done = source.index + count == len(ours.records) or destination.index + count == len(
            theirs.records
        )
        if is_done:
            self._is_by_batches = False
        if count and ours.append_time is not None:
            created, copied = ours.records[source.index], theirs.records[destination.index]
            self._of_append = self._of_append or created.timestamp != copied.timestamp == ours.append_time
        if count or is_done:
            runs = source.advance(ours, count), destination.advance(theirs, count)
            yield SameRecords(*runs)
        return is_done

    def _compare_entries(self) -> Generator[AnyFinding, None, bool]:
        """Take entries that are the same up to the end of a batch; return whether one ended."""
        source, destination = self._source, self._destination
        while True:
            ours, theirs = source.entries(1), destination.entries(1)
            if not ours or not theirs:
                return True
            if are_same(ours[0], theirs[0]):
                self._recent.add_record(ours[0])
                yield SameRecords(source.take_found(), destination.take_found())
            elif are_pair(ours[0], theirs[0]):
                source.take(1)
                destination.take(1)
                yield MatchSlot([*ours], [*theirs], ours[0].base_offset, theirs[0].base_offset).to_finding()
            else:
                return False
            if ours[0].is_last or theirs[0].is_last:
                self._is_by_batches = False
                return True

    # Whole batches that differ

    def _step_over_batches(self) -> Generator[AnyFinding, None, bool]:
        """
        Step over whole batches up to those that agree again, or begin a stretch up to them.

        Only after records that differ: an equal copy may be cut in another way, and some of its
        batches may be like others all the same.

        Returns:
            Whether some agree again.

        """
        self._is_by_batches = False
        is_begun = bool(self._source.index)
        if self._is_stretch or is_begun != bool(self._destination.index):
            return False
        point = self._meeting_batches(is_begun)
        if point is None:
            return False
        source = self._source.batches(point.source)
        destination = self._destination.batches(point.destination)
        if is_begun or not self._are_whole(source, destination):
            self._begin_stretch(point)
        else:
            yield from self._match_up_batches(len(source), len(destination))
            self._is_by_batches = True
        return True

    def _meeting_batches(self, is_begun: bool) -> MeetingPoint | None:
        """Find how many batches to step over behind those that are begun."""
        for count in _looks_up_to(self._most_batches):
            source, destination = self._source.batches(count), self._destination.batches(count)
            are_all = self._source.batches_end_within(count) and self._destination.batches_end_within(count)
            # Among many differences nothing agrees for long: a short proof is better than a long search.
            for proof in (Proof.LONG, Proof.SHORT) if count > _LOOKS[0] else (Proof.LONG,):
                point = meeting_point(
                    source,
                    destination,
                    are_same,
                    are_the_last=are_all,
                    proof=proof,
                    may_be_here=is_begun,
                )
                if point is not None:
                    return point
            if are_all:
                return None
        return None

    def _are_whole(self, source: Sequence[Digest], destination: Sequence[Digest]) -> bool:
        """Whether nothing but whole batches is missing, moved or there twice."""
        if not all(each.is_readable and each.fingerprint for each in (*source, *destination)):
            return False
        ours = {each.fingerprint for each in source}
        theirs = {each.fingerprint for each in destination}
        missing = [each for each in source if each.fingerprint not in theirs]
        if self._open.has_extra_records and missing:
            # One of these may be in a missing batch.
            return False
        doubles = [
            each for each in destination if each.fingerprint not in ours and not self._open.awaits(each)
        ]
        if any(self._recent.like(each) is None for each in doubles) or self._share_records(missing, doubles):
            return False
        return not (source and self._is_like_before_gap(source[0]))

    def _share_records(self, missing: Sequence[Digest], doubles: Sequence[Digest]) -> bool:
        """Whether a batch like an earlier one may have records of a missing one, cut in another way."""
        if not missing or not doubles:
            return False
        ours = {entry.fingerprint for each in missing for entry in self._source.entries_of(each)}
        return any(
            entry.fingerprint in ours for each in doubles for entry in self._destination.entries_of(each)
        )

    def _is_like_before_gap(self, batch: Digest) -> bool:
        """Whether a gap of the destination before the last records, which are the same, may explain it."""
        if not self._destination.has_gap_behind:
            return False
        entries = self._source.entries_of(batch)
        return bool(entries) and self._gap_before_likes(entries[0]) is not None

    def _match_up_batches(self, source_count: int, destination_count: int) -> Iterator[AnyFinding]:
        places = self._places()
        source = [self._source.pop_batch() for _ in range(source_count)]
        destination = [self._destination.pop_batch() for _ in range(destination_count)]
        slots = match_up(source, destination, places, self._recent)
        name_gaps(slots, (self._source.gap_ahead_of_batch(), self._destination.gap_ahead_of_batch()))
        yield from self._add(slots)

    def _add(self, slots: Sequence[MatchSlot]) -> Iterator[AnyFinding]:
        for slot in slots:
            if not slot.is_pair:
                yield from self._open.add(slot)
                continue
            source, destination = slot.source[0], slot.destination[0]
            if isinstance(source, Digest):
                self._recent.add_batches(source)
                yield Finding(Kind.SAME, (source,), (destination,), slot.source_place, slot.destination_place)
            else:
                self._recent.add_record(source)
                yield SameRecords(
                    *(SameRun(each.base_offset, each.next_offset, 1, False) for each in slot.parts)
                )

    # Records that differ

    def _meeting_point(self) -> MeetingPoint | None:
        """Find how much to step over; None if no look ahead is long enough."""
        if not self._source.has_entries and not self._destination.has_entries:
            times = Times.seen(self._source.decoded(), self._destination.decoded(), self._of_append)
            self._source.times = self._destination.times = times
        for count in self._looks:
            window = self._window(count)
            point = window.meeting_point(Proof.LONG) or self._meeting_behind_gaps(window)
            if point is not None:
                return point
            if window.is_all:
                break
        # If as many are left on both sides, all of them are matched up below.
        if not window.is_all or len(window.source) != len(window.destination):
            point = window.meeting_point(Proof.SHORT)
            if point is not None:
                return point
        if not window.is_all and not self._is_stretch and self._find_stretch():
            window = self._window(self._most_records)
        return self._last_resort(window)

    @staticmethod
    def _meeting_behind_gaps(window: _NextRecords) -> MeetingPoint | None:
        """Find the next record that both sides have, if gaps may explain those before it."""
        if not any(side and side[0].gap_before for side in (window.source, window.destination)):
            return None
        return meeting_behind_gaps(window.source, window.destination)

    def _window(self, count: int) -> _NextRecords:
        return _NextRecords(
            self._source.entries(count),
            self._destination.entries(count),
            self._source.entries_end_within(count),
            self._destination.entries_end_within(count),
        )

    def _find_stretch(self) -> bool:
        """Find batches from which on both sides agree again, however many records are before them."""
        source = self._source.batches(self._most_batches)
        destination = self._destination.batches(self._most_batches)
        are_the_last = self._source.batches_end_within(
            self._most_batches
        ) and self._destination.batches_end_within(self._most_batches)
        for agree in (are_same, resemble):
            point = meeting_point(source, destination, agree, are_the_last=are_the_last, proof=Proof.SHORT)
            if point is not None:
                self._begin_stretch(point)
                return True
        return False

    def _begin_stretch(self, point: MeetingPoint) -> None:
        self._source.begin_stretch(point.source)
        self._destination.begin_stretch(point.destination)
        self._is_stretch = True

    def _finish_stretch(self) -> Iterator[AnyFinding]:
        """Take the rest of a stretch: only one side has it."""
        yield from self._take_rest(self._destination)
        yield from self._take_rest(self._source)
        self._source.end_stretch()
        self._destination.end_stretch()
        self._is_stretch = False

    def _last_resort(self, window: _NextRecords) -> MeetingPoint | None:
        """Find how much to step over if both sides are not seen in step again."""
        source, destination = window.source, window.destination
        if self._is_stretch and window.is_all:
            # Both sides agree behind it.
            return MeetingPoint(len(source), len(destination))
        if window.destination_ends:
            self._remember()
            new = [each for each in destination if self._recent.like(each) is None]
            if window.source_ends or _belong_here(new, source):
                return MeetingPoint(reach(new, source), len(destination))
        if window.source_ends and _belong_here(source, destination):
            return MeetingPoint(len(source), reach(source, destination))
        if self._is_stretch:
            # Both sides agree behind it: go on in step.
            return MeetingPoint(len(source), len(destination))
        if window.source_ends or window.destination_ends:
            return None
        return window.meeting_point(Proof.NONE)

    def _step_over(self, point: MeetingPoint) -> Iterator[AnyFinding]:
        """Match up the records before a point at which both sides agree again."""
        if point.destination and not self._are_altered_in_place(point):
            self._remember()
        places = self._places()
        source = self._source.take(point.source)
        destination = self._destination.take(point.destination)
        slots = match_up(source, destination, places, self._recent)
        name_gaps(slots, (self._source.gap_ahead(), self._destination.gap_ahead()))
        self._name_gaps_before_likes(slots)
        if any(not slot.source and slot.copy_of is None for slot in slots):
            self._open.split_batches(self._source.entries_of)
        yield from self._add(slots)

    def _gap_before_likes(self, part: Part) -> Gap | None:
        return gap_before_likes(self._destination.last_entries(0, _RECORDS_BEFORE), part)

    def _name_gaps_before_likes(self, slots: Sequence[MatchSlot]) -> None:
        """Name a gap of the destination before the last records in step, if missing ones are the same."""
        if not self._destination.has_gap_behind:
            return
        for slot in slots:
            if slot.is_pair or slot.destination or any(slot.gaps):
                return
            gap = self._gap_before_likes(slot.source[0])
            if gap is None:
                return
            slot.gaps = gap, None

    def _are_altered_in_place(self, point: MeetingPoint) -> bool:
        """Whether each of the next records probably is the other side's, altered: none is there twice."""
        source = self._source.entries(point.source)
        destination = self._destination.entries(point.destination)
        return len(source) == len(destination) and all(map(are_alike, source, destination))

    def _remember(self) -> None:
        """Decode the source's records before a difference: the destination may have one of them twice."""
        for each in self._source.last_entries(self._remembered_until, _RECORDS_BEFORE):
            self._recent.add_record(each)
        self._remembered_until = self._source.position

    # The end of one side

    def _take_rest(self, side: ComparedSide) -> Iterator[AnyFinding]:
        """Take all that is left of one side, up to its end or the stretch's: it is extra, or missing."""
        if side is self._destination:
            yield from self._take_last_batches(side, _END_OF_OFFSETS)
        while count := len(side.entries(_AT_ONCE)):
            yield from self._step_over(
                MeetingPoint(count, 0) if side is self._source else MeetingPoint(0, count)
            )

    def _take_awaited(self) -> Iterator[AnyFinding]:
        """Take the source's batches or records up to the last one that the destination had too early."""
        if self._source.batch() is not None:
            source = self._source.batches(self._most_batches)
            awaited = self._open.last_awaited(source)
            if awaited and self._are_whole(source[:awaited], []):
                yield from self._match_up_batches(awaited, 0)
        if self._open.awaits_records:
            awaited = self._open.last_awaited(self._source.entries(self._most_records))
            yield from self._step_over(MeetingPoint(awaited, 0))

    def _take_last_batches(self, side: ComparedSide, until: int) -> Iterator[AnyFinding]:
        """Take one side's batches before an offset if all are missing, or doubles, as a whole."""
        if self._is_stretch or side.batch() is None:
            return
        found = self._batches_before(side, until)
        source, destination = (found, []) if side is self._source else ([], found)
        if found and self._are_whole(source, destination):
            yield from self._match_up_batches(len(source), len(destination))

    def _batches_before(self, side: ComparedSide, until: int) -> list[Digest]:
        """Return the batches before an offset; none if they are too many, or do not end there."""
        for count in _looks_up_to(self._most_batches):
            found = side.batches(count)
            before = [each for each in found if each.base_offset < until]
            if len(before) < len(found) or side.batches_end_within(count):
                return before if before and before[-1].next_offset <= until else []
        return []

    def _finish_source(self) -> Iterator[AnyFinding]:
        """Take the source's records behind the end of the destination: missing, or not mirrored yet."""
        if self._open.awaits_source:
            yield from self._take_awaited()
        if self._source.position < self._mirrored_until:
            yield from self._take_last_batches(self._source, self._mirrored_until)
        while (batch := self._source.first()) and batch.base_offset < self._mirrored_until:
            entries = self._source.entries(_AT_ONCE)
            count = sum(each.base_offset < self._mirrored_until for each in entries)
            if not count:
                break
            yield from self._step_over(MeetingPoint(count, 0))
        yield from self._open.close_all()
        if (batch := self._source.first()) is not None:
            begun = self._source.peek() if self._source.index else None
            place = begun.base_offset if begun else batch.base_offset
            yield Finding(Kind.NOT_MIRRORED, (), (), place, self._destination.position)


def _looks_up_to(most: int) -> list[int]:
    return [*(count for count in _LOOKS if count < most), most]


def _same_records(ours: Decoded, i: int, theirs: Decoded, j: int) -> int:
    """Return how many records are the same, from two indexes on."""
    count = min(len(ours.records) - i, len(theirs.records) - j)
    is_timed, append_time = theirs.append_time is None, ours.append_time
    for index in range(count):
        _, timestamp, body = ours.records[i + index]
        _, other_timestamp, other_body = theirs.records[j + index]
        if body != other_body:
            return index
        if timestamp != other_timestamp and is_timed and other_timestamp != append_time:
            return index
    return count


def _belong_here(last: Sequence[Entry], others: Sequence[Entry]) -> bool:
    """Whether the last records of one side stand for some of the other, though they are not in step."""
    is_short = len(last) <= _MOST_ALTERED_AT_THE_END
    return is_short or have_in_common(last, others) or are_beside_gap(last, others)

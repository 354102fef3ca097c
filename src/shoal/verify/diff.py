"""
Two streams of batches, and where they differ. No I/O; memory is bounded.

As long as both sides agree, batches are paired one by one. Where they do not,
they are decoded, and their records compared, until both sides are in step
again (:mod:`.decoded`). Where the records are not the same either, both
streams are looked at further ahead, until they meet again
(:mod:`.look_ahead`), and what lies before that is matched up piece by piece
(:mod:`.slots`): batch by batch where both sides were cut in the same way,
else as streams of records, by the same rules.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress

from ..errors import ShoalError
from .decoded import Decoder, Decoders, RecordStream, Times, compare_decoded
from .digest import Agreement, Digest, agree
from .errors import NotDecodable
from .finding import Finding, Kind
from .look_ahead import LookAhead, MeetingPoint, meeting_point
from .slots import OpenSlots, Recent, Slot, have_in_common, match_up, reach

__all__ = ["LOOK_AHEAD_BATCHES", "diff"]

#: How far is looked to meet again, how many batches wait to turn up elsewhere,
#: and how many are remembered to recognise a double. One takes some 500 bytes
#: here: 2 MB for each of these.
LOOK_AHEAD_BATCHES = 4096

#: The same where records are compared: so many are in a batch of 1 MiB, if
#: they are small. 8 MB for each of these.
_LOOK_AHEAD_RECORDS = 16_384

#: So many records before a difference are decoded to recognise a double, if
#: that takes no more than what is remembered; and so many behind one to find
#: what was only reordered.
_RECORDS_AROUND = 1024

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
    decoders: Decoders | None = None,
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
        decoders: Decode what is not the same by its bytes; None where there
            is nothing to decode.

    Yields:
        Findings: each batch of each side is in exactly one, or each of its
        records is, but for those after the last finding. They are not strictly in order: what may have
        been reordered waits. The last may be ``NOT_MIRRORED`` (the destination
        ends there), or ``DIVERGED`` (within the look ahead the sides do not
        meet again).

    Raises:
        ShoalError: What the streams raise, after the last finding.

    """
    return _Diff(source, destination, start, mirrored_until, look_ahead_batches, decoders).run()


class _Diff:
    def __init__(
        self,
        source: Iterable[Digest],
        destination: Iterable[Digest],
        start: tuple[int, int],
        mirrored_until: int,
        look_ahead_batches: int,
        decoders: Decoders | None = None,
    ) -> None:
        self._source = LookAhead(source, start[0])
        self._destination = LookAhead(destination, start[1])
        self._mirrored_until = mirrored_until
        self._look_ahead = look_ahead_batches
        self._looks = [*(count for count in _LOOKS if count < look_ahead_batches), look_ahead_batches]
        self._recent = Recent(look_ahead_batches)
        self._open = OpenSlots(look_ahead_batches, self._recent)
        self._decoders = decoders
        #: Whether the last batches that were the same were the same only by their records,
        #: and whether these were one batch on either side, as where a broker recompresses.
        self._was_decoded = False
        self._are_cut_alike = False
        #: Up to this source offset nothing is found by searching for whole batches.
        self._searched_until = -1
        self._is_at_end = False

    def run(self) -> Iterator[Finding]:
        while (source := self._source.first()) and (destination := self._destination.first()):
            agreement = agree(source, destination)
            if agreement is not Agreement.NONE:
                self._source.pop()
                self._destination.pop()
                self._was_decoded = False
                yield self._paired(source, destination, agreement)
            elif (yield from self._go_on()):
                continue
            elif self._is_at_end:
                return
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

    def _go_on(self) -> Generator[Finding, None, bool]:
        """Get over two batches that do not agree; return whether both sides are in step again."""
        if self._decoders is not None:
            skip = yield from self._compare_decoded(self._decoders)
            if skip is None:
                return True
            if skip == (0, 0):
                source, destination = self._source.first(), self._destination.first()
                if source is None or destination is None or agree(source, destination) is not Agreement.NONE:
                    # At an end, or one cannot be decoded.
                    return True
                if self._may_be_told_by_batches(source, destination):
                    point = self._meeting_point()
                    if point is not None and self._can_be_told_by_batches(point):
                        yield from self._step_over(point)
                        return True
                    if point is None and self._are_single_records():
                        return False
                    self._do_not_search_again(point)
            if (yield from self._compare_records(self._decoders, skip)):
                return True
            if self._is_at_end:
                return False
        point = self._meeting_point()
        if point is not None:
            yield from self._step_over(point)
        return point is not None

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

    # Where batches are not the same

    def _compare_decoded(self, decoders: Decoders) -> Generator[Finding, None, tuple[int, int] | None]:
        """Compare records as long as they are the same; see :func:`compare_decoded`."""
        findings = compare_decoded(self._source, self._destination, decoders)
        count, is_rebuilt = 0, False
        while True:
            try:
                finding = next(findings)
            except StopIteration as ended:
                skip: tuple[int, int] | None = ended.value
                if count:
                    self._are_cut_alike = count == 2 and not is_rebuilt
                return skip
            count += 1
            is_rebuilt |= any(batch.is_rebuilt for batch in (*finding.source, *finding.destination))
            self._was_decoded = True
            yield finding

    def _may_be_told_by_batches(self, source: Digest, destination: Digest) -> bool:
        """Whether what differs may be found without decoding, by searching for whole batches."""
        if source.is_rebuilt or destination.is_rebuilt or source.base_offset < self._searched_until:
            return False
        return self._are_cut_alike or not self._was_decoded

    def _do_not_search_again(self, point: MeetingPoint | None) -> None:
        """Remember how far was searched: what is looked at ahead stays the same for a while."""
        seen = self._source.look(point.source if point else self._look_ahead)
        if seen:
            self._searched_until = seen[-1].next_offset

    def _can_be_told_by_batches(self, point: MeetingPoint) -> bool:
        source, destination = self._source.look(point.source), self._destination.look(point.destination)
        if not destination:
            return True
        if not source:
            # Record by record it is also found out what they double.
            return not self._was_decoded
        if any(batch.damage for batch in (*source, *destination)):
            return len(source) == len(destination)
        if any(batch.is_rebuilt or batch.undecoded for batch in (*source, *destination)):
            return False
        if {batch.codec_id for batch in source} != {batch.codec_id for batch in destination}:
            return False
        is_end = self._source.at(point.source) is None or self._destination.at(point.destination) is None
        return not is_end or [each.records for each in source] == [each.records for each in destination]

    def _are_single_records(self) -> bool:
        """Whether decoding tells no more than was found: no record is in a batch with another."""
        seen = [*self._source.look(self._look_ahead), *self._destination.look(self._look_ahead)]
        is_single = all(batch.records_count == 1 and batch.fingerprint is not None for batch in seen)
        return is_single and len({batch.codec_id for batch in seen}) == 1

    def _compare_records(self, decoders: Decoders, skip: tuple[int, int]) -> Generator[Finding, None, bool]:
        """
        Compare record by record, over differences.

        Args:
            decoders: Decode both sides.
            skip: How many records of the next batches are done already.

        Returns:
            Whether both sides are in step again, at the end of a batch. If
            not, they are at their ends, or they have diverged.

        """
        before = tuple(self._source.taken)
        ours, theirs = (
            RecordStream(batches, decoder, passed)
            for batches, decoder, passed in zip(
                (self._source, self._destination), decoders, skip, strict=True
            )
        )
        if passed_over := ours.passed_over():
            yield Finding(Kind.DECODED, (passed_over,), (), *self._places())
        times = Times.seen(ours.first, theirs.first)
        records = _Diff(
            ours.digests(times),
            theirs.digests(times),
            (ours.start, theirs.start),
            self._mirrored_until,
            max(self._look_ahead, _LOOK_AHEAD_RECORDS),
        )
        for record in (*_last_records(before, decoders[0], times), *ours.passed(times, _RECORDS_AROUND)):
            records._recent.add(record)
        same = 0
        try:
            for finding in records.run():
                if finding.kind is Kind.DIVERGED:
                    ours.take(records._source.position)
                    theirs.take(records._destination.position)
                    return False
                if finding.kind is Kind.NOT_MIRRORED:
                    yield from self._open.close_all()
                yield finding
                ours.take(records._source.position)
                theirs.take(records._destination.position)
                same = same + 1 if finding.kind is Kind.SAME else 0
                is_boundary = same and finding.source[0].is_last and finding.destination[0].is_last
                if is_boundary and (records._open.is_empty or same >= _RECORDS_AROUND):
                    yield from records._open.close_all()
                    ours.take_begun(records._source.position)
                    theirs.take_begun(records._destination.position)
                    self._was_decoded, self._are_cut_alike = True, False
                    return True
        except ShoalError:
            yield from self._open.close_all()
            raise
        yield from self._open.close_all()
        self._is_at_end = True
        return False

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


def _last_records(batches: Sequence[Digest], decoder: Decoder, times: Times) -> Iterator[Digest]:
    """Yield the last records of batches that were compared already, as far as they can be read."""
    first = len(batches)
    count = 0
    while first and count < _RECORDS_AROUND:
        first -= 1
        count += batches[first].records
    for batch in batches[first:]:
        if batch.damage or batch.undecoded:
            continue
        with suppress(NotDecodable):
            decoded = decoder.decode(batch)
            for record in decoded.records[-_RECORDS_AROUND:]:
                yield times.digest(record, decoded.append_time)


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
    # What is there twice was not taken away.
    extra = [slot for slot in slots if slot.destination and not slot.source and slot.copy_of is None]
    for one_sided, gap in ((missing, destination_gap), (extra, source_gap)):
        if sum(slot.records for slot in one_sided) <= gap:
            for slot in one_sided:
                slot.compacted = True

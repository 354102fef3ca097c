"""
Records between two places at which both sides agree, matched up piece by piece. No I/O.

A slot is a place where one side has something and the other has something else, or nothing: an altered,
missing or extra record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..records import Fingerprint
from .digest import Digest, Digests, Entry, count_of, last_of
from .finding import Finding, Gap, Kind, Part

__all__ = ["MatchSlot", "Recent", "are_alike", "are_beside_gap", "have_in_common", "match_up", "reach"]


class Recent:
    """The last source batches, and the last source records, that were found at the destination."""

    def __init__(self, most_batches: int, most_records: int) -> None:
        self._batches = _Latest(most_batches)
        self._records = _Latest(most_records)

    def add_batches(self, found: Digests) -> None:
        """Remember batches whose bytes are the same on both sides."""
        self._batches.add_later(found)

    def add_record(self, record: Entry) -> None:
        """Remember a record that is the same on both sides."""
        self._records.add(record.fingerprint, record.base_offset)

    def like(self, part: Part) -> int | None:
        """Return the source offset of a batch or a record with the same content, if there is one."""
        found = None if isinstance(part, Digest) else self._records.offset_of(part.fingerprint)
        if found is not None:
            return found
        batch = self._batches.offset_of(part.batch.fingerprint)
        return None if batch is None else batch + part.base_offset - part.batch.base_offset


class _Latest:
    """The offsets of the last batches or records, by content."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._order: deque[tuple[Fingerprint | None, int]] = deque()
        self._offsets: dict[Fingerprint | None, int] = {}
        #: Batches that are not among these yet: as long as nothing is looked up, nothing is unpacked.
        self._later: deque[Digests] = deque()
        self._count_later = 0

    def add_later(self, found: Digests) -> None:
        """Remember batches."""
        self._later.append(found)
        self._count_later += count_of(found)
        while self._count_later - count_of(self._later[0]) >= self._most:
            self._count_later -= count_of(self._later.popleft())

    def add(self, fingerprint: Fingerprint | None, offset: int) -> None:
        """Remember one more."""
        self._order.append((fingerprint, offset))
        self._offsets[fingerprint] = offset
        if len(self._order) > self._most:
            oldest, at = self._order.popleft()
            if self._offsets.get(oldest) == at:
                del self._offsets[oldest]

    def offset_of(self, fingerprint: Fingerprint | None) -> int | None:
        """Return the offset of the last one with this content, if it is remembered."""
        while self._later:
            for batch in last_of(self._later.popleft(), self._most):
                self.add(batch.fingerprint, batch.base_offset)
        self._count_later = 0
        return None if fingerprint is None else self._offsets.get(fingerprint)


@dataclass(slots=True, eq=False)
class MatchSlot:
    """
    Records of one side in a place at which the other side has others, or none.

    Attributes:
        source_place: The source offset, also if the source has nothing there.
        destination_place: The destination offset, also if the destination has nothing there.
        is_pair: They are the same after all.
        copy_of: The source offset of the record that the destination's one doubles.
        gaps: As in the finding.

    """

    source: list[Part]
    destination: list[Part]
    source_place: int
    destination_place: int
    is_pair: bool = False
    copy_of: int | None = None
    gaps: tuple[Gap | None, Gap | None] = (None, None)

    @property
    def parts(self) -> list[Part]:
        """The batches or records of both sides."""
        return [*self.source, *self.destination]

    @property
    def kind(self) -> Kind:
        """How its records compare, once none of them can turn up elsewhere; it has at least one."""
        if any(each.batch.damage for each in self.parts):
            return Kind.ALTERED
        if any(each.batch.undecoded for each in self.parts):
            return Kind.UNDECODED
        of_source, of_destination = self.gaps
        is_explained = (of_source or not self.source) and (of_destination or not self.destination)
        # The source has a doubled record: compaction did not remove it.
        if is_explained and self.copy_of is None:
            return Kind.COMPACTED
        if self.source and self.destination:
            return Kind.ALTERED
        return Kind.MISSING if self.source else Kind.EXTRA

    def name_double(self, recent: Recent) -> None:
        """Find out whether an extra record is one that both sides have, before it or after it."""
        if self.copy_of is None and not self.source and len(self.destination) == 1:
            self.copy_of = recent.like(self.destination[0])

    def to_finding(self) -> Finding:
        """Return it as a finding."""
        return Finding(
            self.kind,
            tuple(self.source),
            tuple(self.destination),
            self.source_place,
            self.destination_place,
            self.copy_of,
            self.gaps,
        )


# Matching up

#: A record with so many likes may stand for any of these. One with more stands for that of its own number:
#: a topic may repeat one record without end.
_MOST_LIKES = 16

#: Records of one side, and those of the other in their place.
_Run = tuple[Sequence[Part], Sequence[Part]]


def match_up(
    source: Sequence[Part], destination: Sequence[Part], places: tuple[int, int], recent: Recent
) -> list[MatchSlot]:
    """
    Put records of two sides into slots, in order.

    Args:
        source: A run of the source's records.
        destination: The destination's records in its place.
        places: The offsets at which the two begin.
        recent: The records that were found before.

    Returns:
        Slots that hold each record once. Pairs are those that both sides have
        in the same order.

    """
    slots: list[MatchSlot] = []
    for (ours, theirs), is_pair in _pieces(source, destination, recent):
        source_place = ours[0].base_offset if ours else places[0]
        destination_place = theirs[0].base_offset if theirs else places[1]
        is_same = is_pair or _has_append_time(ours, theirs)
        slot = MatchSlot(list(ours), list(theirs), source_place, destination_place, is_same)
        slot.name_double(recent)
        slots.append(slot)
        places = (
            ours[-1].next_offset if ours else source_place,
            theirs[-1].next_offset if theirs else destination_place,
        )
    return slots


def _pieces(
    source: Sequence[Part], destination: Sequence[Part], recent: Recent
) -> Iterator[tuple[_Run, bool]]:
    for between, pair in _split((source, destination), _in_step(source, destination)):
        for piece in _differing(*between, recent):
            yield piece, False
        if pair:
            yield pair, True


def _differing(source: Sequence[Part], destination: Sequence[Part], recent: Recent) -> Iterator[_Run]:
    """Take a run without agreement apart: moved records, doubles, similar ones, the rest."""
    elsewhere = _fingerprints(source) & _fingerprints(destination)
    ours, our_strays = _partition(source, lambda each: each.fingerprint in elsewhere)
    theirs, their_strays = _partition(
        destination, lambda each: each.fingerprint in elsewhere or recent.like(each) is not None
    )
    for stray in our_strays:
        yield [stray], []
    for stray in their_strays:
        yield [], [stray]
    for between, pair in _split((ours, theirs), _alike(ours, theirs, _content)):
        for rest, alike in _split(between, _alike(*between, _likeness)):
            yield from _one_by_one(*rest)
            if alike:
                yield alike
        if pair:
            yield pair


def _one_by_one(source: Sequence[Part], destination: Sequence[Part]) -> Iterator[_Run]:
    """Pair records that only their place connects; if one side has fewer, they stay together."""
    if source and destination and len(source) != len(destination):
        yield source, destination
        return
    for index in range(max(len(source), len(destination))):
        yield source[index : index + 1], destination[index : index + 1]


def _split(run: _Run, pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[_Run, _Run | None]]:
    """Yield what lies before each pair of ascending indexes, and the pair; the rest with None."""
    source, destination = run
    i = j = 0
    for next_i, next_j in pairs:
        pair = source[next_i : next_i + 1], destination[next_j : next_j + 1]
        yield (source[i:next_i], destination[j:next_j]), pair
        i, j = next_i + 1, next_j + 1
    yield (source[i:], destination[j:]), None


def _in_step(source: Sequence[Part], destination: Sequence[Part]) -> list[tuple[int, int]]:
    """
    Return the indexes of records that both sides have in the same order.

    Nothing if these are not most of those that both have, by records and by batches:
    of two that are swapped, none is more in its place than the other.
    """
    places: dict[Fingerprint | None, list[int]] = defaultdict(list)
    for j, each in enumerate(destination):
        if each.fingerprint is not None:
            places[each.fingerprint].append(j)
    taken = Counter[Fingerprint | None]()
    common: list[tuple[int, int]] = []
    candidates: list[tuple[int, int]] = []
    for i, each in enumerate(source):
        likes, number = places.get(each.fingerprint, ()), taken[each.fingerprint]
        if number < len(likes):
            taken[each.fingerprint] += 1
            common.append((i, likes[number]))
        # Descending, so that an ascending part has no more than one of them.
        candidates += [
            (i, j) for j in (reversed(likes) if len(likes) <= _MOST_LIKES else likes[number : number + 1])
        ]
    ascending = _longest_ascending(candidates)
    is_most = 2 * len(ascending) > len(common)
    return ascending if is_most and 2 * _batches(source, ascending) > _batches(source, common) else []


def _batches(source: Sequence[Part], pairs: Sequence[tuple[int, int]]) -> int:
    return len({source[i].batch.base_offset for i, _ in pairs})


def _longest_ascending(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest part of the pairs that ascends on both sides (patience sorting)."""
    smallest_ends: list[int] = []
    ends: list[int] = []
    before: list[int | None] = []
    for index, (_, j) in enumerate(pairs):
        length = bisect_left(smallest_ends, j)
        before.append(ends[length - 1] if length else None)
        if length == len(ends):
            smallest_ends.append(j)
            ends.append(index)
        else:
            smallest_ends[length], ends[length] = j, index
    found = []
    last = ends[-1] if ends else None
    while last is not None:
        found.append(pairs[last])
        last = before[last]
    return found[::-1]


def _likeness(each: Part) -> tuple[int, int] | None:
    """Return the properties that an altered copy of a record probably keeps: size and timestamp."""
    found = each.fingerprint
    return None if found is None else (found.size, found.base_timestamp)


def _content(each: Part) -> tuple[int, int] | None:
    """Return the properties that a record keeps if only its timestamp is altered."""
    found = each.fingerprint
    return None if found is None else (found.crc, found.size)


def _has_append_time(source: Sequence[Part], destination: Sequence[Part]) -> bool:
    """
    Whether a record is the source's, with the append time of its batch there.

    Which of its two times a copy has is not known before records in step show it.
    """
    if len(source) != 1 or len(destination) != 1:
        return False
    ours, theirs = source[0], destination[0]
    if isinstance(ours, Digest) or ours.append_time is None or theirs.fingerprint is None:
        return False
    return _content(ours) == _content(theirs) and theirs.fingerprint.base_timestamp == ours.append_time


def are_alike(source: Entry, destination: Entry) -> bool:
    """Whether one may be an altered copy of the other: size and time are the same, or all but the time."""
    if source.fingerprint is None or destination.fingerprint is None:
        return False
    return _likeness(source) == _likeness(destination) or _content(source) == _content(destination)


def _alike(
    source: Sequence[Part],
    destination: Sequence[Part],
    property_of: Callable[[Part], tuple[int, int] | None],
) -> list[tuple[int, int]]:
    """Return the indexes of records with the same property, ascending on both sides."""
    places: dict[tuple[int, int], deque[int]] = defaultdict(deque)
    for i, each in enumerate(source):
        if (common := property_of(each)) is not None:
            places[common].append(i)
    pairs: list[tuple[int, int]] = []
    for j, each in enumerate(destination):
        common = property_of(each)
        candidates = places.get(common) if common is not None else None
        while candidates and pairs and candidates[0] <= pairs[-1][0]:
            candidates.popleft()
        if candidates:
            pairs.append((candidates.popleft(), j))
    return pairs


def have_in_common(some: Sequence[Part], others: Sequence[Part]) -> bool:
    """Whether some record is the same on both sides, or has the same size and time."""
    known = {what for each in some for what in (each.fingerprint, _likeness(each)) if what is not None}
    return any(other.fingerprint in known or _likeness(other) in known for other in others)


def are_beside_gap(last: Sequence[Part], others: Sequence[Part]) -> bool:
    """
    Whether a gap before the others may explain the last records of a side, and none is altered.

    One with the content of another may be an earlier record of that key.
    """
    is_explained = bool(others) and sum(each.records for each in last) <= others[0].gap_before
    return is_explained and not _alike(others, last, _likeness)


def reach(last: Sequence[Part], others: Sequence[Part]) -> int:
    """
    Return how many of the others stand in place of the last records of their side.

    Up to the last that is the same as one of them, and one for each record
    behind that; up to the first that is like the last if none is the same.
    None for those behind that if a gap explains them.

    """
    places: dict[Fingerprint | None, int] = {
        other.fingerprint: index + 1 for index, other in enumerate(others) if other.fingerprint
    }
    reached = trailing = 0
    for each in last:
        place = places.get(each.fingerprint)
        reached, trailing = (max(reached, place), 0) if place else (reached, trailing + 1)
    if trailing and are_beside_gap(last[-trailing:], others[reached:]):
        return reached
    if not reached and last:
        wanted = _likeness(last[-1])
        alike = (index + 1 for index, other in enumerate(others) if wanted and _likeness(other) == wanted)
        trailing = max(trailing, next(alike, 0))
    return min(reached + trailing, len(others))


def _fingerprints(some: Sequence[Part]) -> set[Fingerprint]:
    return {each.fingerprint for each in some if each.fingerprint is not None}


def _partition(some: Sequence[Part], is_stray: Callable[[Part], bool]) -> tuple[list[Part], list[Part]]:
    kept: list[Part] = []
    strays: list[Part] = []
    for each in some:
        (strays if is_stray(each) else kept).append(each)
    return kept, strays

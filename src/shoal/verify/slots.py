"""
Batches of two sides that do not agree, matched up piece by piece.

A slot is a place where one side has something and the other has something
else, or nothing: an altered, missing or extra batch. A batch that turns up in
another slot was reordered; so slots are kept for a while, and two swapped
batches are found though others lie between them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..records import Fingerprint
from .digest import Agreement, Digest, Likeness, likeness
from .finding import Finding, Kind

__all__ = ["OpenSlots", "Recent", "Slot", "have_in_common", "match_up", "reach"]


@dataclass(slots=True, eq=False)
class Slot:
    """
    What one side has where the other side has something else, or nothing.

    Attributes:
        source: The source's batches.
        destination: The destination's.
        source_place: Where that is in the source, also where it has no batch.
        destination_place: Likewise.
        agreement: Whether they are a pair after all.
        copy_of: The source batch that the destination's one is a double of.
        compacted: Whether the side that has nothing has a gap there.

    """

    source: list[Digest]
    destination: list[Digest]
    source_place: int
    destination_place: int
    agreement: Agreement = Agreement.NONE
    copy_of: Digest | None = None
    compacted: bool = False

    @property
    def batches(self) -> list[Digest]:
        return [*self.source, *self.destination]

    @property
    def records(self) -> int:
        return sum(batch.records for batch in self.batches)

    @property
    def kind(self) -> Kind:
        """What it is, once no batch of it can turn up elsewhere; it has at least one."""
        if any(batch.damage for batch in self.batches):
            return Kind.ALTERED
        if any(batch.undecoded for batch in self.batches):
            return Kind.UNDECODED
        if self.source and self.destination:
            return Kind.ALTERED
        if self.compacted and self.copy_of is None:
            return Kind.COMPACTED
        return Kind.MISSING if self.source else Kind.EXTRA

    def name_double(self, recent: Recent) -> None:
        """Find out whether an extra batch is one that both sides have, before it or after it."""
        if self.copy_of is None and not self.source and len(self.destination) == 1:
            self.copy_of = recent.like(self.destination[0])

    def to_finding(self) -> Finding:
        return Finding(
            self.kind,
            tuple(self.source),
            tuple(self.destination),
            self.source_place,
            self.destination_place,
            self.copy_of,
        )


class Recent:
    """The last so many source batches that were found at the destination."""

    def __init__(self, most_batches: int) -> None:
        self._most = most_batches
        self._order: deque[Digest] = deque()
        self._found: dict[Fingerprint | None, Digest] = {}

    def add(self, batch: Digest) -> None:
        self._order.append(batch)
        self._found[batch.fingerprint] = batch
        if len(self._order) > self._most:
            oldest = self._order.popleft()
            if self._found.get(oldest.fingerprint) is oldest:
                del self._found[oldest.fingerprint]

    def like(self, batch: Digest) -> Digest | None:
        """Return the one with the same bytes as a batch, if there is one."""
        return None if batch.fingerprint is None else self._found.get(batch.fingerprint)


# Matching up

#: What one side has, and what the other has in its place.
_Run = tuple[Sequence[Digest], Sequence[Digest]]


def match_up(
    source: Sequence[Digest], destination: Sequence[Digest], places: tuple[int, int], recent: Recent
) -> list[Slot]:
    """
    Put batches of two sides into slots, in order.

    Args:
        source: A run of the source's batches.
        destination: What the destination has in its place.
        places: Where the two begin.
        recent: What was found before.

    Returns:
        Slots that hold each batch once. Those with an agreement are pairs:
        what both sides have in the same order.

    """
    slots: list[Slot] = []
    for (ours, theirs), agreement in _pieces(source, destination, recent):
        source_place = ours[0].base_offset if ours else places[0]
        destination_place = theirs[0].base_offset if theirs else places[1]
        slot = Slot(list(ours), list(theirs), source_place, destination_place, agreement)
        slot.name_double(recent)
        slots.append(slot)
        places = (
            ours[-1].next_offset if ours else source_place,
            theirs[-1].next_offset if theirs else destination_place,
        )
    return slots


def _pieces(
    source: Sequence[Digest], destination: Sequence[Digest], recent: Recent
) -> Iterator[tuple[_Run, Agreement]]:
    for between, pair in _split((source, destination), _in_step(source, destination)):
        for piece in _differing(*between, recent):
            yield piece, Agreement.NONE
        if pair:
            yield pair, Agreement.SAME


def _differing(source: Sequence[Digest], destination: Sequence[Digest], recent: Recent) -> Iterator[_Run]:
    """Take a run without agreement apart: what is elsewhere, what is a double, what is alike, the rest."""
    elsewhere = _fingerprints(source) & _fingerprints(destination)
    ours, our_strays = _partition(source, lambda batch: batch.fingerprint in elsewhere)
    theirs, their_strays = _partition(
        destination, lambda batch: batch.fingerprint in elsewhere or recent.like(batch) is not None
    )
    for stray in our_strays:
        yield [stray], []
    for stray in their_strays:
        yield [], [stray]
    for between, pair in _split((ours, theirs), _alike(ours, theirs)):
        yield from _one_by_one(*between)
        if pair:
            yield pair


def _one_by_one(source: Sequence[Digest], destination: Sequence[Digest]) -> Iterator[_Run]:
    """Pair what nothing but its place connects; as many against fewer stay together."""
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


def _in_step(source: Sequence[Digest], destination: Sequence[Digest]) -> list[tuple[int, int]]:
    """
    Return the indexes of what both sides have in the same order.

    Nothing where that is not most of what both have: of two swapped batches,
    none is more in its place than the other.
    """
    places: dict[Fingerprint | None, deque[int]] = defaultdict(deque)
    for j, batch in enumerate(destination):
        if batch.fingerprint is not None:
            places[batch.fingerprint].append(j)
    common = [
        (i, places[batch.fingerprint].popleft())
        for i, batch in enumerate(source)
        if places.get(batch.fingerprint)
    ]
    ascending = _longest_ascending(common)
    return ascending if 2 * len(ascending) > len(common) else []


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


def _alike(source: Sequence[Digest], destination: Sequence[Digest]) -> list[tuple[int, int]]:
    """Return the indexes of batches that are the same but for their payload, ascending on both sides."""
    places: dict[Likeness, deque[int]] = defaultdict(deque)
    for i, batch in enumerate(source):
        if (common := likeness(batch)) is not None:
            places[common].append(i)
    pairs: list[tuple[int, int]] = []
    for j, batch in enumerate(destination):
        common = likeness(batch)
        candidates = places.get(common) if common is not None else None
        while candidates and pairs and candidates[0] <= pairs[-1][0]:
            candidates.popleft()
        if candidates:
            pairs.append((candidates.popleft(), j))
    return pairs


def have_in_common(batches: Sequence[Digest], others: Sequence[Digest]) -> bool:
    """Whether some batch is the same on both sides, or the same but for its payload."""
    known = {each for batch in batches for each in (batch.fingerprint, likeness(batch)) if each is not None}
    return any(other.fingerprint in known or likeness(other) in known for other in others)


def reach(batches: Sequence[Digest], others: Sequence[Digest]) -> int:
    """
    Return how many of the others stand in place of some batches, the last of their side.

    Up to the last that is the same as one of them, and one for each batch
    behind that; up to the first that is like the last, where none is the same.

    """
    places: dict[Fingerprint | None, int] = {
        other.fingerprint: index + 1 for index, other in enumerate(others) if other.fingerprint
    }
    reached = trailing = 0
    for batch in batches:
        place = places.get(batch.fingerprint)
        reached, trailing = (max(reached, place), 0) if place else (reached, trailing + 1)
    if not reached and batches:
        wanted = likeness(batches[-1])
        alike = (index + 1 for index, other in enumerate(others) if wanted and likeness(other) == wanted)
        trailing = max(trailing, next(alike, 0))
    return min(reached + trailing, len(others))


def _fingerprints(batches: Sequence[Digest]) -> set[Fingerprint]:
    return {batch.fingerprint for batch in batches if batch.fingerprint is not None}


def _partition(
    batches: Sequence[Digest], is_stray: Callable[[Digest], bool]
) -> tuple[list[Digest], list[Digest]]:
    strays = [is_stray(batch) for batch in batches]
    return (
        [batch for batch, stray in zip(batches, strays, strict=True) if not stray],
        [batch for batch, stray in zip(batches, strays, strict=True) if stray],
    )


class OpenSlots:
    """
    Slots whose batches may still turn up elsewhere.

    Holds no more than so many batches: the oldest slots are closed for the newest.

    """

    def __init__(self, most_batches: int, recent: Recent) -> None:
        self._most = most_batches
        self._recent = recent
        self._slots: deque[Slot] = deque()
        self._source = _Whereabouts()
        self._destination = _Whereabouts()

    def add(self, slot: Slot) -> Iterator[Finding]:
        """Take a slot; yield what turns out to be reordered, and what is too old to wait any longer."""
        for batch in list(slot.source):
            found = self._destination.pop(batch)
            if found is None:
                self._source.add(batch, slot.source)
            else:
                slot.source.remove(batch)
                yield _reordered(batch, found)
        for batch in list(slot.destination):
            found = self._source.pop(batch)
            if found is None:
                self._destination.add(batch, slot.destination)
            else:
                slot.destination.remove(batch)
                yield _reordered(found, batch)
        self._slots.append(slot)
        while self._is_full() and len(self._slots) > 1:
            yield from self._close_oldest()

    def _is_full(self) -> bool:
        return max(self._source.count + self._destination.count, len(self._slots)) > self._most

    @property
    def is_empty(self) -> bool:
        """Whether nothing may still turn up elsewhere."""
        return self._source.count + self._destination.count == 0

    @property
    def awaits_source(self) -> bool:
        """Whether the destination has something that may still turn up in the source."""
        return self._destination.count > 0

    def last_awaited(self, source: Sequence[Digest]) -> int:
        """Return how many source batches come up to the last that is open at the destination."""
        awaited = [index + 1 for index, batch in enumerate(source) if batch in self._destination]
        return awaited[-1] if awaited else 0

    def close_all(self) -> Iterator[Finding]:
        """Yield what is left."""
        while self._slots:
            yield from self._close_oldest()

    def _close_oldest(self) -> Iterator[Finding]:
        slot = self._slots.popleft()
        for batch in slot.source:
            self._source.forget(batch)
        for batch in slot.destination:
            self._destination.forget(batch)
        if slot.batches:
            slot.name_double(self._recent)
            yield slot.to_finding()


def _reordered(source: Digest, destination: Digest) -> Finding:
    return Finding(Kind.REORDERED, (source,), (destination,), source.base_offset, destination.base_offset)


class _Whereabouts:
    """The open batches of one side, by what they hold, and the slots that they are in."""

    def __init__(self) -> None:
        self.count = 0
        self._places: dict[Fingerprint, list[tuple[Digest, list[Digest]]]] = defaultdict(list)

    def add(self, batch: Digest, slot: list[Digest]) -> None:
        self.count += 1
        # What a damaged batch holds is not what its header vouches for.
        if batch.fingerprint is not None and not batch.damage:
            self._places[batch.fingerprint].append((batch, slot))

    def __contains__(self, batch: Digest) -> bool:
        return batch.fingerprint in self._places

    def pop(self, like: Digest) -> Digest | None:
        """Take a batch with the same bytes out of its slot, the oldest if there are several."""
        if like.fingerprint is None or like.fingerprint not in self._places:
            return None
        batch, slot = self._places[like.fingerprint][0]
        slot.remove(batch)
        self.forget(batch)
        return batch

    def forget(self, batch: Digest) -> None:
        """A batch waits no longer."""
        self.count -= 1
        if batch.fingerprint is None:
            return
        places = [(each, slot) for each, slot in self._places.pop(batch.fingerprint, []) if each is not batch]
        if places:
            self._places[batch.fingerprint] = places

"""
The slots whose records may still turn up elsewhere. No I/O.

A record that turns up in another slot was reordered. So slots stay open for a while, and two swapped records
are found although others lie between them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..records import Fingerprint
from .digest import Digest, Entry
from .finding import Finding, Kind, Part
from .matching import MatchSlot, Recent

__all__ = ["OpenSlots"]


class OpenSlots:
    """
    Slots whose records may still turn up elsewhere.

    Holds no more than so many records: the oldest slots are closed for the newest.

    """

    def __init__(self, most: int, recent: Recent) -> None:
        self._most = most
        self._recent = recent
        self._slots: deque[MatchSlot] = deque()
        self._source = _Whereabouts()
        self._destination = _Whereabouts()

    @property
    def has_extra_records(self) -> bool:
        """Whether the destination has records, without their batch, that may still turn up in the source."""
        return bool(self._destination.alone)

    def split_batches(self, entries_of: Callable[[Digest], Sequence[Entry]]) -> None:
        """
        Put the records of missing batches into slots of their own: one may turn up by itself.

        Args:
            entries_of: Returns the records of a source batch; none if it cannot be read.

        """
        split: deque[MatchSlot] = deque()
        count = 0
        for slot in reversed(self._slots):
            pieces: Iterable[MatchSlot] = [slot]
            batch = slot.source[0] if slot.source and not slot.destination else None
            if isinstance(batch, Digest) and count < self._most and (entries := entries_of(batch)):
                self._source.forget(batch)
                pieces = [
                    MatchSlot([each], [], each.base_offset, slot.destination_place, gaps=slot.gaps)
                    for each in entries
                ]
                for piece in pieces:
                    self._source.add(piece.source[0], piece.source)
                count += len(pieces)
            split.extendleft(reversed(list(pieces)))
        self._slots = split

    def add(self, slot: MatchSlot) -> Iterator[Finding]:
        """Take a slot; yield records that turn out to be reordered, and slots too old to wait."""
        for each in list(slot.source):
            found = self._destination.pop(each)
            if found is None:
                self._source.add(each, slot.source)
            else:
                slot.source.remove(each)
                yield _reordered(each, found)
        is_alone = not slot.source and slot.copy_of is None
        for each in list(slot.destination):
            found = self._source.pop(each)
            if found is None:
                self._destination.add(each, slot.destination, is_alone=is_alone)
            else:
                slot.destination.remove(each)
                yield _reordered(found, each)
        self._slots.append(slot)
        while self._is_full() and len(self._slots) > 1:
            yield from self._close_oldest()

    def _is_full(self) -> bool:
        return max(self._source.count + self._destination.count, len(self._slots)) > self._most

    @property
    def awaits_source(self) -> bool:
        """Whether the destination has something that may still turn up in the source."""
        return self._destination.count > 0

    @property
    def awaits_records(self) -> bool:
        """Whether the destination has records that may still turn up in the source."""
        return self._destination.records > 0

    def awaits(self, batch: Digest) -> bool:
        """Whether a batch of the destination is one that was missing before."""
        return batch in self._source

    def last_awaited(self, source: Sequence[Part]) -> int:
        """Return how many source batches or records come up to the last that is open at the destination."""
        awaited = [index + 1 for index, each in enumerate(source) if each in self._destination]
        return awaited[-1] if awaited else 0

    def close_all(self) -> Iterator[Finding]:
        """Yield all slots that are left."""
        while self._slots:
            yield from self._close_oldest()

    def _close_oldest(self) -> Iterator[Finding]:
        slot = self._slots.popleft()
        for each in slot.source:
            self._source.forget(each)
        for each in slot.destination:
            self._destination.forget(each)
        if slot.parts:
            slot.name_double(self._recent)
            yield slot.to_finding()


def _reordered(source: Part, destination: Part) -> Finding:
    return Finding(Kind.REORDERED, (source,), (destination,), source.base_offset, destination.base_offset)


class _Whereabouts:
    """
    The open batches and records of one side, by content, and the slots that they are in.

    Attributes:
        count: How many there are.
        records: How many of these are records.
        alone: The offsets of the records for which the other side has nothing.

    """

    def __init__(self) -> None:
        self.count = self.records = 0
        self.alone: set[int] = set()
        self._places: dict[Fingerprint, list[tuple[Part, list[Part]]]] = defaultdict(list)

    def add(self, each: Part, slot: list[Part], *, is_alone: bool = False) -> None:
        """Remember that a record is open, and in which slot."""
        self.count += 1
        if isinstance(each, Entry):
            self.records += 1
            if is_alone:
                self.alone.add(each.base_offset)
        if each.fingerprint is not None:
            self._places[each.fingerprint].append((each, slot))

    def __contains__(self, each: Part) -> bool:
        return each.fingerprint in self._places

    def pop(self, like: Part) -> Part | None:
        """Take a record with the same content out of its slot, the oldest if there are several."""
        if like.fingerprint is None or like.fingerprint not in self._places:
            return None
        each, slot = self._places[like.fingerprint][0]
        slot.remove(each)
        self.forget(each)
        return each

    def forget(self, each: Part) -> None:
        """Stop to wait for a record."""
        self.count -= 1
        if isinstance(each, Entry):
            self.records -= 1
            self.alone.discard(each.base_offset)
        if each.fingerprint is None:
            return
        places = [(one, slot) for one, slot in self._places.pop(each.fingerprint, []) if one is not each]
        if places:
            self._places[each.fingerprint] = places

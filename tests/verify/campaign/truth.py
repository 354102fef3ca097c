"""
Whether two lists of records can be a source and a right copy of it: a brute force, without verify.

Records are paired one by one. Between two pairs, each side may have records that the other lacks only if
compaction explains them: the side that lacks them has as many holes in its offsets there, and its cleaner
would have removed them. It removes each record with a key that occurs behind it, so that no record of that
key is left before; or all of a key, whose last record is a tombstone.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shoal_broker.storage.log import Log
from tests.world.batches import Content
from tests.world.contents import batches_of

from .logs import Placed, stored_records

__all__ = ["Excuse", "Explained", "LogSide", "Truth"]


class Excuse(enum.IntEnum):
    """How compaction explains a record that one side lacks: the least of all counts."""

    #: Compaction does not explain it.
    NONE = 0
    #: The cleaner may have dropped it: it has no key, or the topic was compacted once.
    PERHAPS = 1
    #: The cleaner has removed it, or there is no such record.
    FULL = 2


class Explained(NamedTuple):
    """The least excuse of all that only one side has, and how many records both sides have."""

    excuse: Excuse
    pairs: int


@dataclass
class LogSide:
    """
    A log as a reader sees it.

    Attributes:
        records: The records that count.
        start: The log start.
        end: The log end.
        holes: The offsets without a record that no marker and no aborted record has.
        copied_until: The offset from which on the other side has nothing yet; None if that is not known.
        is_compacted: Whether the topic's policy is known to be compaction.

    """

    records: list[Placed]
    start: int
    end: int
    holes: list[int] = field(default_factory=list)
    copied_until: int | None = None
    is_compacted: bool = True

    @classmethod
    def of(cls, log: Log, records: list[Placed], others: set[int]) -> LogSide:
        """
        Take a log; `others` are the offsets of records that do not count.

        If the cleaner has removed one of these, its offset is a hole like any other.
        """
        taken = {each.offset for each in records}
        taken |= others & {each.offset for each in stored_records(log)}
        for batch in batches_of(log):
            if batch.header.is_control:
                taken.update(range(batch.header.base_offset, batch.header.next_offset))
        start, end = log.log_start_offset, log.log_end_offset
        holes = [offset for offset in range(start, end) if offset not in taken]
        return cls(records, start, end, holes, is_compacted=log.config.compacted)

    def __post_init__(self) -> None:
        self.items = {item for _, item in self.records}
        self.first_of_key: dict[bytes | None, int] = {}
        for offset, item in self.records:
            self.first_of_key.setdefault(item.key, offset)

    def offset(self, index: int) -> int:
        """Return a record's offset, or the log's end."""
        return self.records[index].offset if index < len(self.records) else self.end

    def index(self, offset: int) -> int:
        """Return the index of the first record at or behind an offset."""
        return bisect_left(self.records, offset, key=lambda each: each.offset)

    def has_holes(self, begin: int, end: int, count: int) -> bool:
        """Whether so many holes are behind the record before one index and before that of another."""
        first = self.records[begin - 1].offset + 1 if begin else self.start
        last = self.offset(end)
        return bisect_left(self.holes, last) - bisect_left(self.holes, first) >= count


@dataclass
class Truth:
    """
    Both sides, and how they belong together.

    Attributes:
        mirrored: The source's offset before which the destination must have all; None if it is not known.
        origin: The offsets at which the copy began, if they are known.

    """

    source: LogSide
    destination: LogSide
    mirrored: int | None = None
    origin: tuple[int, int] | None = None

    def explain(self) -> Explained:
        """Return how well both sides can be explained without a fault."""
        source, destination = self.source, self.destination
        i = j = 0
        is_source_cut, is_destination_cut = source.start > 0, True
        if self.origin is not None:
            here, there = self.origin
            i, j = source.index(here), destination.index(there)
            is_source_cut, is_destination_cut = source.start > here, destination.start > there
        starts = [(i, j)]
        if is_destination_cut or is_source_cut:
            starts += [(later, j) for later in range(i + 1, len(source.records) + 1)]
        if is_source_cut:
            starts += [(i, later) for later in range(j + 1, len(destination.records) + 1)]
        best = Explained(Excuse.NONE, 0)
        for start in starts:
            best = max(best, self._explain_from(*start))
            if best.excuse is Excuse.FULL and 2 * best.pairs > len(destination.records):
                break
        return best

    # From a place on

    def _explain_from(self, i: int, j: int) -> Explained:
        source, destination = self.source.records, self.destination.records
        todo = [(i, j, Explained(Excuse.FULL, 0))]
        seen: dict[tuple[int, int], Explained] = {}
        best = Explained(Excuse.NONE, 0)
        while todo:
            i, j, (excuse, pairs) = todo.pop()
            while i < len(source) and j < len(destination) and source[i].item == destination[j].item:
                # A run of pairs; a branch may begin before each of them, if holes are there.
                if self._has_hole_before(i, j):
                    todo += self._branches(i, j, Explained(excuse, pairs), seen)
                i, j, pairs = i + 1, j + 1, pairs + 1
            best = max(best, Explained(min(excuse, self._excuse_end(i, j)), pairs))
            if best.excuse is Excuse.FULL:
                return best
            todo += self._branches(i, j, Explained(excuse, pairs), seen)
        return best

    def _has_hole_before(self, i: int, j: int) -> bool:
        return self.source.has_holes(i, i, 1) or self.destination.has_holes(j, j, 1)

    def _branches(
        self, i: int, j: int, explained: Explained, seen: dict[tuple[int, int], Explained]
    ) -> list[tuple[int, int, Explained]]:
        """Return the next pairs behind records that only one side has."""
        if (i, j) in seen and seen[i, j] >= explained:
            return []
        seen[i, j] = explained
        source, destination = self.source.records, self.destination.records
        found = []
        for a in range(min(len(source) - i, len(self.destination.holes)) + 1):
            if a and not self._may_go(source[i + a - 1].item, self.destination, self.source):
                break
            for b in range(min(len(destination) - j, len(self.source.holes)) + 1):
                if b and not self._may_go(destination[j + b - 1].item, self.source, self.destination):
                    break
                if not a + b or i + a >= len(source) or j + b >= len(destination):
                    continue
                if source[i + a].item != destination[j + b].item:
                    continue
                between = min(explained.excuse, self._excuse_between(i, i + a, j, j + b))
                if between:
                    found.append((i + a, j + b, Explained(between, explained.pairs)))
        return found

    def _excuse_end(self, i: int, j: int) -> Excuse:
        """Return how well the rest of both sides is explained."""
        source, destination = self.source, self.destination
        wanted = len(source.records)
        if self.mirrored is None:
            # The rest of the source may be not mirrored yet.
            if j == len(destination.records):
                return Excuse.FULL
            if len(destination.records) - j > len(source.holes):
                return Excuse.NONE
            most = min(wanted, i + len(destination.holes))
            return max(
                self._excuse_between(i, end, j, len(destination.records)) for end in range(i, most + 1)
            )
        while wanted > i and source.records[wanted - 1].offset >= self.mirrored:
            wanted -= 1
        return self._excuse_between(i, wanted, j, len(destination.records))

    def _excuse_between(self, i: int, i_end: int, j: int, j_end: int) -> Excuse:
        if i == i_end and j == j_end:
            return Excuse.FULL
        if not self.destination.has_holes(j, j_end, i_end - i) or not self.source.has_holes(
            i, i_end, j_end - j
        ):
            return Excuse.NONE
        ours = [each.item for each in self.source.records[i:i_end]]
        theirs = [each.item for each in self.destination.records[j:j_end]]
        return min(
            _excuse_items(ours, self.destination, j_end, self.source, set()),
            _excuse_items(theirs, self.source, i_end, self.destination, self.source.items),
        )

    def _may_go(self, item: Content, lacking: LogSide, having: LogSide) -> bool:
        return item.key is None or item.key in lacking.first_of_key or _is_buried(item, having)


def _excuse_items(
    items: Sequence[Content], lacking: LogSide, end: int, having: LogSide, kept: set[Content]
) -> Excuse:
    """
    Return how well the cleaner of one side explains that it lacks some records before an index.

    The cleaner does not explain records in `kept`: the destination has these twice, or elsewhere.
    """
    best = Excuse.FULL
    until = lacking.offset(end)
    for item in items:
        first = lacking.first_of_key.get(item.key)
        if first is not None and first < until:
            return Excuse.NONE
        if item in kept:
            return Excuse.NONE
        if item.key is not None and first is None and not _is_buried(item, having):
            return Excuse.NONE
        if item.key is None or not lacking.is_compacted:
            best = Excuse.PERHAPS
    return best


def _is_buried(item: Content, having: LogSide) -> bool:
    """Whether the last record of a key is a tombstone, of those that the other side may have had."""
    end = having.end if having.copied_until is None else having.copied_until
    last = next(
        (each for each in reversed(having.records) if each.item.key == item.key and each.offset < end), None
    )
    return last is not None and last.item.value is None

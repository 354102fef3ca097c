"""
The first records of a log, without their bytes, and those of them that tell its beginning apart.

Topics repeat themselves: heartbeats without a key, timestamps that are all 1. So only *anchors* tell: records
that are once in the head by their content, or, if there are too few of these, by their content and their
context.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

__all__ = [
    "MOST_HEAD_RECORDS",
    "PROVING_ANCHORS",
    "LogHead",
    "Neighbourhood",
    "RecordKey",
    "SeenRecord",
    "are_alike",
    "are_same",
]

#: The number of records to look for, each unlike all others in the head.
_WANTED_ANCHORS = 256

#: A head grows up to this, to have that many: 8 MB.
MOST_HEAD_RECORDS = 16_384

#: The number of anchors, equal and in the same place on both sides, that prove that both logs begin together.
PROVING_ANCHORS = 16

#: The content by which two records are the same: a hash of key, value and headers, and the
#: timestamp; None if the destination writes its own.
RecordKey: TypeAlias = tuple[int, int | None]


class SeenRecord(NamedTuple):
    """
    A record of one side, without its bytes.

    Attributes:
        offset: Its offset in the partition.
        keys: A source record's keys that its copy may have; a destination record's own key. Empty if
            it cannot be read.
        contexts: The records before it at three levels: none; the last other record, and how many like
            this one since; the same with how many like that other one. None if the log begins later.
        gap_before: The number of offsets between it and the record before it without a record.

    """

    offset: int
    keys: tuple[RecordKey, ...]
    contexts: tuple[int | None, ...] = (0, None, None)
    gap_before: int = 0


class Neighbourhood:
    """Finds the contexts of records that follow each other."""

    def __init__(self) -> None:
        self._body: int | None = None
        self._count = 0
        self._before: tuple[int, int] | None = None
        self._is_before_whole = False

    def contexts(self, body: int | None) -> tuple[int | None, ...]:
        """Return the contexts of the next record, which holds ``body``; None if it cannot be read."""
        if body is None:
            self._body = self._before = None
            return None, None, None
        if body == self._body:
            self._count += 1
        else:
            if self._body is not None:
                # How many the first ones were is not known.
                self._is_before_whole = self._before is not None
                self._before = self._body, self._count
            self._body, self._count = body, 1
        if self._before is None:
            return 0, None, None
        loose = hash((self._before[0], self._count))
        return 0, loose, hash((self._before, self._count)) if self._is_before_whole else None


class LogHead:
    """
    The first records of a log, and which of them are anchors.

    Attributes:
        records: The first ones, up to :data:`MOST_HEAD_RECORDS`.
        anchors: How many of them are anchors.
        is_telling: Whether enough of them are by what they hold alone.
        neighbours: The neighbourhood of the record behind them, if it is known.

    """

    def __init__(self, records: Iterable[SeenRecord], neighbours: Neighbourhood | None = None) -> None:
        """Read as many records as it takes to have enough anchors; ``neighbours`` is that of their source."""
        self.neighbours = neighbours
        self.records: list[SeenRecord] = []
        plain = _Anchors(0)
        for record in records:
            plain.add(record, len(self.records))
            self.records.append(record)
            if plain.count >= _WANTED_ANCHORS or len(self.records) >= MOST_HEAD_RECORDS:
                break
        self.is_telling = plain.count >= PROVING_ANCHORS
        self._anchors = plain if self.is_telling else self._best_anchors(plain)
        self.anchors = self._anchors.count

    def _best_anchors(self, plain: _Anchors) -> _Anchors:
        in_context = [_Anchors(level) for level in (1, 2)]
        for index, record in enumerate(self.records):
            for anchors in in_context:
                anchors.add(record, index)
        return max([plain, *in_context], key=lambda anchors: anchors.count)

    def place_of(self, record: SeenRecord) -> int | None:
        """Return the index of the anchor that is the same as a record of the other side."""
        return self._anchors.place_of(record)

    def anchors_before(self, end: int) -> int:
        """Return how many of so many first records are anchors."""
        return self._anchors.count_before(end)


class _Anchors:
    """Records that are once in a head, by what they hold and a context."""

    def __init__(self, level: int) -> None:
        self.count = 0
        self._level = level
        self._places: dict[tuple[RecordKey, int], int] = {}
        self._repeated: set[tuple[RecordKey, int]] = set()
        self._own: dict[int, tuple[RecordKey, int]] = {}

    def add(self, record: SeenRecord, index: int) -> None:
        context = record.contexts[self._level]
        if context is None:
            return
        self._own[index] = record.keys[0], context
        for key in record.keys:
            place = key, context
            if place in self._repeated:
                continue
            before = self._places.setdefault(place, index)
            if before == index:
                self.count += place == self._own[index]
            else:
                del self._places[place]
                self.count -= place == self._own[before]
                self._repeated.add(place)

    def place_of(self, record: SeenRecord) -> int | None:
        context = record.contexts[self._level]
        if context is None:
            return None
        found = (self._places.get((key, context)) for key in record.keys)
        return next((place for place in found if place is not None), None)

    def count_before(self, end: int) -> int:
        return len({place for place in self._places.values() if place < end})


def are_same(one: SeenRecord, other: SeenRecord) -> bool:
    """Whether a record of one side may be the copy of one of the other side."""
    return not set(one.keys).isdisjoint(other.keys)


def are_alike(one: SeenRecord, other: SeenRecord) -> bool:
    """Whether one may be an altered copy: its content or its time is the same, or it cannot be read."""
    if not one.keys or not other.keys:
        return True
    bodies = {body for body, _ in one.keys} & {body for body, _ in other.keys}
    times = {time for _, time in one.keys} & {time for _, time in other.keys}
    return bool(bodies or times)

"""
Translations that a map leaves open, counted in the records that the source still has. No I/O.

Between two milestones that are not equally far apart on both sides, some source offsets have no record at the
destination. :class:`Counting` takes what the source has there, piece by piece and in order. A translation is
exact if one of these holds:

- From the milestone before to the offset, compaction and retention have removed nothing from the source.
- The same from the offset to the milestone behind.
- From one milestone to the other, the source has as many records as the destination got.

Otherwise the count is a lower bound: the source has lost some records since, and the copy has not.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import NamedTuple

from .offset_map import Exactness, Milestone, Question, Translation

__all__ = ["Counting", "Piece"]


class Piece(NamedTuple):
    """
    Consecutive source offsets.

    Attributes:
        start: The first one.
        end: The offset behind the last one.
        records: The number of records that a copy takes of them.
        is_complete: Whether nothing was removed: each offset has a record that a copy takes, or none has.

    """

    start: int
    end: int
    records: int
    is_complete: bool


class _Found(NamedTuple):
    """A place that was counted, with the holes before it, and those in all pieces before its own."""

    question: Question
    place: Milestone
    holes_before: int
    holes_to_piece: int


class Counting:
    """
    The count from one milestone to the next.

    Attributes:
        at: The source offset up to which the count has come.
        end: The milestone behind.

    """

    def __init__(
        self, begin: Milestone, end: Milestone, questions: Iterable[Question], log_start: int = 0
    ) -> None:
        """
        Begin at a milestone.

        Args:
            begin: The milestone before.
            end: The milestone behind.
            questions: The offsets to translate, all between both milestones.
            log_start: The first offset that the source still has.

        """
        ordered = sorted(questions)
        self.at = self._start = min(max(begin.source, log_start), end.source)
        self.end = end
        self._is_anchored = self.at == begin.source
        self._destination = begin.destination
        # Of an offset that the source has deleted, nothing can be counted.
        self._sources = [each for each in ordered if each.is_source and each.offset >= self.at]
        self._destinations = [each for each in ordered if not each.is_source]
        self._begin = begin.destination
        self._found: list[_Found] = []
        self._holes = 0

    @property
    def is_over(self) -> bool:
        """Whether more pieces change nothing."""
        is_open = self._sources or self._destinations or self._holes or not self._is_anchored
        return self.at >= self.end.source or not is_open

    def splits(self, start: int, end: int, records: int) -> bool:
        """Whether a bound or a question lies within some offsets, of which not each one has a record."""
        numbers = [each.offset for each in self._destinations[:1]]
        if numbers and numbers[0] < self._destination + records:
            return True
        asked = takewhile(lambda each: each < end, (each.offset for each in self._sources))
        return any(start < each < end for each in (self.at, self.end.source, *asked))

    def add(self, piece: Piece) -> None:
        """Count a piece; the offsets between it and the last one have no record."""
        start, end = (min(max(each, self.at), self.end.source) for each in piece[:2])
        if start > self.at:
            self._add(Piece(self.at, start, 0, is_complete=False))
        if end > start:
            is_dense = piece.records == piece.end - piece.start
            self._add(Piece(start, end, end - start if is_dense else piece.records, piece.is_complete))

    def end_log(self) -> None:
        """Count the offsets behind the last piece, which have no record: the log ends there."""
        if self.at < self.end.source:
            self._add(Piece(self.at, self.end.source, 0, is_complete=False))

    def _add(self, piece: Piece) -> None:
        is_dense = piece.records == piece.end - piece.start
        while self._sources and self._sources[0].offset < piece.end:
            question = self._sources.pop(0)
            behind = question.offset - piece.start
            place = Milestone(question.offset, self._destination + (behind if is_dense else 0))
            is_in_hole = behind > 0 and not piece.is_complete
            self._found.append(_Found(question, place, self._holes + is_in_hole, self._holes))
        while self._destinations and self._destinations[0].offset < self._destination + piece.records:
            question = self._destinations.pop(0)
            place = Milestone(piece.start + question.offset - self._destination, question.offset)
            self._found.append(_Found(question, place, self._holes, self._holes))
        self._destination += piece.records
        self._holes += not piece.is_complete
        self.at = piece.end

    @property
    def _removed(self) -> int | None:
        """The number of copied records that the source does not have any more; None before the end."""
        return self.end.destination - self._destination if self.at >= self.end.source else None

    @property
    def log_begin(self) -> Milestone | None:
        """The place at which the log begins, if it has lost the milestone before, and nothing else."""
        if self._is_anchored or self._holes or (removed := self._removed) is None:
            return None
        return Milestone(self._start, self._begin + removed)

    def answers(self) -> dict[Question, Translation]:
        """Return the translations that the pieces so far answer."""
        removed = self._removed
        found = {}
        for each in self._found:
            if self._is_anchored and (removed == 0 or not each.holes_before):
                found[each.question] = Translation(_other(each), Exactness.EXACT)
            elif each.question.is_source:
                is_exact = removed is not None and self._holes == each.holes_to_piece
                counted = each.place.destination + (removed or 0 if is_exact else 0)
                exactness = Exactness.EXACT if is_exact else Exactness.AT_LEAST
                found[each.question] = Translation(counted, exactness)
        return found


def _other(found: _Found) -> int:
    return found.place.destination if found.question.is_source else found.place.source

"""
The translations of a round, in two passes.

The first pass asks the maps alone. Without transactions and compaction it answers all offsets. The second one
reads the source's log once in each partition of which offsets are left (:mod:`.scan`).

The places that a round has counted lead the next one: a group that reads old records among transactions is
counted on from where it was, and an idle one is not counted again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ...client.cluster import Cluster
from ...client.config import IsolationLevel
from ...client.offsets import EARLIEST, list_offsets
from ...errors import ShoalError
from ...topic_partition import TopicPartition
from ..model.counting import Counting, Question
from ..model.offset_map import Exactness, Milestone, OffsetMap, Translation
from .scan import RecordsOf, Scan, scan_all

__all__ = ["Answers", "CopyMap", "MirroredLog", "Translations"]

#: The translation of each offset, or the error of a leader that did not answer.
Answers: TypeAlias = dict[Question, Translation | ShoalError]

_LEAST_FIRST = (Exactness.AT_LEAST, Exactness.AHEAD, Exactness.EXACT)


@dataclass(frozen=True, slots=True, eq=False)
class MirroredLog:
    """
    The logs that the records of some maps were copied from.

    Attributes:
        isolation_level: That of the mirror.
        records_of: Decodes a batch as the mirror does.

    """

    cluster: Cluster
    isolation_level: IsolationLevel
    records_of: RecordsOf


@dataclass(frozen=True, slots=True, eq=False)
class CopyMap:
    """
    The map of one copy.

    Attributes:
        source: The partition at the map's source.
        topic_ids: The ids of both topics; None without topic ids.
        log: The cluster that the partition is on.

    """

    source: TopicPartition
    offsets: OffsetMap
    topic_ids: tuple[str | None, str | None]
    log: MirroredLog

    @property
    def facts(self) -> object:
        """Return the facts without which no counted place is true: topics and incidents."""
        milestones = self.offsets.milestones
        return self.topic_ids, milestones[0], [each for each in milestones if each.stretch]

    def translate(self, question: Question) -> Translation:
        """Translate by the map alone."""
        if question.is_source:
            return self.offsets.to_destination(question.offset)
        return self.offsets.to_source(question.offset)

    def around(self, question: Question) -> tuple[Milestone, Milestone] | None:
        """Return the milestones between which the records have to be counted; None if that is of no use."""
        return self.offsets.around(question.offset, is_source=question.is_source)


class _Open:
    """The offsets that the map of a copy leaves open, and the places that were counted in its stretches."""

    def __init__(self, copy: CopyMap, questions: list[Question], places: Collection[Milestone]) -> None:
        self.copy = copy
        self.questions = questions
        self._places = set(places)

    def countings(self, answers: Answers, log_start: int, most: int | None) -> list[Counting]:
        """Translate by the counted places, and return the counts that are still needed."""
        refined = replace(self.copy, offsets=self.copy.offsets.with_known(self._places))
        stretches: dict[tuple[Milestone, Milestone], list[Question]] = defaultdict(list)
        for question in self.questions:
            before = answers[question]
            if isinstance(before, Translation):
                answers[question] = max(before, refined.translate(question), key=_rank)
            if _is_open(answers[question]) and (around := refined.around(question)):
                stretches[around].append(question)
        return [
            Counting(begin, end, asked, log_start)
            for (begin, end), asked in sorted(stretches.items())
            if most is None or _span(begin, end, asked) <= most
        ]

    def learn(self, answers: Answers, counting: Counting) -> None:
        """Take the answers of a count."""
        if counting.log_begin is not None:
            self._places.add(counting.log_begin)
        for question, translation in counting.answers().items():
            if translation.exactness is Exactness.EXACT:
                self._places.add(_place(question, translation.offset))
            before = answers[question]
            if isinstance(before, Translation):
                answers[question] = max(before, translation, key=_rank)

    def known(self, answers: Answers) -> list[Milestone]:
        """Return the places of this round's offsets."""
        return [
            _place(question, answer.offset)
            for question in self.questions
            if isinstance(answer := answers[question], Translation) and answer.exactness is Exactness.EXACT
        ]


@dataclass
class Translations:
    """The translations of all rounds. One thread uses it."""

    _known: dict[tuple[TopicPartition, MirroredLog], tuple[object, Collection[Milestone]]] = field(
        default_factory=dict
    )

    def translate(
        self, asked: Mapping[CopyMap, Collection[Question]], *, most_counted: int | None = None
    ) -> dict[CopyMap, Answers]:
        """
        Translate offsets.

        Args:
            asked: The offsets of each copy.
            most_counted: The most offsets that one count may span; None for any number.

        """
        answers: dict[CopyMap, Answers] = {}
        left: list[_Open] = []
        for copy, questions in asked.items():
            answers[copy] = {each: copy.translate(each) for each in questions}
            found = answers[copy].items()
            if opened := [each for each, answer in found if _is_open(answer) and copy.around(each)]:
                facts, places = self._known.get((copy.source, copy.log), (None, ()))
                left.append(_Open(copy, opened, places if facts == copy.facts else ()))
        again = self._count(left, answers, most_counted)
        self._count(again, answers, most_counted)
        self._known = {
            (each.copy.source, each.copy.log): (each.copy.facts, each.known(answers[each.copy]))
            for each in left
        }
        return answers

    def _count(
        self, left: Iterable[_Open], answers: Mapping[CopyMap, Answers], most: int | None
    ) -> list[_Open]:
        """
        Count what is left.

        Returns:
            The copies to count again: their logs have lost a milestone, and now the place is known at which
            they begin.

        """
        by_log: dict[MirroredLog, list[_Open]] = defaultdict(list)
        for each in left:
            by_log[each.copy.log].append(each)
        again = []
        for log, opened in by_log.items():
            starts = list_offsets(log.cluster, {each.copy.source: EARLIEST for each in opened})
            countings = {
                each: each.countings(answers[each.copy], start, most)
                for each in opened
                if isinstance(start := starts[each.copy.source], int)
            }
            scans = {each.copy.source: Scan(counts, log.records_of) for each, counts in countings.items()}
            failed = scan_all(log.cluster, scans, log.isolation_level)
            failed |= {each: error for each, error in starts.items() if isinstance(error, ShoalError)}
            for each in opened:
                found = answers[each.copy]
                counted = countings.get(each, ())
                for counting in counted:
                    each.learn(found, counting)
                if any(counting.log_begin for counting in counted) and any(map(_is_open, found.values())):
                    again.append(each)
                if (error := failed.get(each.copy.source)) is not None:
                    found |= {question: error for question in each.questions if _is_open(found[question])}
        return again


def _is_open(answer: Translation | ShoalError) -> bool:
    return isinstance(answer, Translation) and answer.exactness is Exactness.AT_LEAST


def _rank(translation: Translation) -> tuple[int, int]:
    return _LEAST_FIRST.index(translation.exactness), translation.offset


def _place(question: Question, other: int) -> Milestone:
    return Milestone(question.offset, other) if question.is_source else Milestone(other, question.offset)


def _span(begin: Milestone, end: Milestone, asked: Iterable[Question]) -> int:
    last = max(each.offset if each.is_source else end.source for each in asked)
    return last - begin.source

"""
The translations that the maps of copies leave open, counted in the source's log.

A map answers by arithmetic alone: without transactions and compaction it answers all offsets. For those that
are left, one pass reads the source's log once in each partition (:mod:`.scan`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ...client.cluster import Cluster
from ...client.config import IsolationLevel
from ...client.offsets import EARLIEST, list_offsets
from ...errors import ShoalError
from ...topic_partition import TopicPartition
from ..model.counting import Counting, Question
from ..model.offset_map import Exactness, Milestone, OffsetMap, Translation
from .scan import RecordsOf, Scan, scan_all

__all__ = ["CopyMap", "Counted", "MirroredLog", "count"]


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

    def translate(self, question: Question) -> Translation:
        """Translate by the map alone."""
        return _by(self.offsets, question)

    def knows(self, question: Question) -> tuple[bool, int]:
        """Return a key that is larger the more is known: whether it may be exact, and the lower bound."""
        found = self.translate(question)
        is_open = found.exactness is Exactness.AT_LEAST and not _around(self.offsets, question)
        return not is_open, found.offset


#: The translation of each offset that was counted, or the error of a leader that did not answer.
Counted: TypeAlias = dict[tuple[CopyMap, Question], Translation | ShoalError]


def count(asked: Mapping[CopyMap, Collection[Question]], *, most_counted: int | None = None) -> Counted:
    """
    Count the offsets that maps leave open, as far as counting makes them exact.

    Args:
        asked: The offsets of each copy. Those that its map answers are left out.
        most_counted: The most offsets that one count may span; None for any number.

    """
    counted: Counted = {}
    by_log: dict[MirroredLog, list[_Open]] = defaultdict(list)
    for copy, questions in asked.items():
        if opened := [each for each in questions if _around(copy.offsets, each)]:
            by_log[copy.log].append(_Open(copy, copy.offsets, opened))
    for log, left in by_log.items():
        # Once more if a log has lost a milestone: now the place is known at which the log begins.
        again = list(_count(log, left, counted, most_counted))
        list(_count(log, again, counted, most_counted))
    return counted


@dataclass(frozen=True, slots=True)
class _Open:
    """
    The offsets that the map of a copy leaves open.

    Attributes:
        offsets: The map, with the place at which the source's log begins once that is known.

    """

    copy: CopyMap
    offsets: OffsetMap
    questions: Collection[Question]

    def countings(self, log_start: int, most: int | None) -> list[Counting]:
        """Return the counts that are needed, ascending."""
        stretches: dict[tuple[Milestone, Milestone], list[Question]] = defaultdict(list)
        for question in self.questions:
            if around := _around(self.offsets, question):
                stretches[around].append(question)
        return [
            Counting(begin, end, asked, log_start)
            for (begin, end), asked in sorted(stretches.items())
            if most is None or _span(begin, end, asked) <= most
        ]


def _count(log: MirroredLog, left: Collection[_Open], counted: Counted, most: int | None) -> Iterator[_Open]:
    """Count what is left of one cluster, and yield the copies whose logs have lost a milestone."""
    starts = list_offsets(log.cluster, {each.copy.source: EARLIEST for each in left}) if left else {}
    countings = {
        each.copy: each.countings(start, most)
        for each in left
        if isinstance(start := starts[each.copy.source], int)
    }
    scans = {copy.source: Scan(some, log.records_of) for copy, some in countings.items()}
    failed = scan_all(log.cluster, scans, log.isolation_level)
    failed |= {each: error for each, error in starts.items() if isinstance(error, ShoalError)}
    for each in left:
        error = failed.get(each.copy.source)
        found = {question: error or _by(each.offsets, question) for question in each.questions}
        counts = countings.get(each.copy, ())
        for counting in counts:
            found |= counting.answers()
        for question, answer in found.items():
            before = counted.get((each.copy, question), each.copy.translate(question))
            counted[each.copy, question] = _better(before, answer)
        begins = [place for counting in counts if (place := counting.log_begin) is not None]
        rest = [question for question in each.questions if not _is_exact(counted.get((each.copy, question)))]
        if begins and rest:
            yield _Open(each.copy, each.offsets.with_known(begins), rest)


def _better(before: Translation | ShoalError, after: Translation | ShoalError) -> Translation | ShoalError:
    """Return the answer of which more is known: an exact one, an error, or the higher of two lower bounds."""
    if isinstance(before, ShoalError) or isinstance(after, ShoalError):
        return before if isinstance(after, ShoalError) and _is_exact(before) else after
    return max(before, after, key=lambda each: (_is_exact(each), each.offset))


def _is_exact(answer: Translation | ShoalError | None) -> bool:
    return isinstance(answer, Translation) and answer.exactness is Exactness.EXACT


def _by(offsets: OffsetMap, question: Question) -> Translation:
    if question.is_source:
        return offsets.to_destination(question.offset)
    return offsets.to_source(question.offset)


def _around(offsets: OffsetMap, question: Question) -> tuple[Milestone, Milestone] | None:
    """Return the milestones between which the records have to be counted; None if that is of no use."""
    if _by(offsets, question).exactness is not Exactness.AT_LEAST:
        return None
    return offsets.around(question.offset, is_source=question.is_source)


def _span(begin: Milestone, end: Milestone, asked: Collection[Question]) -> int:
    last = max(each.offset if each.is_source else end.source for each in asked)
    return last - begin.source

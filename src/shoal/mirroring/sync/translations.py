"""
The translations that the maps of copies leave open, counted in the source's log.

A map answers by arithmetic alone: without transactions and compaction it answers all offsets. For those that
are left, one pass reads the source's log once in each partition (:class:`Scan`). A header has the number of
its batch's records. So shoal decodes two sorts of batches: those of an old format, and those with holes that
an offset lies in. Any log takes the memory of one answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from ...client.cluster import Cluster
from ...client.config import IsolationLevel
from ...client.offsets import EARLIEST, list_offsets
from ...client.scan import read_answers, read_first_of_each
from ...error_codes import ErrorCode
from ...errors import BrokerError, CorruptBatch, ShoalError, UnsupportedBatch
from ...records import Decision, Record, RecordBatch
from ...topic_partition import TopicPartition
from ..model.acknowledged import spans_of
from ..model.counting import Counting, Piece
from ..model.offset_map import Exactness, Milestone, OffsetMap, Question, Translation

__all__ = ["Asked", "Counted", "MirroredCopy", "MirroredLog", "count"]

_BUFFER_BYTES = 1024 * 1024

#: A count that begins this far behind the last one has a request of its own.
_NEAR_OFFSETS = 10_000

_DROPPED_WHOLE = frozenset({Decision.DROP_CONTROL, Decision.DROP_ABORTED})

#: Returns the records that a copy takes of a batch, from an offset on.
RecordsOf: TypeAlias = Callable[[RecordBatch, int], Sequence[Record]]


class Scan:
    """The counts in one partition."""

    def __init__(self, countings: Iterable[Counting], records_of: RecordsOf) -> None:
        """
        Prepare.

        Args:
            countings: The counts, ascending. None begins before another one ends.
            records_of: Decodes a batch.

        """
        self._left = [each for each in countings if not each.is_over]
        self._records_of = records_of
        self.position = 0

    @property
    def wanted(self) -> int | None:
        """The offset from which on the log has to be read; None if nothing is left to count."""
        return self._left[0].at if self._left else None

    def read(self, batches: Iterable[tuple[Decision, RecordBatch]]) -> None:
        """
        Count batches, ascending.

        Raises:
            CorruptBatch: A batch that has to be decoded is damaged.
            UnsupportedBatch: A batch cannot be decoded.

        """
        for decision, batch in batches:
            header = batch.header
            self.position = header.next_offset
            while self._left and self._left[0].at < header.next_offset:
                counting = self._left[0]
                for piece in self._pieces(decision, batch, counting):
                    counting.add(piece)
                if not counting.is_over:
                    break
                del self._left[0]
            if not self._left:
                return

    def end_log(self) -> None:
        """End all counts: the log has no more batches."""
        for counting in self._left:
            counting.end_log()
        self._left.clear()

    def _pieces(self, decision: Decision, batch: RecordBatch, counting: Counting) -> Iterator[Piece]:
        header = batch.header
        start, end = header.base_offset, header.next_offset
        if decision in _DROPPED_WHOLE:
            yield Piece(start, end, 0, is_complete=True)
        elif header.magic == 2 and not header.has_holes:
            yield Piece(start, end, end - start, is_complete=True)
        elif decision.is_drop or (
            header.magic == 2 and not counting.splits(start, end, header.records_count)
        ):
            records = 0 if decision.is_drop else header.records_count
            yield Piece(start, end, records, is_complete=False)
        else:
            for first, behind in spans_of(self._records_of(batch, counting.at)):
                yield Piece(first, behind, behind - first, is_complete=True)
            if counting.at < end:
                yield Piece(counting.at, end, 0, is_complete=False)


def scan_all(
    cluster: Cluster, scans: Mapping[TopicPartition, Scan], isolation_level: IsolationLevel
) -> dict[TopicPartition, ShoalError]:
    """
    Read the log of each partition as far as its counts need it.

    Many groups are near the end of many partitions. So the first batches of all partitions come by few
    requests.

    Args:
        cluster: The cluster, with metadata of the partitions.
        isolation_level: That of the mirror.

    Returns:
        The error of each partition whose leader does not answer. A batch that cannot be decoded, and a log
        that has lost its beginning meanwhile, only end the count.

    """
    wanted = {each: offset for each, scan in scans.items() if (offset := scan.wanted) is not None}
    failed: dict[TopicPartition, ShoalError] = {}
    if len(wanted) > 1:
        with closing(read_first_of_each(cluster, wanted, isolation_level)) as answers:
            for partition, batches in answers:
                # A leader that did not answer is asked again below.
                if not isinstance(batches, ShoalError):
                    with suppress(CorruptBatch, UnsupportedBatch):
                        scans[partition].read(batches)
    for partition, scan in scans.items():
        try:
            _read_on(cluster, partition, scan, isolation_level)
        except (CorruptBatch, UnsupportedBatch):
            continue
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                failed[partition] = error
        except ShoalError as error:
            failed[partition] = error
    return failed


def _read_on(cluster: Cluster, partition: TopicPartition, scan: Scan, level: IsolationLevel) -> None:
    """Read until nothing is left to count, or the log ends."""
    while (offset := scan.wanted) is not None:
        with closing(read_answers(cluster, partition, offset, level, _BUFFER_BYTES)) as answers:
            for batches in answers:
                scan.read(batches)
                if scan.wanted is None or scan.wanted > scan.position + _NEAR_OFFSETS:
                    break
            else:
                scan.end_log()


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
class MirroredCopy:
    """
    A mirrored partition and its map.

    Attributes:
        source: The partition at the map's source.
        offsets: The map, with that of its mirror's former life.
        topic_ids: The ids of both topics; None without topic ids.
        log: The cluster that the source is on.
        had_incident: Whether something happened to the copy that may have moved offsets.
        cut: Where the mirror's present life begins: a cut, if it went back. None if it copied nothing before.

    """

    source: TopicPartition
    destination: TopicPartition
    offsets: OffsetMap
    topic_ids: tuple[str | None, str | None]
    log: MirroredLog
    had_incident: bool = False
    cut: Milestone | None = None


class Asked(NamedTuple):
    """A question to the map of a copy."""

    copy: MirroredCopy
    question: Question

    @property
    def translation(self) -> Translation:
        """The answer of the map alone."""
        return self.copy.offsets.translate(self.question)

    @property
    def knowledge(self) -> tuple[bool, int]:
        """A key that is larger the more is known: whether the answer may be exact, and the lower bound."""
        found, around = self.translation, self.copy.offsets.around(self.question)
        return found.exactness is not Exactness.AT_LEAST or around is not None, found.offset


#: The translation of each offset that was counted, or the error of a leader that did not answer.
Counted: TypeAlias = dict[Asked, Translation | ShoalError]


def count(asked: Iterable[Asked], *, most_counted: int | None = None) -> Counted:
    """
    Count the offsets that maps leave open, as far as counting makes them exact.

    Args:
        asked: The questions. Those that a map answers, and those that no count makes exact, are left out.
        most_counted: The most offsets that one count may span; None for any number.

    """
    by_log: dict[MirroredLog, list[Asked]] = defaultdict(list)
    for each in asked:
        by_log[each.copy.log].append(each)
    counted: Counted = {}
    for log, questions in by_log.items():
        found, begun = _count(log, questions, most_counted)
        counted |= found
        # Once more if a log has lost a milestone: now the place is known at which the log begins.
        again = {each: Asked(begun[each.copy], each.question) for each in questions if each.copy in begun}
        more, _ = _count(log, again.values(), most_counted)
        counted |= {each: more.get(key, key.translation) for each, key in again.items()}
    return counted


def _count(
    log: MirroredLog, asked: Iterable[Asked], most: int | None
) -> tuple[Counted, dict[MirroredCopy, MirroredCopy]]:
    """Return what is counted in one cluster, and copies whose logs have lost a milestone, with another."""
    stretches: dict[MirroredCopy, dict[tuple[Milestone, Milestone], list[Question]]] = {}
    for copy, question in asked:
        if around := copy.offsets.around(question):
            stretches.setdefault(copy, defaultdict(list))[around].append(question)
    starts = list_offsets(log.cluster, {each.source: EARLIEST for each in stretches}) if stretches else {}
    countings = {
        copy: [
            Counting(*around, questions, start)
            for around, questions in sorted(by.items())
            if most is None or _span(*around, questions) <= most
        ]
        for copy, by in stretches.items()
        if isinstance(start := starts[copy.source], int)
    }
    scans = {copy.source: Scan(some, log.records_of) for copy, some in countings.items()}
    failed = scan_all(log.cluster, scans, log.isolation_level)
    failed |= {each: error for each, error in starts.items() if isinstance(error, ShoalError)}
    found: Counted = {
        Asked(copy, question): failed[copy.source]
        for copy, by in stretches.items()
        if copy.source in failed
        for questions in by.values()
        for question in questions
    }
    begun = {}
    for copy, some in countings.items():
        for each in some:
            for question, answer in each.answers().items():
                key = Asked(copy, question)
                found[key] = max(key.translation, answer, key=_certainty)
        if places := [each.log_begin for each in some if each.log_begin is not None]:
            begun[copy] = replace(copy, offsets=copy.offsets.with_known(places))
    return found, begun


def _certainty(answer: Translation) -> tuple[bool, int]:
    """Return a key that is larger the more is known: whether an answer is exact, and its lower bound."""
    return answer.exactness is Exactness.EXACT, answer.offset


def _span(begin: Milestone, end: Milestone, asked: Collection[Question]) -> int:
    last = max(each.offset if each.is_source else end.source for each in asked)
    return last - begin.source

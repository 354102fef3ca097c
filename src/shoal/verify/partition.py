"""One partition: from its plan to its report, as a whole or in some ranges."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

from ..client.cluster import Cluster, is_transient, patiently
from ..client.config import IsolationLevel
from ..client.offsets import EARLIEST
from ..error_codes import ErrorCode
from ..errors import BrokerError, ShoalError, Stopped
from ..mirroring.model.copy_options import CopyOptions
from .compare import Cursor, compare
from .errors import DamagedLog, NotComparable
from .explain import MOST_RANGES, Findings, explain
from .extent import WHOLE, Extent
from .findings import Difference, DifferenceKind, OffsetRange, Place, Side
from .locate import begin
from .log import Log
from .places import Places
from .plan import PartitionPlan
from .ranges import at
from .report import Aligned, Alignment, ComparedRange, PartitionReport
from .slots import Compared

__all__ = ["Assignment", "PartitionComparison", "compare_alone"]

#: Retention may move a log's start while it is read: then the comparison begins again, so many times.
_MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Assignment:
    """
    One partition to compare, by a thread of this process or by a task of Spark.

    Attributes:
        plan: The partition and its logs.
        extent: The part of it to compare.
        seed: Places the ranges of a sample.

    """

    plan: PartitionPlan
    extent: Extent = WHOLE
    seed: float = 0.0

    @property
    def offsets(self) -> int:
        """The number of the source's offsets."""
        return self.plan.source_log.end - self.plan.source_log.start


@dataclass(slots=True)
class _Part:
    """
    The comparison of one range of both logs, or of all of them.

    Attributes:
        plan: The plan between its two ends.
        starts: The first offsets of both logs when it began.
        begin: The place at which it began.
        cursors: The places in both logs.
        found: The result of the comparison.
        findings: The explanations of the records that differ.

    """

    plan: PartitionPlan
    starts: Place
    begin: Alignment
    cursors: tuple[Cursor, Cursor]
    found: Compared = field(default_factory=Compared)
    findings: Findings = field(default_factory=Findings)

    @property
    def fraction(self) -> float:
        """How much of the source's range is compared, from 0 to 1."""
        start, end = self.plan.source_log
        return max(0, self.cursors[0].place - start) / max(1, end - start)

    @property
    def reached(self) -> Place:
        """The places up to which both sides were compared."""
        lag, ends = self.findings.lag, self.plan.ends
        return self.found.cut or (ends if lag is None else Place(lag, ends.destination))

    @property
    def skipped(self) -> list[OffsetRange | None]:
        """The offsets of both sides before the beginning, if there are any."""
        return [
            OffsetRange(start, min(place, end)) if start < min(place, end) else None
            for start, place, end in zip(self.starts, self.begin.place, self.plan.ends, strict=True)
        ]

    @property
    def compared(self) -> ComparedRange | None:
        """The range of both sides, from the beginning on; None if the copy does not reach it."""
        source, destination = (
            OffsetRange(start, max(start, end))
            for start, end in zip(self.begin.place, self.reached, strict=True)
        )
        return ComparedRange(source, destination, self.found.records) if source.start < source.end else None


class PartitionComparison:
    """
    The comparison of one partition. :meth:`run` once; other threads may look on.

    Attributes:
        assignment: The partition, and the part of it to compare.
        is_done: Whether it has ended, well or not.
        failure: The error that ended it early, if any did.

    """

    def __init__(
        self,
        assignment: Assignment,
        *,
        options: CopyOptions,
        patience_s: float,
        stop: threading.Event,
    ) -> None:
        """
        Prepare the comparison of a partition.

        Args:
            assignment: The partition, and the part of it to compare.
            options: The limits for decoding a batch.
            patience_s: How long to retry transient errors.
            stop: Ends the comparison once it is set.
        """
        self.assignment = assignment
        self.is_done = False
        self.failure: ShoalError | None = None
        self._plan = assignment.plan
        self._options = options
        self._patience_s = patience_s
        self._stop = stop
        self._logs: list[Log] = []
        self._parts: list[_Part] = []
        #: Why ranges, or the rest of them, were not compared.
        self._reasons: list[str] = []
        #: The number of ranges; None if nothing is left out.
        self._ranges: int | None = None

    @property
    def records(self) -> int:
        """The number of records that are the same so far."""
        return sum(each.found.records for each in self._parts)

    @property
    def differences(self) -> int:
        """The number of ranges that differ so far, as far as they are known."""
        return sum(len(each.findings.differences) for each in self._parts)

    @property
    def bytes_read(self) -> int:
        """The number of bytes read from both clusters."""
        return sum(each.bytes_read for each in self._logs)

    @property
    def fraction(self) -> float:
        """How much is compared, from 0 to 1."""
        return 1.0 if self.is_done else sum(each.fraction for each in self._parts) / (self._ranges or 1)

    def run(self, source: Cluster, destination: Cluster) -> PartitionReport:
        """
        Compare, with clusters that belong to this thread.

        Whatever goes wrong is in the report.

        Raises:
            Stopped: By the event.

        """
        try:
            for plan in self._find_parts(source, destination):
                self._compare(plan, *self._logs_of(plan, source, destination))
        except Stopped:
            raise
        except ShoalError as error:
            self._fail(error)
        self.is_done = True
        return self._report()

    def _fail(self, error: ShoalError) -> None:
        self.failure = error
        self._reasons.append(str(error))

    def _find_parts(self, source: Cluster, destination: Cluster) -> Iterator[PartitionPlan]:
        """Yield the plans of the ranges to compare, each of them when the one before is done."""
        plan, extent = self._plan, self.assignment.extent
        if extent.is_whole or not self.assignment.offsets:
            yield plan
            return
        places = Places(plan, *self._logs_of(plan, source, destination))
        since = None if extent.since_ms is None else places.offset_since(extent.since_ms)
        draw = random.Random(self.assignment.seed)  # noqa: S311 - a sample, not a secret
        ranges = extent.ranges(plan.source_log, since, places.offset_until(extent.until), draw)
        if ranges == [plan.source_log]:
            yield plan
            return
        self._ranges = len(ranges)
        if not ranges and extent.since_ms is not None and extent.until is None:
            places.check_nothing_since(extent.since_ms)
        for each in ranges:
            try:
                part = places.part(each)
            except NotComparable as error:
                self._reasons.append(f"source offsets {each}: {error}")
            else:
                yield part

    def _logs_of(self, plan: PartitionPlan, source: Cluster, destination: Cluster) -> tuple[Log, Log]:
        """
        Return the readers of both logs of a plan.

        The destination is read committed: its consumers do not see the aborted transactions of another
        program.
        """
        shared = self._patience_s, self._stop, self._options
        level, committed = source.config.isolation_level, IsolationLevel.READ_COMMITTED
        ours = Log(Side.SOURCE, source, plan.source, level, plan.source_log, *shared)
        theirs = Log(
            Side.DESTINATION, destination, plan.destination, committed, plan.destination_log, *shared
        )
        self._logs += ours, theirs
        return ours, theirs

    # One range

    def _compare(self, plan: PartitionPlan, ours: Log, theirs: Log) -> None:
        before = len(self._parts)
        for attempt in range(_MOST_ATTEMPTS):
            try:
                self._compare_once(plan, ours, theirs)
                return
            except Stopped:
                raise
            except ShoalError as error:
                is_moved = isinstance(error, BrokerError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE
                if not is_moved or attempt + 1 == _MOST_ATTEMPTS:
                    self._fail(error)
                    for part in self._parts[before:]:
                        with suppress(ShoalError):
                            self._explain(part, ours, theirs)
                    return
            del self._parts[before:]
            for log in (ours, theirs):
                log.offsets = log.offsets.since(min(log.first_at(EARLIEST) or 0, log.offsets.end))

    def _compare_once(self, plan: PartitionPlan, ours: Log, theirs: Log) -> None:
        starts = Place(ours.offsets.start, theirs.offsets.start)
        begun = begin(ours, theirs, plan.copied, plan.note)
        here, there = (
            Cursor(log, log.offsets.since(place))
            for log, place in zip((ours, theirs), begun.place, strict=True)
        )
        part = _Part(plan, starts, begun, (here, there))
        self._parts.append(part)
        with closing(here), closing(there):
            compare(here, there, part.found, plan.mirrored_until)
        self._explain(part, ours, theirs)
        if part.found.cut is not None:
            self._note_end(part, part.found.cut, here.damage or there.damage)

    def _explain(self, part: _Part, ours: Log, theirs: Log) -> None:
        """Explain the slots that were found, and leave out what an uncertain beginning does not prove."""
        part.findings = explain(
            part.found.slots,
            ours,
            theirs,
            part.begin.place,
            is_by_content=part.begin.by is Aligned.BY_CONTENT,
            mirrored_until=part.plan.mirrored_until,
        )
        part.found.slots = []
        if part.findings.differences and not part.begin.is_proven:
            part.findings.differences = []
            self._reasons.append(
                f"{part.begin.why}, and too few records of the topic differ from each other to "
                "find the place of the copy"
            )

    def _note_end(self, part: _Part, cut: Place, damage: DamagedLog | None) -> None:
        """Report the rest of both logs as not compared: the comparison ended early."""
        if damage is None:
            self._reasons.append(
                f"so many records differ that the comparison ended before source offset {cut.source} and "
                f"destination offset {cut.destination}"
            )
            return
        self._reasons.append(str(damage))
        ends, source, destination = part.plan.ends, at(cut.source), at(cut.destination)
        if damage.side is Side.SOURCE:
            source = lost = OffsetRange(damage.offset, ends.source)
        else:
            destination = lost = OffsetRange(damage.offset, ends.destination)
        part.findings.differences.append(
            Difference(
                DifferenceKind.ALTERED,
                source,
                destination,
                lost.end - lost.start,
                (damage.side,),
                detail=damage.reason,
            )
        )

    # The report

    def _report(self) -> PartitionReport:
        plan, parts, reasons = self._plan, self._parts, self._reasons
        differences = [each for part in parts for each in part.findings.differences]
        not_compared = [each for part in parts for each in part.findings.not_compared]
        counts = Counter[DifferenceKind]()
        for each in differences:
            counts[each.kind] += each.records
        lags = [
            OffsetRange(each.findings.lag, each.plan.source_log.end)
            for each in parts
            if each.findings.lag is not None
        ]
        only = parts[0] if parts and self._ranges in (None, 1) else None
        here, there = only.skipped if only else (None, None)
        return PartitionReport(
            plan.source,
            plan.destination,
            alignment=parts[0].begin if parts else None,
            records=self.records,
            batches=sum(part.found.batches for part in parts),
            decoded_records=sum(part.found.decoded for part in parts),
            differences=tuple(differences[:MOST_RANGES]),
            differences_omitted=max(0, len(differences) - MOST_RANGES),
            counts=dict(counts),
            not_compared=tuple(not_compared[:MOST_RANGES]),
            not_compared_omitted=max(0, len(not_compared) - MOST_RANGES),
            removed=sum(part.findings.removed for part in parts),
            not_mirrored=OffsetRange(lags[0].start, lags[-1].end) if lags else None,
            source_skipped=here,
            destination_skipped=there,
            # The ends of a range that the copy does not reach yet do not belong together.
            reached=only.reached if only and not reasons and (not self._ranges or only.compared) else None,
            reason=_first_of(reasons),
            bytes_read=self.bytes_read,
            may_pass=self.failure is not None and is_transient(self.failure),
            ranges=None if self._ranges is None else tuple(filter(None, (each.compared for each in parts))),
            open_transactions=(parts[-1].plan if parts else plan).open_transactions,
        )


def compare_alone(
    assignment: Assignment, source: Cluster, destination: Cluster, *, options: CopyOptions, patience_s: float
) -> PartitionReport:
    """
    Compare one partition, in a process of its own.

    Args:
        assignment: The partition, and the part of it to compare.
        source: The source cluster, for this thread.
        destination: The destination cluster, for this thread.
        options: The limits for decoding a batch.
        patience_s: How long to retry transient errors.

    Raises:
        ShoalError: A cluster does not answer.

    """
    plan = assignment.plan
    patiently(lambda: source.refresh([plan.source.topic]), patience_s=patience_s)
    patiently(lambda: destination.refresh([plan.destination.topic]), patience_s=patience_s)
    comparison = PartitionComparison(
        assignment, options=options, patience_s=patience_s, stop=threading.Event()
    )
    return comparison.run(source, destination)


def _first_of(reasons: Sequence[str]) -> str | None:
    """Return the first reason, and the number of the others."""
    if not reasons:
        return None
    return reasons[0] if len(reasons) == 1 else f"{reasons[0]} (and {len(reasons) - 1} more)"

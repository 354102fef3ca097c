"""One partition: from its plan to its report, as a whole or in some ranges."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

from ..client.cluster import Cluster, is_transient
from ..client.config import IsolationLevel
from ..client.offsets import EARLIEST
from ..error_codes import ErrorCode
from ..errors import BrokerError, ShoalError, Stopped
from ..mirroring.model.copy_options import CopyOptions
from .compare import Cursor, compare
from .errors import DamagedLog, NotComparable
from .explain import MOST_RANGES, Findings, explain
from .extent import WHOLE, Extent
from .findings import NOWHERE, Difference, DifferenceKind, OffsetRange, Place, Side
from .locate import begin
from .log import Log
from .places import Places
from .plan import PartitionPlan
from .report import Aligned, Alignment, ComparedRange, Outcome, PartitionReport, has_destination
from .slots import Compared

__all__ = ["Assignment", "PartitionComparison"]

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
        source: The source's offsets.
        plan: The plan between its two ends; None if it cannot be compared.
        reason: Why it, or the rest of it, was not compared.
        begin: The place at which it began.
        starts: The first offsets of both logs then.
        cursor: The place in the source.
        found: The result of the comparison.
        findings: The explanations of the records that differ.

    """

    source: OffsetRange
    plan: PartitionPlan | None
    reason: str | None = None
    begin: Alignment | None = None
    starts: Place = NOWHERE
    cursor: Cursor | None = None
    found: Compared = field(default_factory=Compared)
    findings: Findings = field(default_factory=Findings)

    @property
    def fraction(self) -> float:
        """How much of the source's range is compared, from 0 to 1."""
        start, end = self.source
        return max(0, self.cursor.place - start) / max(1, end - start) if self.cursor else 0.0

    @property
    def ends(self) -> Place:
        """The ends of both logs."""
        return NOWHERE if self.plan is None else self.plan.ends

    @property
    def reached(self) -> Place:
        """The places up to which both sides were compared."""
        lag = self.findings.lag
        return self.found.cut or (self.ends if lag is None else Place(lag, self.ends.destination))

    @property
    def skipped(self) -> tuple[OffsetRange, OffsetRange]:
        """The offsets of both sides before the beginning."""
        begun = self.starts if self.begin is None else self.begin.place
        source, destination = (
            OffsetRange(start, max(start, min(place, end)))
            for start, place, end in zip(self.starts, begun, self.ends, strict=True)
        )
        return source, destination

    @property
    def compared(self) -> ComparedRange | None:
        """The range of both sides, from the beginning on; None if the copy does not reach it."""
        begun = self.starts if self.begin is None else self.begin.place
        source, destination = (
            OffsetRange(start, max(start, end)) for start, end in zip(begun, self.reached, strict=True)
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
        explains_compaction: bool = True,
    ) -> None:
        """
        Prepare the comparison of a partition.

        Args:
            assignment: The partition, and the part of it to compare.
            options: The limits for decoding a batch.
            patience_s: How long to retry transient errors.
            stop: Ends the comparison once it is set.
            explains_compaction: Whether to find out which records the log cleaner has removed. If not,
                records that one side lacks beside a gap are differences.
        """
        self.assignment = assignment
        self.is_done = False
        self.failure: ShoalError | None = None
        self._plan = assignment.plan
        self._options = options
        self._patience_s = patience_s
        self._stop = stop
        self._explains_compaction = explains_compaction
        self._logs: list[Log] = []
        self._parts: list[_Part] = []
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
            for part in self._find_parts(source, destination):
                if part.plan is None:
                    self._parts.append(part)
                else:
                    self._compare(part.plan, *self._logs_of(part.plan, source, destination))
        except Stopped:
            raise
        except ShoalError as error:
            self.failure = error
            self._parts.append(_Part(self._plan.source_log, None, str(error)))
        self.is_done = True
        return self._report()

    def _find_parts(self, source: Cluster, destination: Cluster) -> Iterator[_Part]:
        """Yield the ranges to compare, each of them when the one before is done."""
        plan, extent = self._plan, self.assignment.extent
        whole = _Part(plan.source_log, plan)
        if extent.is_whole or not self.assignment.offsets:
            yield whole
            return
        places = Places(plan, *self._logs_of(plan, source, destination))
        since = None if extent.since_ms is None else places.offset_since(extent.since_ms)
        draw = random.Random(self.assignment.seed)  # noqa: S311 - a sample, not a secret
        ranges = extent.ranges(plan.source_log, since, places.offset_until(extent.until), draw)
        if ranges == [plan.source_log]:
            yield whole
            return
        self._ranges = len(ranges)
        for each in ranges:
            try:
                part = places.part(each)
                yield _Part(part.source_log, part)
            except NotComparable as error:
                yield _Part(each, None, f"source offsets {each}: {error}")

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
        for attempt in range(_MOST_ATTEMPTS):
            part = _Part(plan.source_log, plan)
            self._parts.append(part)
            try:
                damage = self._step_through(part, plan, ours, theirs)
                self._explain(part, plan, ours, theirs)
                _note_end(part, damage)
                return
            except Stopped:
                raise
            except ShoalError as error:
                is_moved = isinstance(error, BrokerError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE
                if not is_moved or attempt + 1 == _MOST_ATTEMPTS:
                    self.failure, part.reason = error, str(error)
                    with suppress(ShoalError):
                        self._explain(part, plan, ours, theirs)
                    return
                self._parts.pop()
            for log in (ours, theirs):
                start = min(log.first_at(EARLIEST) or 0, log.offsets.end)
                log.offsets = OffsetRange(max(log.offsets.start, start), log.offsets.end)

    def _step_through(self, part: _Part, plan: PartitionPlan, ours: Log, theirs: Log) -> DamagedLog | None:
        """Compare both sides; return the damage at which a log ends, if any does."""
        part.starts = Place(ours.offsets.start, theirs.offsets.start)
        part.begin = begin(ours, theirs, plan.copied, plan.note)
        here, there = (
            Cursor(log, OffsetRange(max(place, log.offsets.start), log.offsets.end))
            for log, place in zip((ours, theirs), part.begin.place, strict=True)
        )
        part.cursor = here
        with closing(here), closing(there):
            compare(here, there, part.found, plan.mirrored_until)
            return here.damage or there.damage

    def _explain(self, part: _Part, plan: PartitionPlan, ours: Log, theirs: Log) -> None:
        """Explain the slots that were found, and leave out what an uncertain beginning does not prove."""
        if part.begin is None:
            return
        part.findings = explain(
            part.found.slots,
            ours,
            theirs,
            part.begin.place,
            is_by_content=part.begin.by is Aligned.BY_CONTENT,
            mirrored_until=plan.mirrored_until,
            explains_compaction=self._explains_compaction,
        )
        part.found.slots = []
        if part.findings.differences and not part.begin.is_proven:
            part.findings.differences = []
            part.reason = (
                f"{part.begin.why}, and too few records of the topic differ from each other to "
                "find the place of the copy"
            )

    # The report

    def _report(self) -> PartitionReport:
        plan, parts = self._plan, self._parts
        differences = [each for part in parts for each in part.findings.differences]
        not_compared = [each for part in parts for each in part.findings.not_compared]
        reasons = [part.reason for part in parts if part.reason]
        held = next((each.plan.open_transactions for each in reversed(parts) if each.plan), ())
        is_part = not_compared or reasons or has_destination(held)
        counts = Counter[DifferenceKind]()
        for each in differences:
            counts[each.kind] += each.records
        lags = [(each.findings.lag, each.source.end) for each in parts if each.findings.lag is not None]
        begun = [part for part in parts if part.begin is not None]
        only = begun[0] if begun and len(parts) == 1 else None
        here, there = only.skipped if only else (None, None)
        return PartitionReport(
            plan.source,
            plan.destination,
            Outcome.DIFFERENT if differences else Outcome.NOT_COMPARED if is_part else Outcome.EQUAL,
            alignment=begun[0].begin if begun else None,
            records=self.records,
            batches=sum(part.found.batches for part in parts),
            decoded_records=sum(part.found.decoded for part in parts),
            differences=tuple(differences[:MOST_RANGES]),
            differences_omitted=max(0, len(differences) - MOST_RANGES),
            counts=dict(counts),
            not_compared=tuple(not_compared[:MOST_RANGES]),
            not_compared_omitted=max(0, len(not_compared) - MOST_RANGES),
            removed=sum(part.findings.removed for part in parts),
            not_mirrored=OffsetRange(lags[0][0], lags[-1][1]) if lags else None,
            source_skipped=_unless_empty(here),
            destination_skipped=_unless_empty(there),
            reached=only.reached if only and not reasons else None,
            reason=_first_of(reasons),
            bytes_read=self.bytes_read,
            may_pass=self.failure is not None and is_transient(self.failure),
            ranges=None if self._ranges is None else tuple(filter(None, (each.compared for each in begun))),
            open_transactions=held,
        )


def _first_of(reasons: Sequence[str]) -> str | None:
    """Return the first reason, and the number of the others."""
    if not reasons:
        return None
    return reasons[0] if len(reasons) == 1 else f"{reasons[0]} ({len(reasons) - 1} more ranges)"


def _note_end(part: _Part, damage: DamagedLog | None) -> None:
    """Report the rest of both logs as not compared if the comparison ended early."""
    cut = part.found.cut
    if cut is None:
        return
    if damage is None:
        part.reason = part.reason or (
            f"so many records differ that the comparison ended before source offset {cut.source} and "
            f"destination offset {cut.destination}"
        )
        return
    part.reason, is_source = str(damage), damage.side is Side.SOURCE
    lost = OffsetRange(damage.offset, part.ends.source if is_source else part.ends.destination)
    source = lost if is_source else OffsetRange(cut.source, cut.source)
    destination = OffsetRange(cut.destination, cut.destination) if is_source else lost
    records = lost.end - lost.start
    part.findings.differences.append(
        Difference(DifferenceKind.ALTERED, source, destination, records, (damage.side,), detail=damage.reason)
    )


def _unless_empty(offsets: OffsetRange | None) -> OffsetRange | None:
    return offsets if offsets and offsets.start < offsets.end else None

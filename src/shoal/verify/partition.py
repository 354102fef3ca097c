"""One partition: from its plan to its report."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

from ..client.cluster import Cluster, is_transient
from ..client.config import IsolationLevel
from ..client.offsets import EARLIEST, list_offsets
from ..error_codes import ErrorCode
from ..errors import BrokerError, ShoalError, Stopped
from ..mirroring.model.copy_options import CopyOptions
from .compare import Cursor, Place, Same, Slot, Times, compare, split
from .errors import DamagedLog
from .explain import MOST_RANGES, Findings, explain, records_by_kind
from .findings import Difference, DifferenceKind, OffsetRange, Side
from .locate import Begin, begin, find_again
from .log import Log, LogRecord
from .plan import PartitionPlan
from .report import Aligned, Outcome, PartitionReport, has_destination

__all__ = ["PartitionComparison", "logs_of"]

#: Retention may move a log's start while it is read: then the comparison begins again, so many times.
_MOST_ATTEMPTS = 3

_BEGINNING = Place(0, 0)


def logs_of(
    plan: PartitionPlan,
    source: Cluster,
    destination: Cluster,
    *,
    options: CopyOptions,
    patience_s: float,
    stop: threading.Event,
) -> tuple[Log, Log]:
    """
    Return the readers of both logs of a plan.

    The destination is read committed: its consumers do not see the aborted transactions of another program.
    """
    ours = Log(
        Side.SOURCE,
        source,
        plan.source,
        source.config.isolation_level,
        plan.source_log,
        patience_s=patience_s,
        stop=stop,
        options=options,
    )
    theirs = Log(
        Side.DESTINATION,
        destination,
        plan.destination,
        IsolationLevel.READ_COMMITTED,
        plan.destination_log,
        patience_s=patience_s,
        stop=stop,
        options=options,
    )
    return ours, theirs


@dataclass(slots=True)
class _Attempt:
    """
    A comparison from the log starts of a time on.

    Attributes:
        begin: The place at which it began.
        same: The records that are the same.
        slots: The places at which both sides differ.
        times: The timestamps that count.
        findings: The explanations of the records there.
        reason: Why the rest, or all, was not compared.
        damage: The damage at which one log cannot be read any further.
        parted: The offsets up to which both were compared before that.

    """

    begin: Begin | None = None
    same: Same = field(default_factory=Same)
    slots: list[Slot] = field(default_factory=list)
    times: Times = field(default_factory=Times)
    findings: Findings = field(default_factory=Findings)
    reason: str | None = None
    damage: DamagedLog | None = None
    parted: Place = _BEGINNING


class PartitionComparison:
    """
    The comparison of one partition. :meth:`run` once; other threads may look on.

    Attributes:
        plan: The partition and its logs.
        is_done: Whether it has ended, well or not.
        failure: The error that ended it early, if any did.

    """

    def __init__(
        self,
        plan: PartitionPlan,
        *,
        options: CopyOptions,
        patience_s: float,
        stop: threading.Event,
        explains_compaction: bool = True,
    ) -> None:
        """
        Prepare the comparison of a partition.

        Args:
            plan: The partition and its logs.
            options: The limits for decoding a batch.
            patience_s: How long to retry transient errors.
            stop: Ends the comparison once it is set.
            explains_compaction: Whether to find out which records the log cleaner has removed. If not,
                records that one side lacks beside a gap are differences.
        """
        self.plan = plan
        self.is_done = False
        self.failure: ShoalError | None = None
        self._options = options
        self._patience_s = patience_s
        self._stop = stop
        self._explains_compaction = explains_compaction
        self._logs: tuple[Log, ...] = ()
        self._cursors: tuple[Cursor, ...] = ()
        self._attempt = _Attempt()

    @property
    def records(self) -> int:
        """The number of records that are the same so far."""
        return self._attempt.same.records

    @property
    def batches(self) -> int:
        """The number of batches that are the same by their bytes so far."""
        return self._attempt.same.batches

    @property
    def differences(self) -> int:
        """The number of ranges that differ so far, as far as they are known."""
        return len(self._attempt.findings.differences)

    @property
    def bytes_read(self) -> int:
        """The number of bytes read from both clusters."""
        return sum(each.bytes_read for each in self._logs)

    @property
    def fraction(self) -> float:
        """How much of the source's log is compared, from 0 to 1."""
        start, end = self.plan.source_log
        if self.is_done or end <= start:
            return 1.0
        place = self._cursors[0].place if self._cursors else start
        return max(0, place - start) / (end - start)

    def run(self, source: Cluster, destination: Cluster) -> PartitionReport:
        """
        Compare, with clusters that belong to this thread.

        Whatever goes wrong is in the report.

        Raises:
            Stopped: By the event.

        """
        self._logs = logs = logs_of(
            self.plan,
            source,
            destination,
            options=self._options,
            patience_s=self._patience_s,
            stop=self._stop,
        )
        try:
            self._try(*logs)
        except Stopped:
            raise
        except ShoalError as error:
            self.failure = error
            self._attempt.reason = str(error)
            with suppress(ShoalError):
                self._explain(*logs)
        self.is_done = True
        return self._report()

    def _try(self, ours: Log, theirs: Log) -> None:
        for attempt in range(_MOST_ATTEMPTS):
            try:
                self._compare(ours, theirs)
                return
            except BrokerError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE or attempt + 1 == _MOST_ATTEMPTS:
                    raise
                for log in (ours, theirs):
                    _begin_where_it_begins_now(log)
                self._attempt = _Attempt()

    def _compare(self, ours: Log, theirs: Log) -> None:
        attempt = self._attempt
        attempt.begin = begin(ours, theirs, self.plan.position, self.plan.position_note)
        self._step_through(ours, theirs, attempt)
        self._explain(ours, theirs)
        if attempt.damage is not None:
            self._note_damage(attempt.damage, attempt.parted)

    def _explain(self, ours: Log, theirs: Log) -> None:
        """Explain the slots that were found, and leave out what an uncertain beginning does not prove."""
        attempt = self._attempt
        if attempt.begin is None:
            return
        attempt.findings = explain(
            attempt.slots,
            ours,
            theirs,
            attempt.times,
            attempt.begin.place,
            is_by_content=attempt.begin.alignment.by is Aligned.BY_CONTENT,
            mirrored_until=self.plan.mirrored_until,
            explains_compaction=self._explains_compaction,
        )
        if attempt.findings.differences and not attempt.begin.is_proven:
            attempt.findings.differences = []
            attempt.reason = (
                f"{attempt.begin.alignment.why}, and too few records of the topic differ from each other to "
                "find the place of the copy"
            )

    def _step_through(self, ours: Log, theirs: Log, attempt: _Attempt) -> None:
        assert attempt.begin is not None
        place = attempt.begin.place

        def find_far(
            source: Sequence[LogRecord], destination: Sequence[LogRecord], parted: Place
        ) -> Place | None:
            return find_again(ours, theirs, source, destination, parted)

        here = Cursor(ours, OffsetRange(max(place.source, ours.offsets.start), ours.offsets.end))
        there = Cursor(theirs, OffsetRange(max(place.destination, theirs.offsets.start), theirs.offsets.end))
        self._cursors = here, there
        with closing(here), closing(there):
            for slot in compare(here, there, attempt.times, attempt.same, find_far, self.plan.mirrored_until):
                parts, pairs = split(slot, attempt.times)
                attempt.same.records += pairs
                attempt.same.decoded += pairs
                attempt.slots += parts
            attempt.damage = here.damage or there.damage
            if attempt.damage is not None:
                # Nothing behind the damage can be found: what the other side has there is no difference.
                attempt.parted = attempt.slots.pop().start

    def _note_damage(self, damage: DamagedLog, parted: Place) -> None:
        """Report the rest of that side's log as not compared: nothing behind the damage can be found."""
        attempt = self._attempt
        attempt.reason = str(damage)
        source, destination = (OffsetRange(place, place) for place in parted)
        if damage.side is Side.SOURCE:
            source = OffsetRange(damage.offset, self.plan.source_log.end)
        else:
            destination = OffsetRange(damage.offset, self.plan.destination_log.end)
        lost = source if damage.side is Side.SOURCE else destination
        attempt.findings.differences.append(
            Difference(
                DifferenceKind.ALTERED,
                source,
                destination,
                lost.end - lost.start,
                (damage.side,),
                detail=damage.reason,
            )
        )

    def _report(self) -> PartitionReport:
        attempt, found, plan = self._attempt, self._attempt.findings, self.plan
        counts = records_by_kind(found.differences)
        is_part = found.not_compared or attempt.reason or has_destination(plan.open_transactions)
        otherwise = Outcome.NOT_COMPARED if is_part else Outcome.EQUAL
        report = PartitionReport(
            plan.source,
            plan.destination,
            Outcome.DIFFERENT if found.differences else otherwise,
            records=attempt.same.records,
            batches=attempt.same.batches,
            decoded_records=attempt.same.decoded,
            differences=tuple(found.differences[:MOST_RANGES]),
            differences_omitted=max(0, len(found.differences) - MOST_RANGES),
            counts=dict(counts),
            not_compared=tuple(found.not_compared[:MOST_RANGES]),
            not_compared_omitted=max(0, len(found.not_compared) - MOST_RANGES),
            removed=found.removed,
            not_mirrored=None if found.lag is None else OffsetRange(found.lag, plan.source_log.end),
            reason=attempt.reason,
            bytes_read=self.bytes_read,
            open_transactions=plan.open_transactions,
            may_pass=self.failure is not None and is_transient(self.failure),
        )
        return report if attempt.begin is None else self._with_begin(report, attempt.begin)

    def _with_begin(self, report: PartitionReport, begin: Begin) -> PartitionReport:
        """Add the beginning of the comparison, what lies before it, and how far it came."""
        ours, theirs = (each.offsets for each in self._logs)
        behind = report.not_mirrored
        reached = (behind.start if behind else ours.end), theirs.end
        return replace(
            report,
            alignment=begin.alignment,
            source_skipped=_unless_empty(ours.start, min(begin.place.source, ours.end)),
            destination_skipped=_unless_empty(theirs.start, min(begin.place.destination, theirs.end)),
            reached=None if report.reason else reached,
        )


def _begin_where_it_begins_now(log: Log) -> None:
    """Ask for a log's start, after retention has moved it."""
    start = list_offsets(log.cluster, {log.partition: EARLIEST})[log.partition]
    if isinstance(start, ShoalError):
        raise start
    log.offsets = OffsetRange(min(max(start, log.offsets.start), log.offsets.end), log.offsets.end)


def _unless_empty(start: int, end: int) -> OffsetRange | None:
    return OffsetRange(start, end) if start < end else None

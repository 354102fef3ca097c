"""
Take over a faithful copy of any program, for which the mirror's group has no position.

The whole copy is compared with the source, by the means of ``shoal verify``: from where both have the same
records first to the copy's end, batch by batch, and record by record if batches differ. If all of it is the
same, a position is committed at the copy's end. Otherwise the partition stops with the first difference.
Nothing is written to the destination before the position is committed, so a task that dies here leaves no
trace.

A copy that begins later than the source will never have the records before that. So the mirror takes it over
only if ``--start`` excludes them, or the user allows it as an incident. Records that retention deleted from
the copy do not count: the copy had as many as its log has offsets before the first one.

The program that made the copy must not run any more. The mirror looks for three signs that it does: the copy
grows while it is compared, another group of shoal's that holds its position has a member, or a transaction
is open.
Records that it writes later land at the offset of the mirror's next batch, and stop the partition as foreign
records.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from ....client.admin import NOT_ALLOWED
from ....client.cluster import is_transient
from ....client.config import IsolationLevel
from ....client.groups import describe_holder
from ....client.offsets import LATEST, log_end_offsets
from ....client.scan import read_batches, read_decided
from ....error_codes import ErrorCode
from ....errors import BrokerError, PartitionStopped, ShoalError, Stopped
from ....verify import DEFAULT_PATIENCE_S, Alignment, OffsetRange, Outcome, PartitionReport
from ....verify.partition import Assignment, PartitionComparison
from ....verify.plan import PartitionPlan
from ...model.copy_options import CopySettings
from ...model.incidents import IncidentKind
from ...model.offset_map import OffsetMap, Stretch
from ...model.position import MirrorPosition
from ...other_groups import OtherGroups
from ..partition import PartitionCopy
from .begin import first_position
from .logs import PartitionLogs, offset_at

__all__ = ["Watch", "adopt", "is_to_adopt"]

#: A comparison that waits for a broker looks so often whether its task has to end, and asks again.
_LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class Watch:
    """
    The connection of a long comparison to its task.

    Attributes:
        stop_requested: Whether the task has to end.
        report: Reports what a partition waits for.
        report_now: Reports all that is new at once.

    """

    stop_requested: Callable[[], bool]
    report: Callable[[PartitionCopy, str], object]
    report_now: Callable[[], object]


def is_to_adopt(settings: CopySettings, logs: PartitionLogs) -> bool:
    """Whether a partition without a position has a copy that the settings take over."""
    return settings.adopt and not settings.allows_other_writers and logs.end > 0


def adopt(logs: PartitionLogs, others: OtherGroups, watch: Watch) -> MirrorPosition:
    """
    Compare a copy with its source; reads both from where the copy begins.

    Args:
        logs: Both logs of the partition.
        others: The positions of other groups.
        watch: Receives the progress, and ends the comparison.

    Returns:
        The position to commit: the copy is the same as the source up to there.

    Raises:
        PartitionStopped: The copy is not faithful, or another program still writes to it.
        ShoalError: A cluster does not answer, or the task has to end: time can heal it.

    """
    return _Adoption(logs, others, watch).run()


class _End(threading.Event):
    """The end of a comparison, which is looked for before each answer, and within each pause."""

    def __init__(self, look: Callable[[], bool]) -> None:
        super().__init__()
        self._look = look

    def is_set(self) -> bool:
        return self._look()

    def wait(self, timeout: float | None = None) -> bool:
        time.sleep(min(timeout or 0.0, _LOOK_S))
        return self.is_set()


class _Adoption:
    def __init__(self, logs: PartitionLogs, others: OtherGroups, watch: Watch) -> None:
        self._logs = logs
        self._clusters = logs.clusters
        self._copy = logs.copy
        self._others = others
        self._watch = watch
        self._name = logs.name

    def run(self) -> MirrorPosition:
        try:
            return self._adopt()
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            # The source deletes records while they are read: the next attempt asks for the log's start again.
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, error.where, error.detail) from error

    def _adopt(self) -> MirrorPosition:
        self._check_holder()
        self._check_transactions()
        source, level = self._clusters.source, self._clusters.settings.source.isolation_level
        start, end = self._logs.source_start, offset_at(source, self._copy.source, LATEST, level)
        source_log = OffsetRange(start, max(start, end))
        report = self._compare(source_log)
        self._check_end()
        self._check_faithful(report)
        assert report.alignment is not None
        assert report.reached is not None
        origin = report.alignment.place
        self._check_place(report.alignment, report.records)
        self._check_beginning(origin, source_log)
        return self._position(report.reached[0], origin, report.records)

    def _stop(self, reason: str) -> PartitionStopped:
        return PartitionStopped(*self._copy.source, self._copy.range.start_offset, f"--adopt: {reason}")

    # Another writer

    def _check_holder(self) -> None:
        other = self._others.position_of(self._copy.source)
        holder = describe_holder(self._clusters.source, other.group) if other else None
        if other and holder:
            raise self._stop(
                f"group {other.group!r} holds the position of {self._name}, and a mirror is at work in it "
                f"({holder}). Stop that mirror first, then start this one again"
            )

    def _check_transactions(self) -> None:
        destination, partition = self._clusters.destination, self._copy.destination
        end = offset_at(destination, partition, LATEST, IsolationLevel.READ_COMMITTED)
        if end > self._logs.end:
            raise self._logs.changed()
        if end < self._logs.end:
            raise BrokerError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                self._name,
                f"--adopt: a transaction is open from offset {end} on. If the program "
                "that wrote it is stopped, the destination aborts it after its timeout",
            )

    def _check_end(self) -> None:
        destination, partition = self._clusters.destination, self._copy.destination
        end = log_end_offsets(destination, [partition])[partition]
        if isinstance(end, ShoalError):
            raise end
        if end != self._logs.end:
            raise self._stop(
                f"{self._name} ended at offset {self._logs.end} and ends at {end} now: another program "
                "writes to it. Stop that program, then start this mirror again"
            )

    # The comparison

    def _compare(self, source_log: OffsetRange) -> PartitionReport:
        """Compare, as long as the task has not to end."""
        group = self._clusters.settings.group
        comparison = PartitionComparison(
            Assignment(
                PartitionPlan(
                    self._copy.source,
                    self._copy.destination,
                    source_log,
                    OffsetRange(self._logs.start, self._logs.end),
                    None,
                    f"group {group!r} has no committed position for it",
                )
            ),
            options=self._clusters.settings,
            patience_s=DEFAULT_PATIENCE_S,
            stop=_End(lambda: self._has_ended(comparison.fraction)),
        )
        try:
            report = comparison.run(self._clusters.source, self._clusters.destination)
        except Stopped:
            raise self._ended() from None
        if comparison.failure is not None and not _is_about_copy(comparison.failure):
            raise comparison.failure
        return report

    def _has_ended(self, fraction: float) -> bool:
        """Report how much is compared; return whether the task has to end."""
        reason = f"the copy to be compared with the source (--adopt), {fraction:.0%} done"
        self._watch.report(self._copy, reason)
        return self._watch.stop_requested()

    def _ended(self) -> BrokerError:
        where, why = f"comparing {self._name}", "the task ended, and the next one begins it again"
        return BrokerError(ErrorCode.REQUEST_TIMED_OUT, where, why)

    def _check_faithful(self, report: PartitionReport) -> None:
        if report.outcome is Outcome.EQUAL and not report.removed:
            return
        raise self._stop(
            f"{self._name} is not shown to be a faithful copy: {_first_of(report)}. Nothing was written. "
            f"{self._advice(report)}"
        )

    def _check_place(self, begun: Alignment, records: int) -> None:
        """Make sure that what both sides have in common is no accident, and in no other place."""
        if begun.place == (0, 0) or begun.is_proven:
            return
        raise self._stop(
            f"the source has {records} records of {self._name}, from offset {begun.source_offset} on, and "
            "too few of them differ from each other to show that it has them in no other place. Mirror into "
            "an empty topic (--rename)"
        )

    def _check_beginning(self, origin: tuple[int, int], source_log: OffsetRange) -> None:
        """Make sure that the copy had all that is to be mirrored and lies before where it begins now."""
        first, deleted = origin
        wanted_from = max(source_log.start, self._copy.range.start_offset)
        if first - wanted_from <= deleted:
            return
        before = self._count(wanted_from, first)
        if before <= deleted:
            return
        kind = IncidentKind.SOURCE_RETENTION
        had = f", and the copy deleted no more than {deleted} before it" if deleted else ""
        reason = (
            f"--adopt: {self._name} begins later than the source. From offset {wanted_from} "
            f"on the source has {before} records before the copy's first one, which is at offset {first} "
            f"there{had}"
        )
        self._copy.meet(
            kind,
            reason,
            f"{before - deleted} records would be missing for good. Nothing was written. Use "
            f"{kind.continuing} if they are not wanted, or mirror into an empty topic (--rename)",
            unmirrored_from=wanted_from,
        )
        self._copy.report_continued(kind, reason, before - deleted)

    def _count(self, start_offset: int, end_offset: int) -> int:
        """Return how many records the source has to mirror between two offsets."""
        count = 0
        self._watch.report(
            self._copy,
            "the source's records before the copy's first to be counted (--adopt)",
        )
        settings, source = self._clusters.settings, self._clusters.source
        level, keep_append_time = settings.source.isolation_level, settings.keep_append_time
        for decision, batch in read_decided(
            source, self._copy.source, start_offset, level, keep_append_time=keep_append_time
        ):
            if self._watch.stop_requested():
                raise self._ended()
            if not decision.is_drop:
                records = settings.records_to_mirror(batch, start_offset)
                count += sum(record.offset < end_offset for record in records)
            # Not the base offset: a wrapper of magic 0 or 1 has that of its last message.
            if batch.header.next_offset >= end_offset:
                break
        return count

    def _advice(self, report: PartitionReport) -> str:
        if report.aborted:
            return (
                "MirrorMaker 2 copies aborted transactions by default. To take over such a copy, set "
                "isolation.level=read_uncommitted for the source cluster"
            )
        return "shoal verify lists all that differs. Mirror into an empty topic (--rename)"

    # The position

    def _position(self, source_offset: int, origin: tuple[int, int], records: int) -> MirrorPosition:
        position = first_position(self._logs, source_offset, self._leader_epoch_before(source_offset))
        # Transaction markers of the copy's own, and records that compaction took from it, have offsets, too.
        has_each = records == self._logs.end - origin[1]
        begun = OffsetMap.begun_at(*origin)
        stretch = Stretch.KNOWN if has_each else Stretch.BROKEN
        return replace(
            position, origin=origin, milestones=begun.reached(source_offset, self._logs.end, stretch)
        )

    def _leader_epoch_before(self, position: int) -> int:
        source, partition = self._clusters.source, self._copy.source
        before = next(iter(read_batches(source, partition, position - 1)), None) if position else None
        if before is not None and before.header.base_offset < position and before.header.leader_epoch >= 0:
            return before.header.leader_epoch
        return source.partition(partition).leader_epoch  # that of a leader which has all before the position


def _is_about_copy(failure: ShoalError) -> bool:
    """Whether neither time, nor retention that the next attempt sees, nor a right can mend a comparison."""
    mended = NOT_ALLOWED | {ErrorCode.OFFSET_OUT_OF_RANGE}
    return not (is_transient(failure) or (isinstance(failure, BrokerError) and failure.code in mended))


def _first_of(report: PartitionReport) -> str:
    """Return the first difference, or why the copy could not be compared, as a phrase."""
    if report.differences:
        more = len(report.differences) - 1 + report.differences_omitted
        return str(report.differences[0]) + (f", and {more} more differences" if more else "")
    if report.not_compared:
        return str(report.not_compared[0])
    if report.removed:
        return f"compaction removed records that only one side has now: {report.removed:,}"
    return report.reason or "neither side holds records to compare"

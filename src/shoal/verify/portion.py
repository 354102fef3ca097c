"""
One partition, compared in some ranges of its offsets only: since a time, the last ones, or a sample.

The records at both ends of a range are searched at the destination, near their times, as the beginning of
both logs is (:mod:`.locate`). Offsets and batch boundaries play no part. The range between both places
is compared as a log of its own. A range whose ends are not found for sure is not compared: its first records
may repeat themselves, or the destination writes its own times.
"""

from __future__ import annotations

import enum
import random
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from ..client.cluster import Cluster, patiently
from ..client.offsets import list_offsets
from ..errors import ShoalError, Stopped
from ..mirroring.model.copy_options import CopyOptions
from .compare import Place
from .errors import NotComparable
from .explain import MOST_RANGES
from .extent import LEAST_OFFSETS, Extent
from .findings import Difference, DifferenceKind, OffsetRange
from .locate import first_records, place_of
from .log import Log
from .partition import PartitionComparison, logs_of
from .plan import PartitionPlan
from .report import Aligned, Alignment, ComparedRange, Outcome, PartitionReport, has_destination

__all__ = ["Assignment", "PortionComparison", "comparison_of"]

#: The number of records of a range whose times say where the destination has it.
_TIMED_RECORDS = 256

#: How far the place of a record at the destination may lie from the first record of its time.
_BEFORE, _BEHIND = 4_096, 65_536

#: The offsets at the end of a log whose times are read.
_LAST_OFFSETS = 256

#: How far before its first offset a range may begin, if the copy ends too soon behind that to find it.
_FURTHER_BACK = (0, LEAST_OFFSETS, 8_192, 65_536, 524_288)


class _Unplaced(enum.Enum):
    """Why the end of a copy has no place for a source offset."""

    #: The end of the copy has none of the records there.
    BEHIND = enum.auto()
    #: The end of the copy has some of them, and too few to be sure.
    UNSURE = enum.auto()


@dataclass(frozen=True, slots=True)
class _Part:
    """
    A range of both logs.

    Attributes:
        plan: The comparison between its two ends; None if it cannot be compared.
        source: The source's offsets.
        reason: Why it cannot be compared.
        is_behind: Whether the copy does not reach it yet.
        ends_with_logs: Whether both logs end with it.

    """

    plan: PartitionPlan | None
    source: OffsetRange
    reason: str = ""
    is_behind: bool = False
    ends_with_logs: bool = True


class PortionComparison:
    """
    The comparison of some ranges of one partition. :meth:`run` once; other threads may look on.

    Attributes:
        plan: The partition and its logs.
        is_done: Whether it has ended, well or not.
        parts: The comparisons of its ranges so far.

    """

    def __init__(
        self,
        plan: PartitionPlan,
        extent: Extent,
        *,
        options: CopyOptions,
        patience_s: float,
        stop: threading.Event,
        draw: random.Random,
    ) -> None:
        """
        Prepare the comparison of some ranges.

        Args:
            plan: The partition and its logs.
            extent: The part of the source to compare.
            options: The limits for decoding a batch.
            patience_s: How long to retry transient errors.
            stop: Ends the comparison once it is set.
            draw: Places the ranges of a sample.
        """
        self.plan = plan
        self.is_done = False
        self.parts: list[PartitionComparison] = []
        self._extent = extent
        self._options = options
        self._patience_s = patience_s
        self._stop = stop
        self._draw = draw
        self._ranges = 1
        self._bytes_of_search = 0

    @property
    def bytes_read(self) -> int:
        """The number of bytes read from both clusters."""
        return self._bytes_of_search + sum(each.bytes_read for each in self.parts)

    @property
    def fraction(self) -> float:
        """How much of the ranges is compared, from 0 to 1."""
        return 1.0 if self.is_done else min(1.0, sum(each.fraction for each in self.parts) / self._ranges)

    def run(self, source: Cluster, destination: Cluster) -> PartitionReport:
        """
        Compare, with clusters that belong to this thread.

        Raises:
            Stopped: By the event.

        """
        try:
            report = self._run(source, destination)
        except Stopped:
            raise
        except ShoalError as error:
            report = PartitionReport(
                self.plan.source, self.plan.destination, Outcome.NOT_COMPARED, reason=str(error)
            )
        self.is_done = True
        return replace(report, bytes_read=self.bytes_read)

    def _run(self, source: Cluster, destination: Cluster) -> PartitionReport:
        log = self.plan.source_log
        ranges = self._extent.ranges(log, self._since(source), self._draw)
        if ranges == [log] or log.start == log.end:
            return self._compared(self.plan, source, destination)
        self._ranges = max(1, len(ranges))
        parts = self._find(ranges, source, destination)
        reports = [
            _within(part, self._compared(part.plan, source, destination))
            for part in parts
            if part.plan is not None
        ]
        return joined(self.plan, parts, reports)

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopped

    def _since(self, source: Cluster) -> int | None:
        """Return the first offset of the time from which on records are compared; None without a time."""
        time_ms = self._extent.since_ms
        if time_ms is None:
            return None
        found = patiently(
            lambda: _offset_at(source, self.plan, time_ms), patience_s=self._patience_s, pause=self._pause
        )
        if found >= 0:
            return found
        _check_end(self._logs(source, source)[0], time_ms)
        return self.plan.source_log.end

    def _compared(self, plan: PartitionPlan, source: Cluster, destination: Cluster) -> PartitionReport:
        comparison = PartitionComparison(
            plan, options=self._options, patience_s=self._patience_s, stop=self._stop
        )
        self.parts.append(comparison)
        return comparison.run(source, destination)

    # The ends of ranges

    def _find(self, ranges: Sequence[OffsetRange], source: Cluster, destination: Cluster) -> list[_Part]:
        """Find the ends of all ranges at the destination."""
        ours, theirs = self._logs(source, destination)
        parts = [self._part(ours, theirs, each) for each in ranges]
        self._bytes_of_search = ours.bytes_read + theirs.bytes_read
        return parts

    def _logs(self, source: Cluster, destination: Cluster) -> tuple[Log, Log]:
        return logs_of(
            self.plan,
            source,
            destination,
            options=self._options,
            patience_s=self._patience_s,
            stop=self._stop,
        )

    def _part(self, ours: Log, theirs: Log, source: OffsetRange) -> _Part:
        ends = Place(ours.offsets.end, theirs.offsets.end)
        try:
            start = self._start(ours, theirs, source.start)
            if start is None:
                return _Part(None, source, is_behind=True)
            # If the copy ends within the range, or soon behind it, the range ends with both logs.
            found = self._place(ours, theirs, source.end)
            end = ends if isinstance(found, _Unplaced) else found
        except NotComparable as error:
            return _Part(None, source, str(error))
        plan = self.plan.between(start, end)
        return _Part(plan, plan.source_log, ends_with_logs=end == ends)

    def _start(self, ours: Log, theirs: Log, offset: int) -> Place | None:
        """Return the place at which to begin, or an earlier one; None if the copy does not reach it."""
        first = Place(ours.offsets.start, theirs.offsets.start)
        for before in _FURTHER_BACK:
            tried = offset - before
            if tried - first.source < LEAST_OFFSETS:
                return first
            place = self._place(ours, theirs, tried)
            if not isinstance(place, _Unplaced):
                if place.source <= offset:
                    return place
                continue
            position = self.plan.position
            if place is _Unplaced.BEHIND and (position is None or position.source_offset <= tried):
                return None
        return first

    def _place(self, ours: Log, theirs: Log, offset: int) -> Place | _Unplaced:
        """
        Return the place of a source offset at the destination, or why its end has none.

        Raises:
            NotComparable: The destination does not have these records, or they repeat themselves.

        """
        here, there = ours.offsets, theirs.offsets
        if offset == here.end:
            return Place(here.end, there.end)
        if offset == here.start:
            # The comparison of a first range finds its beginning by itself.
            return Place(here.start, there.start)
        since = self._near(ours, theirs, offset)
        if since is None:
            return _Unplaced.BEHIND
        searched = OffsetRange(max(there.start, since - _BEFORE), min(there.end, since + _BEHIND))
        place, is_there = place_of(ours, theirs, offset, searched)
        if place is not None:
            return place
        if searched.end == there.end:
            return _Unplaced.UNSURE if is_there else _Unplaced.BEHIND
        raise NotComparable(
            f"the destination does not have the records from source offset {offset} on near their times, "
            "or they repeat themselves, so that their place is not certain. Compare all records of the topic"
        )

    def _near(self, ours: Log, theirs: Log, offset: int) -> int | None:
        """Return the destination's first offset of the time of some records; None if it has none so late."""
        records = first_records(ours, offset)[:_TIMED_RECORDS]
        times = [each.timestamp for each in records if each.body is not None]
        if not times or min(times) < 0:
            return theirs.offsets.start
        found = list_offsets(theirs.cluster, {theirs.partition: min(times)})[theirs.partition]
        if isinstance(found, ShoalError):
            raise found
        if found < 0:
            _check_end(theirs, min(times))
        return found if 0 <= found < theirs.offsets.end else None


def _check_end(log: Log, time_ms: int) -> None:
    """
    Check that a log, in which its broker finds no record of a time or later, does not end with such records.

    A broker searches one segment alone, the first with a batch of this time: emptied batches mislead it.

    Raises:
        NotComparable: The log ends with later records.

    """
    start, end = log.offsets
    with closing(log.records(max(start, end - _LAST_OFFSETS), end)) as records:
        if any(max(each.timestamp, each.append_time or -1) >= time_ms for each in records if each.body):
            raise NotComparable(
                f"the broker of the {log.side.value} finds no record of the range's time, but the log "
                "ends with later records: the log cleaner has emptied batches. Compare all records of "
                "the topic"
            )


def _offset_at(source: Cluster, plan: PartitionPlan, time_ms: int) -> int:
    offset = list_offsets(source, {plan.source: time_ms})[plan.source]
    if isinstance(offset, ShoalError):
        raise offset
    return offset


def _within(part: _Part, report: PartitionReport) -> PartitionReport:
    """Return the report of a range. The copy has the records behind it, so none is *not mirrored yet*."""
    alignment = report.alignment
    if alignment is not None and alignment.by is Aligned.BY_ORIGIN:
        alignment = replace(alignment, by=Aligned.BY_CONTENT, why="the records at both ends of the range")
        report = replace(report, alignment=alignment)
    behind = report.not_mirrored
    if part.ends_with_logs or part.plan is None or behind is None:
        return report
    place, size = part.plan.destination_log.end, behind.end - behind.start
    missing = Difference(DifferenceKind.MISSING, behind, OffsetRange(place, place), size)
    records = report.counts.get(DifferenceKind.MISSING, 0)
    return replace(
        report,
        outcome=Outcome.DIFFERENT,
        differences=(*report.differences, missing),
        counts={**report.counts, DifferenceKind.MISSING: records + size},
        not_mirrored=None,
    )


def joined(
    plan: PartitionPlan, parts: Sequence[_Part], reports: Sequence[PartitionReport]
) -> PartitionReport:
    """Return the reports of a partition's ranges as one."""
    counts = Counter[DifferenceKind]()
    for report in reports:
        counts.update(report.counts)
    compared = [part for part in parts if part.plan is not None]
    differences = [each for report in reports for each in report.differences]
    not_compared = [each for report in reports for each in report.not_compared]
    outcomes = {report.outcome for report in reports} | {
        Outcome.NOT_COMPARED for part in parts if part.reason
    }
    lag = [report.not_mirrored.start for report in reports if report.not_mirrored]
    if not any(_is_to_the_end(part, report) for part, report in zip(compared, reports, strict=False)):
        lag += [part.source.start for part in parts if part.is_behind]
    is_to_the_end = any(part.is_behind or part.ends_with_logs for part in parts)
    open_at_the_end = plan.open_transactions if is_to_the_end else ()
    if has_destination(open_at_the_end):
        outcomes.add(Outcome.NOT_COMPARED)
    return PartitionReport(
        plan.source,
        plan.destination,
        next((each for each in Outcome if each in outcomes), Outcome.EQUAL),
        alignment=_alignment(plan, reports),
        records=sum(report.records for report in reports),
        batches=sum(report.batches for report in reports),
        decoded_records=sum(report.decoded_records for report in reports),
        differences=tuple(differences[:MOST_RANGES]),
        differences_omitted=sum(report.differences_omitted for report in reports)
        + max(0, len(differences) - MOST_RANGES),
        counts=dict(counts),
        not_compared=tuple(not_compared[:MOST_RANGES]),
        not_compared_omitted=sum(report.not_compared_omitted for report in reports)
        + max(0, len(not_compared) - MOST_RANGES),
        not_mirrored=OffsetRange(min(lag), plan.source_log.end) if lag else None,
        reached=reports[0].reached if len(parts) == len(reports) == 1 else None,
        reason=_reason(parts, reports),
        source_skipped=reports[0].source_skipped if len(parts) == len(reports) == 1 else None,
        destination_skipped=reports[0].destination_skipped if len(parts) == len(reports) == 1 else None,
        ranges=tuple(filter(None, map(_compared_range, compared, reports))),
        open_transactions=open_at_the_end,
    )


def _is_to_the_end(part: _Part, report: PartitionReport) -> bool:
    """Whether both logs ended together in this range, so that the copy is behind nowhere."""
    return part.ends_with_logs and report.reason is None and report.not_mirrored is None


def _alignment(plan: PartitionPlan, reports: Sequence[PartitionReport]) -> Alignment | None:
    if reports:
        return reports[0].alignment
    return Alignment(
        Aligned.NOTHING, plan.source_log.end, plan.destination_log.end, "both sides have nothing in this part"
    )


def _compared_range(part: _Part, report: PartitionReport) -> ComparedRange | None:
    if part.plan is None or report.alignment is None:
        return None
    start = report.alignment.source_offset, report.alignment.destination_offset
    end = part.plan.source_log.end, part.plan.destination_log.end
    if part.ends_with_logs and report.reached:
        end = report.reached
    return ComparedRange(
        OffsetRange(start[0], max(start[0], end[0])),
        OffsetRange(start[1], max(start[1], end[1])),
        report.records,
    )


def _reason(parts: Sequence[_Part], reports: Sequence[PartitionReport]) -> str | None:
    """Return why some ranges were not compared: the first reason, and the number of the others."""
    reasons = [f"source offsets {part.source}: {part.reason}" for part in parts if part.reason]
    reasons += [report.reason for report in reports if report.reason]
    if not reasons:
        return None
    others = len(reasons) - 1
    return reasons[0] if not others else f"{reasons[0]} ({others} more ranges)"


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
    extent: Extent
    seed: float

    @property
    def offsets(self) -> int:
        """The number of the source's offsets."""
        return self.plan.source_log.end - self.plan.source_log.start


def comparison_of(
    assignment: Assignment, *, options: CopyOptions, patience_s: float, stop: threading.Event
) -> PartitionComparison | PortionComparison:
    """Return the comparison of a partition, which has not begun."""
    if assignment.extent.is_whole:
        return PartitionComparison(assignment.plan, options=options, patience_s=patience_s, stop=stop)
    return PortionComparison(
        assignment.plan,
        assignment.extent,
        options=options,
        patience_s=patience_s,
        stop=stop,
        draw=random.Random(assignment.seed),  # noqa: S311 - a sample, not a secret
    )

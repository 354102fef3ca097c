"""
One partition, compared in some ranges of its offsets only: since a time, the last ones, or a sample.

The records at both ends of a range are searched at the destination, near their times, as the beginning of
both logs is (:mod:`.common_start`). Offsets and batch boundaries play no part. The range between both places
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
from itertools import islice

from ..client.cluster import Cluster, patiently
from ..client.config import IsolationLevel
from ..client.offsets import list_offsets
from ..errors import ShoalError, Stopped
from ..mirroring.model.copy_options import CopyOptions
from .alignment import LogPair, meet_again
from .common_start import CommonStart
from .comparison import PartitionComparison
from .errors import NotComparable
from .extent import LEAST_OFFSETS, Extent
from .log_end import check_end
from .plan import PartitionPlan
from .range_reader import RangeReader
from .reading import LogReader
from .report import (
    Aligned,
    Alignment,
    ComparedRange,
    Difference,
    DifferenceKind,
    OffsetRange,
    Outcome,
    PartitionReport,
    Side,
    has_destination,
)
from .seen_records import seen_records
from .tally import MOST_RANGES

__all__ = ["PortionComparison", "join_neighbours"]

#: The number of records of a range whose times say where the destination has it.
_TIMED_RECORDS = 256

#: How far the place of a record at the destination may lie from the first record of its time.
_BEFORE, SEARCHED_BEHIND = 4_096, 65_536

#: The source's offsets to search with: enough for the largest head of a log.
_HEAD_OFFSETS = 65_536

#: How far before its first offset a range may begin, if the copy ends too soon behind that to find it.
_FURTHER_BACK = (0, 8_192, 65_536, 524_288)


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


class _RangeComparison(PartitionComparison):
    """The comparison of one range: its last batch may go on behind it."""

    reader = RangeReader


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
        ranges: Sequence[OffsetRange] | None = None,
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
            ranges: The source's ranges to compare, instead of those of the extent.
        """
        self.plan = plan
        self.is_done = False
        self.parts: list[PartitionComparison] = []
        self._extent = extent
        self._options = options
        self._patience_s = patience_s
        self._stop = stop
        self._draw = draw
        self._given = ranges
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
        ranges = self._given or self._extent.ranges(log, self._since(source), self._draw)
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
        with closing(self._reader(Side.SOURCE, source)) as reader:
            check_end(reader, self.plan.source_log, time_ms)
        return self.plan.source_log.end

    def _compared(self, plan: PartitionPlan, source: Cluster, destination: Cluster) -> PartitionReport:
        comparison = _RangeComparison(
            plan, options=self._options, patience_s=self._patience_s, stop=self._stop
        )
        self.parts.append(comparison)
        return comparison.run(source, destination)

    # The ends of ranges

    def _find(self, ranges: Sequence[OffsetRange], source: Cluster, destination: Cluster) -> list[_Part]:
        """Find the ends of all ranges at the destination."""
        ours = self._reader(Side.SOURCE, source)
        theirs = self._reader(Side.DESTINATION, destination)
        logs = LogPair(ours, theirs, self.plan.source_log, self.plan.destination_log)
        with closing(ours), closing(theirs):
            parts = [self._part(logs, each) for each in ranges]
            self._bytes_of_search = ours.bytes_read + theirs.bytes_read
        return parts

    def _part(self, logs: LogPair, source: OffsetRange) -> _Part:
        try:
            start = self._start(logs, source.start)
            if start is None:
                return _Part(None, source, is_behind=True)
            # If the copy ends within the range, or soon behind it, the range ends with both logs.
            found = self._place(logs, source.end)
            end = logs.end if isinstance(found, _Unplaced) else found
        except NotComparable as error:
            return _Part(None, source, str(error))
        plan = self.plan.between(start, end)
        return _Part(plan, plan.source_log, ends_with_logs=end == logs.end)

    def _start(self, logs: LogPair, offset: int) -> CommonStart | None:
        """Return the place at which to begin, or an earlier one; None if the copy does not reach it."""
        for before in _FURTHER_BACK:
            tried = offset - before
            if tried - logs.source_log.start < LEAST_OFFSETS:
                return logs.start
            place = self._place(logs, tried)
            if not isinstance(place, _Unplaced):
                return place
            position = self.plan.position
            if place is _Unplaced.BEHIND and (position is None or position.source_offset <= tried):
                return None
        return logs.start

    def _place(self, logs: LogPair, offset: int) -> CommonStart | _Unplaced:
        """
        Return the place of a source offset at the destination, or why its end has none.

        Raises:
            NotComparable: The destination does not have these records, or they repeat themselves.

        """
        if offset == logs.source_log.end:
            return logs.end
        if offset == logs.source_log.start:
            # The comparison of a first range finds its beginning by itself.
            return logs.start
        head = OffsetRange(offset, min(logs.source_log.end, offset + _HEAD_OFFSETS))
        since = self._near(logs, head)
        if since is None:
            return _Unplaced.BEHIND
        there = OffsetRange(
            max(logs.destination_log.start, since - _BEFORE),
            min(logs.destination_log.end, since + SEARCHED_BEHIND),
        )
        found = meet_again(LogPair(logs.source, logs.destination, head, there))
        if found is not None and found.is_proven:
            return found.place
        if there.end == logs.destination_log.end:
            return _Unplaced.BEHIND if found is None else _Unplaced.UNSURE
        raise NotComparable(
            f"the destination does not have the records from source offset {offset} on near their times, "
            "or they repeat themselves, so that their place is not certain. Compare all records of the topic"
        )

    def _near(self, logs: LogPair, head: OffsetRange) -> int | None:
        """Return the destination's first offset of the time of some records; None if it has none so late."""
        with closing(seen_records(logs.source, head)) as records:
            times = [
                time
                for record in islice(records, _TIMED_RECORDS)
                for _, time in record.keys[:1]
                if time is not None
            ]
        if not times or min(times) < 0:
            return logs.destination_log.start
        reader = logs.destination
        offset = list_offsets(reader.cluster, {reader.partition: min(times)})[reader.partition]
        if isinstance(offset, ShoalError):
            raise offset
        if offset < 0:
            check_end(reader, logs.destination_log, min(times))
        return offset if 0 <= offset < logs.destination_log.end else None

    def _reader(self, side: Side, cluster: Cluster) -> LogReader:
        is_source = side is Side.SOURCE
        return LogReader(
            side,
            cluster,
            self.plan.source if is_source else self.plan.destination,
            cluster.config.isolation_level if is_source else IsolationLevel.READ_COMMITTED,
            patience_s=self._patience_s,
            stop=self._stop,
            options=self._options,
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
    missing = Difference(DifferenceKind.MISSING, behind, OffsetRange(place, place), 0, size)
    batches, records = report.counts.get(DifferenceKind.MISSING, (0, 0))
    return replace(
        report,
        outcome=Outcome.DIFFERENT,
        differences=(*report.differences, missing),
        counts={**report.counts, DifferenceKind.MISSING: (batches, records + size)},
        not_mirrored=None,
    )


def joined(
    plan: PartitionPlan, parts: Sequence[_Part], reports: Sequence[PartitionReport]
) -> PartitionReport:
    """Return the reports of a partition's ranges as one."""
    counts: Counter[tuple[DifferenceKind, int]] = Counter()
    for report in reports:
        for kind, amounts in report.counts.items():
            for place, amount in enumerate(amounts):
                counts[kind, place] += amount
    kinds = {kind for kind, _ in counts}
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
        decoded_batches=sum(report.decoded_batches for report in reports),
        differences=tuple(differences[:MOST_RANGES]),
        differences_omitted=sum(report.differences_omitted for report in reports)
        + max(0, len(differences) - MOST_RANGES),
        counts={kind: (counts[kind, 0], counts[kind, 1]) for kind in kinds},
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


def join_neighbours(plan: PartitionPlan, reports: Sequence[PartitionReport]) -> PartitionReport:
    """Return the reports of ranges that follow each other without a gap as the report of all of them."""
    whole = joined(plan, [_Part(plan, plan.source_log)] * len(reports), reports)
    is_complete = all(report.reason is None for report in reports)
    last = next((report for report in reversed(reports) if report.reached), None)
    return replace(
        whole,
        source_skipped=reports[0].source_skipped,
        destination_skipped=reports[0].destination_skipped,
        reached=last.reached if last and is_complete else None,
        ranges=None,
    )


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

"""One partition, compared from where both sides begin to their ends."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

from ..client.cluster import Cluster, is_transient
from ..client.config import IsolationLevel
from ..client.offsets import EARLIEST, list_offsets
from ..error_codes import ErrorCode
from ..errors import BrokerError, ShoalError, Stopped
from ..mirroring.model.copy_options import CopyOptions
from ..topic_partition import TopicPartition
from .aborted import aborted_among
from .alignment import LogPair, alignments, meet_again
from .cleaned import MOST_CANDIDATES, Mirrored, Verdict, judge, possible
from .common_start import CommonStart
from .diff import LOOK_AHEAD_BATCHES, diff
from .doubled import doubled_before
from .errors import DamagedLog, NotComparable
from .finding import AnyFinding, Finding, Kind
from .log_head import PROVING_ANCHORS
from .plan import PartitionPlan
from .reading import LogReader
from .report import (
    ABORTED,
    Aligned,
    Alignment,
    Difference,
    DifferenceKind,
    OffsetRange,
    Outcome,
    PartitionReport,
    Side,
    has_destination,
)
from .tally import Tally

__all__ = ["PartitionComparison"]

#: Retention may move a log's start while it is read: then the comparison begins again, so many times.
_MOST_ATTEMPTS = 3

#: Every record up to the end must be at the destination.
_EVERYTHING = 2**63


@dataclass(slots=True)
class _Attempt:
    """
    A comparison from one place on.

    Attributes:
        alignment: The offsets at which it began.
        tally: The findings so far.
        skipped: The offsets before that place on either side.
        not_mirrored: The source's offsets behind the copy.
        reason: Why the rest was not compared.
        aborted: The destination offsets of extra ranges that are aborted transactions of the source.
        beside_gaps: Records that one side lacks beside a gap: compaction may explain them.
        records_beside_gaps: How many records these are, and those that were too many to keep.

    """

    alignment: Alignment | None = None
    tally: Tally = field(default_factory=Tally)
    skipped: LogPair | None = None
    not_mirrored: OffsetRange | None = None
    reason: str | None = None
    aborted: set[OffsetRange] = field(default_factory=set)
    beside_gaps: list[Finding] = field(default_factory=list)
    records_beside_gaps: int = 0

    @property
    def differing(self) -> int:
        """How many records differ."""
        return sum(records for _, records in self.tally.counts.values())


class PartitionComparison:
    """
    The comparison of one partition. :meth:`run` once; other threads may look on.

    Attributes:
        plan: The partition and its logs.
        is_done: Whether it has ended, well or not.
        failure: The error that ended it early, if any did.
        reader: The class that reads both logs.

    """

    reader: type[LogReader] = LogReader

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
            patience_s: How long to retry what time can heal.
            stop: Ends the comparison once it is set.
            explains_compaction: Whether to read both logs again to find out which records the log cleaner
                has removed. If not, records beside a gap are not compared.
        """
        self.plan = plan
        self._explains_compaction = explains_compaction
        self._options = options
        self._patience_s = patience_s
        self._stop = stop
        self._readers: tuple[LogReader, ...] = ()
        self.is_done = False
        self.failure: ShoalError | None = None
        self._attempt = _Attempt()

    @property
    def tally(self) -> Tally:
        """The findings so far."""
        return self._attempt.tally

    @property
    def bytes_read(self) -> int:
        """The number of bytes read from both clusters."""
        return sum(reader.bytes_read for reader in self._readers)

    @property
    def fraction(self) -> float:
        """How much of the source's log is compared, from 0 to 1."""
        start, end = self.plan.source_log
        return (
            1.0 if self.is_done or end <= start else max(0, self.tally.source_offset - start) / (end - start)
        )

    def run(self, source: Cluster, destination: Cluster) -> PartitionReport:
        """
        Compare, with clusters that belong to this thread.

        Whatever goes wrong is in the report.

        Raises:
            Stopped: By the event.

        """
        ours = self._reader(Side.SOURCE, source, self.plan.source, source.config.isolation_level)
        # Consumers of the copy do not see the aborted transactions of another program.
        committed = IsolationLevel.READ_COMMITTED
        theirs = self._reader(Side.DESTINATION, destination, self.plan.destination, committed)
        self._readers = ours, theirs
        try:
            self._try(LogPair(ours, theirs, self.plan.source_log, self.plan.destination_log))
        except Stopped:
            raise
        except DamagedLog as error:
            self._note_damage(error)
        except ShoalError as error:
            self.failure = error
            self._attempt.reason = str(error)
        finally:
            ours.close()
            theirs.close()
        self._leave_unexplained()
        self.is_done = True
        return self._report()

    def _reader(
        self, side: Side, cluster: Cluster, partition: TopicPartition, isolation_level: IsolationLevel
    ) -> LogReader:
        return self.reader(
            side,
            cluster,
            partition,
            isolation_level,
            patience_s=self._patience_s,
            stop=self._stop,
            options=self._options,
        )

    def _try(self, logs: LogPair) -> None:
        for attempt in range(_MOST_ATTEMPTS):
            try:
                self._compare(logs)
                return
            except BrokerError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE or attempt + 1 == _MOST_ATTEMPTS:
                    raise
                logs.source.forget()
                logs.destination.forget()
                logs = _from_where_they_begin_now(logs)
                self._attempt = _Attempt()

    def _compare(self, logs: LogPair) -> None:
        best: _Attempt | None = None
        is_proven = False
        for proposed in alignments(logs, self.plan.position, self.plan.position_note):
            self._attempt = _Attempt(proposed.alignment)
            self._compare_aligned(proposed.alignment, logs)
            if best is None or self._attempt.differing < best.differing:
                best, is_proven = self._attempt, proposed.is_proven
            if proposed.is_final or not best.differing:
                break
        if best is None:
            return
        # A doubled record is on both sides, too. Another program may have written before a copy, but a few
        # repeated records are no copy: retention may have deleted all that both sides had.
        tally = best.tally
        foreign = tally.extra_before_same if tally.records >= PROVING_ANCHORS else 0
        unlike = best.differing - tally.doubled - foreign
        is_alike = tally.records >= unlike if tally.records else not best.differing
        if not is_proven and logs.start != CommonStart(0, 0) and not is_alike:
            self._attempt = _Attempt()
            raise NotComparable(
                f"{self.plan.position_note}, and from no place on are most records the same on both sides: "
                "retention may have deleted all that both had"
            )
        self._attempt = best
        self._add_doubled(logs)
        self._find_aborted(logs)

    def _add_doubled(self, logs: LogPair) -> None:
        """Count the records that the destination has before the comparison, and the source as well."""
        alignment = self._attempt.alignment
        if alignment is None or alignment.by is Aligned.NOTHING:
            return
        place = CommonStart(alignment.source_offset, alignment.destination_offset)
        for difference in doubled_before(logs, place):
            self.tally.add_difference(difference, (place.source, difference.destination.start))

    def _find_aborted(self, logs: LogPair) -> None:
        """Find out which extra records are aborted transactions of the source."""
        level = logs.source.cluster.config.isolation_level
        differences = self.tally.differences.listed()
        if level is not IsolationLevel.READ_COMMITTED or not differences:
            return
        uncommitted = self._reader(
            Side.SOURCE, logs.source.cluster, self.plan.source, IsolationLevel.READ_UNCOMMITTED
        )
        with closing(uncommitted):
            self._attempt.aborted = aborted_among(differences, logs, uncommitted)

    def _compare_aligned(self, alignment: Alignment, logs: LogPair) -> None:
        place: CommonStart | None = CommonStart(alignment.source_offset, alignment.destination_offset)
        self._attempt.skipped = logs.between(logs.start, place) if place else None
        while place is not None:
            place = self._compare_from(place, logs)
        self._explain(logs)

    def _add(self, finding: AnyFinding) -> None:
        """Count a finding, or keep it until compaction explains it."""
        if isinstance(finding, Finding) and finding.kind is Kind.COMPACTED:
            self._keep(finding)
        else:
            self.tally.add(finding)

    def _keep(self, finding: Finding) -> None:
        attempt = self._attempt
        attempt.records_beside_gaps += sum(each.records for each in (*finding.source, *finding.destination))
        if attempt.records_beside_gaps > MOST_CANDIDATES:
            self.tally.add_not_compared(finding)
        else:
            attempt.beside_gaps.append(finding)
        self.tally.reach(finding)

    def _explain(self, logs: LogPair) -> None:
        """Find out which records the log cleaner has removed; the others differ."""
        findings = self._attempt.beside_gaps
        if findings and self._explains_compaction:
            self._judge(findings, judge(findings, logs, self._mirrored(logs)))
            self._attempt.beside_gaps = []
        self._leave_unexplained()

    def _mirrored(self, logs: LogPair) -> Mirrored:
        behind = self._attempt.not_mirrored
        if behind is None:
            return Mirrored(logs.source_log.end, logs.source_log.end)
        return Mirrored(behind.start, logs.source_log.end, self._free_at_the_end(logs))

    def _free_at_the_end(self, logs: LogPair) -> int:
        """Count the destination's last offsets that neither its own records nor known missing ones take."""
        alignment, end = self._attempt.alignment, logs.destination_log.end
        start = max(self.tally.same_end, alignment.destination_offset if alignment else 0)
        free = end - start - self.tally.behind_same
        last = (each for each in self._attempt.beside_gaps if each.gaps[0] and each.gaps[0].end >= end)
        return max(0, free - sum(part.records for each in last for part in each.source))

    def _leave_unexplained(self) -> None:
        """Judge the other records beside gaps by the sizes of these alone."""
        findings, self._attempt.beside_gaps = self._attempt.beside_gaps, []
        self._judge(findings, possible(findings))

    def _judge(self, findings: Sequence[Finding], verdicts: Sequence[Verdict]) -> None:
        for finding, verdict in zip(findings, verdicts, strict=True):
            if verdict is Verdict.REMOVED:
                self.tally.add_removed(finding)
            elif verdict is Verdict.UNKNOWN:
                self.tally.add_not_compared(finding)
            else:
                self.tally.add(finding.without_gaps())

    def _compare_from(self, place: CommonStart, logs: LogPair) -> CommonStart | None:
        """Compare on from a place; return the next place if both sides diverge, None at their end."""
        rest = logs.between(place, logs.end)
        with ExitStack() as readings:
            source = rest.source.runs(*rest.source_log, crop_at=place.source)
            destination = rest.destination.runs(*rest.destination_log, crop_at=place.destination)
            readings.enter_context(closing(source))
            readings.enter_context(closing(destination))
            sides, until = (rest.source, rest.destination), self.plan.mirrored_until
            for finding in diff(source, destination, sides, start=place, ends=rest.end, mirrored_until=until):
                if not isinstance(finding, Finding):
                    self.tally.add(finding)
                elif finding.kind is Kind.DIVERGED:
                    return self._find_again(finding, logs)
                elif finding.kind is Kind.NOT_MIRRORED:
                    self._attempt.not_mirrored = OffsetRange(finding.source_place, logs.source_log.end)
                else:
                    self._add(finding)
        return None

    def _find_again(self, diverged: Finding, logs: LogPair) -> CommonStart | None:
        """Search on, beyond the look ahead; the records that are stepped over differ."""
        place = CommonStart(diverged.source_place, diverged.destination_place)
        rest = logs.between(place, logs.end)
        met = meet_again(rest)
        if met is None or met.place == place:
            self._give_up(rest)
            return None
        found = met.place
        passed = logs.between(place, found)
        source = passed.source.runs(*passed.source_log)
        destination = passed.destination.runs(*passed.destination_log)
        with closing(source), closing(destination):
            decoders = passed.source, passed.destination
            for finding in diff(
                source, destination, decoders, start=place, ends=passed.end, mirrored_until=_EVERYTHING
            ):
                if isinstance(finding, Finding) and finding.kind is Kind.DIVERGED:
                    self._add_rest(passed, "these were not compared further")
                else:
                    self._add(finding)
        return found

    def _give_up(self, rest: LogPair) -> None:
        source, destination = rest.start
        self._attempt.reason = (
            f"the rest was not compared: the destination has none of the next {LOOK_AHEAD_BATCHES} batches "
            f"from source offset {source} on, at offset {destination} or behind it"
        )
        self._add_rest(rest, "nothing here was found on the other side")

    def _add_rest(self, logs: LogPair, detail: str) -> None:
        records = max(end - start for start, end in (logs.source_log, logs.destination_log))
        difference = Difference(
            DifferenceKind.ALTERED, logs.source_log, logs.destination_log, 0, records, detail=detail
        )
        self.tally.add_difference(difference, logs.start)

    def _note_damage(self, damage: DamagedLog) -> None:
        """Report the rest of that side's log as not compared: nothing behind the damage can be found."""
        self._attempt.reason = str(damage)
        places = {
            Side.SOURCE: (self.tally.source_offset, self.plan.source_log.end),
            Side.DESTINATION: (self.tally.destination_offset, self.plan.destination_log.end),
        }
        ranges = {
            side: OffsetRange(damage.offset, end) if side is damage.side else OffsetRange(reached, reached)
            for side, (reached, end) in places.items()
        }
        lost = ranges[damage.side]
        self.tally.add_difference(
            Difference(
                DifferenceKind.ALTERED,
                ranges[Side.SOURCE],
                ranges[Side.DESTINATION],
                0,
                lost.end - lost.start,
                (damage.side,),
                detail=damage.reason,
            ),
            (lost.start, lost.start),
        )

    def _report(self) -> PartitionReport:
        attempt, tally, skipped = self._attempt, self.tally, self._attempt.skipped
        differences = tuple(
            replace(each, detail=ABORTED) if each.destination in attempt.aborted else each
            for each in tally.differences.listed()
        )
        not_compared = tally.not_compared.listed()
        is_part = not_compared or attempt.reason or has_destination(self.plan.open_transactions)
        otherwise = Outcome.NOT_COMPARED if is_part else Outcome.EQUAL
        outcome = Outcome.DIFFERENT if differences else otherwise
        return PartitionReport(
            self.plan.source,
            self.plan.destination,
            outcome,
            alignment=attempt.alignment,
            records=tally.records,
            batches=tally.batches,
            decoded_records=tally.decoded_records,
            decoded_batches=tally.decoded_batches,
            differences=differences,
            differences_omitted=tally.differences.omitted,
            counts=tally.counts,
            not_compared=not_compared,
            not_compared_omitted=tally.not_compared.omitted,
            removed=tally.removed,
            not_mirrored=attempt.not_mirrored,
            source_skipped=_unless_empty(skipped.source_log) if skipped else None,
            destination_skipped=_unless_empty(attempt.skipped.destination_log) if attempt.skipped else None,
            reached=self._reached(),
            reason=attempt.reason,
            bytes_read=self.bytes_read,
            open_transactions=self.plan.open_transactions,
            may_pass=self.failure is not None and is_transient(self.failure),
        )

    def _reached(self) -> tuple[int, int] | None:
        """Return the offsets up to which both sides were compared, if all that the copy has was."""
        if self._attempt.alignment is None or self._attempt.reason:
            return None
        behind = self._attempt.not_mirrored
        return behind.start if behind else self.plan.source_log.end, self.plan.destination_log.end


def _from_where_they_begin_now(logs: LogPair) -> LogPair:
    """Ask for the log starts, after retention has moved at least one of them."""
    starts = []
    for reader in (logs.source, logs.destination):
        start = list_offsets(reader.cluster, {reader.partition: EARLIEST})[reader.partition]
        if isinstance(start, ShoalError):
            raise start
        starts.append(start)
    return logs.between(CommonStart(*starts), logs.end)


def _unless_empty(offsets: OffsetRange) -> OffsetRange | None:
    return offsets if offsets.start < offsets.end else None

"""
Verify what a running mirror copies, round after round (``--follow``).

Each round compares from where the last one ended to the present ends of both logs. Records that the source
has and the copy has not yet are the mirror's lag, and the next round compares them. A difference is counted
once, and the comparison continues behind it.

A partition that cannot be compared keeps its position. Its rounds become rarer, since each of them may read
all that has come since.

The first round may take hours. So the positions of partitions that are equal count as soon as these are
compared, also if the round is stopped or fails. Those of other partitions wait for the end of the round,
which reports their differences.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from ..client.cluster import Cluster, patiently
from ..client.config import ClientConfig
from ..errors import ConfigError, ShoalError, Stopped
from ..mirroring.model.copy_options import COPY_DEFAULTS, CopyOptions
from ..topic_partition import TopicPartition
from .extent import WHOLE, Extent
from .follow_state import FollowState, VerifiedPartition, read_state, write_state
from .report import DifferenceKind, OffsetRange, Outcome, PartitionReport
from .run import DEFAULT_PATIENCE_S, Interrupting, verify
from .whole_report import VerifyReport

__all__ = ["FollowStatus", "Follower", "PartitionStatus", "Round"]

#: The most rounds that a partition without a comparison is left out of.
_MOST_ROUNDS_OUT = 64

#: The time between two writes of the state within a round.
_WRITE_INTERVAL_S = 10.0

TopicIds = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """
    One partition, as of the last round.

    Attributes:
        records: The number of records that are the same, in all rounds and those of the state.
        batches: The number of the source's batches that are the same.
        differing: The number of records that differ, by kind.
        lag: The source's offsets that were not compared at the end of the round: those that the copy did
            not have, and all behind ``reached`` if the partition could not be compared. None if unknown.
        reached: The offsets of both sides up to which both were compared; None if nowhere yet.
        problem: Why the last round did not compare all of it; None if it did.

    """

    records: int = 0
    batches: int = 0
    differing: Mapping[DifferenceKind, int] = field(default_factory=dict)
    lag: int | None = None
    reached: tuple[int, int] | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class FollowStatus:
    """
    All partitions, as of the last round.

    Attributes:
        partitions: The partitions, by those of the source.
        rounds: The number of rounds that ended.
        failed_rounds: The number of rounds that an error ended.
        bytes_read: The number of bytes read from both clusters.
        round_s: The duration of the last round.
        last_round_at: When it ended, in seconds since 1970; None before the first.

    """

    partitions: Mapping[TopicPartition, PartitionStatus] = field(default_factory=dict)
    rounds: int = 0
    failed_rounds: int = 0
    bytes_read: int = 0
    round_s: float = 0.0
    last_round_at: float | None = None

    @property
    def outcome(self) -> Outcome:
        """Different if any record ever differed; else not compared if a partition is not; else equal."""
        if any(sum(each.differing.values()) for each in self.partitions.values()):
            return Outcome.DIFFERENT
        if any(each.problem for each in self.partitions.values()):
            return Outcome.NOT_COMPARED
        return Outcome.EQUAL


@dataclass(frozen=True, slots=True)
class Round:
    """
    The result of a round.

    Attributes:
        report: The report of its comparison.
        status: All partitions after it.
        news: Sentences about differences and problems that no earlier round had.

    """

    report: VerifyReport
    status: FollowStatus
    news: tuple[str, ...]


class Follower:
    """
    Verifies in rounds. One thread calls :meth:`round`; others may read :attr:`status`.

    Attributes:
        status: The state after the last round.

    """

    def __init__(
        self,
        source: ClientConfig,
        destination: ClientConfig,
        topics: Callable[[], Mapping[str, str]],
        *,
        group: str | None = None,
        rules: Set[str] | None = None,
        options: CopyOptions = COPY_DEFAULTS,
        patience_s: float = DEFAULT_PATIENCE_S,
        extent: Extent = WHOLE,
        state: str | None = None,
    ) -> None:
        """
        Read the state, if there is one.

        Args:
            source: How to reach the source cluster.
            destination: How to reach the destination cluster.
            topics: Returns the destination's names by the source's, at each round.
            group, rules, options, patience_s: See :func:`~shoal.verify.run.verify`.
            extent: Where partitions without a position begin.
            state: The file that keeps the positions; None keeps them in memory.

        Raises:
            ConfigError: The file cannot be read, or is no state.

        """
        self.status = FollowStatus()
        self._source, self._destination = source, destination
        self._topics = topics
        self._group, self._rules = group, rules
        self._options, self._patience_s = options, patience_s
        self._extent = extent
        self._file = state
        self._clusters: TopicIds | None = None
        self._ids: Mapping[str, TopicIds] = {}
        self._verified: dict[TopicPartition, VerifiedPartition] = {}
        #: Problems that were reported, and for how many rounds a partition is left out.
        self._problems: dict[TopicPartition, tuple[str, ...]] = {}
        self._rests: dict[TopicPartition, tuple[int, int]] = {}
        found = read_state(state) if state is not None else None
        if found is not None:
            self._clusters, self._verified = found.clusters, dict(found.partitions)

    def round(self, stop: threading.Event, interrupting: Interrupting = nullcontext) -> Round:
        """
        Compare what has come since the last round.

        Args:
            stop: Ends the comparison of partitions.
            interrupting: Surrounds each block in which this thread waits for brokers, such as to plan.

        Raises:
            ConfigError: The state is about other clusters.
            ShoalError: A cluster does not answer, or the state cannot be written. The positions are those of
                the last round, but for partitions that were compared and are equal.
            Stopped: By the event; likewise.

        """
        equal: dict[TopicPartition, VerifiedPartition] = {}
        try:
            return self._round(stop, interrupting, equal)
        except ShoalError as error:
            self._verified |= equal
            if isinstance(error, Stopped):
                self._write()
            else:
                self.status = replace(self.status, failed_rounds=self.status.failed_rounds + 1)
            raise

    def _write(self, equal: Mapping[TopicPartition, VerifiedPartition] | None = None) -> None:
        """Write the state, with the partitions of a round that has not ended."""
        if self._file is not None and self._clusters is not None:
            write_state(self._file, FollowState(self._clusters, {**self._verified, **(equal or {})}))

    def _round(
        self,
        stop: threading.Event,
        interrupting: Interrupting,
        equal: dict[TopicPartition, VerifiedPartition],
    ) -> Round:
        with interrupting():
            topics = self._topics()
            clusters, self._ids = self._ask_ids(topics)
        news = list(self._check_ids(topics, clusters))
        resting = {each for each, (left, _) in self._rests.items() if left > 0}

        write_at = time.monotonic() + _WRITE_INTERVAL_S

        def check(_: object) -> None:
            nonlocal write_at
            if stop.is_set():
                raise Stopped
            if equal and time.monotonic() >= write_at:
                self._write(equal)
                write_at = time.monotonic() + _WRITE_INTERVAL_S

        def note(report: PartitionReport) -> None:
            if report.outcome is not Outcome.EQUAL or report.reached is None:
                return
            if not self._lost(report) and not self._skipped(report):
                equal[report.source] = self._after(report, report.reached, {})

        report = verify(
            self._source,
            self._destination,
            topics,
            group=self._group,
            rules=self._rules,
            on_progress=check,
            options=self._options,
            patience_s=self._patience_s,
            extent=self._extent,
            reached={source: each.reached for source, each in self._verified.items()},
            left_out=resting,
            on_partition=note,
            interrupting=interrupting,
        )
        reported = {each.source for each in report.partitions}
        partitions = {
            # A partition that is selected no longer has no lag, and its differences stay.
            source: each if source in reported | resting else replace(each, lag=None, problem=None)
            for source, each in self.status.partitions.items()
        }
        for each in report.partitions:
            if each.source in resting:
                continue
            news += self._news(each)
            partitions[each.source] = self._taken(each)
        for source in resting:
            left, size = self._rests[source]
            self._rests[source] = left - 1, size
        # They count in the positions of their reports.
        equal.clear()
        self._write()
        self.status = replace(
            self.status,
            partitions=partitions,
            rounds=self.status.rounds + 1,
            bytes_read=self.status.bytes_read + report.bytes_read,
            round_s=report.elapsed_s,
            last_round_at=time.time(),
        )
        return Round(report, self.status, tuple(news))

    # Topics that are not those of the last round

    def _ask_ids(self, topics: Mapping[str, str]) -> tuple[TopicIds, dict[str, TopicIds]]:
        """Return the ids of both clusters, and those of the topics by the source's names."""
        with Cluster(self._source) as ours, Cluster(self._destination) as theirs:
            patiently(lambda: ours.refresh(topics), patience_s=self._patience_s)
            patiently(lambda: theirs.refresh(topics.values()), patience_s=self._patience_s)
            return (ours.metadata.cluster_id, theirs.metadata.cluster_id), {
                name: (_topic_id(ours, name), _topic_id(theirs, other)) for name, other in topics.items()
            }

    def _check_ids(self, topics: Mapping[str, str], clusters: TopicIds) -> Iterator[str]:
        """Forget the positions of topics that were created again, and yield a sentence about each."""
        if self._clusters is not None and self._clusters != clusters:
            former = f"the clusters {self._clusters[0]} and {self._clusters[1]}"
            present = f"{clusters[0]} and {clusters[1]}"
            if self._file is None:
                raise ConfigError(
                    f"the positions of the verification are about {former}, and these are {present}. "
                    "Start it again"
                )
            raise ConfigError(
                f"--state {self._file!r} is about {former}, and these are {present}. Name another file"
            )
        self._clusters = clusters
        for source, each in list(self._verified.items()):
            if source.topic not in topics:
                continue
            is_renamed = each.destination.topic != topics[source.topic]
            if is_renamed or _is_another(each.topic_ids, self._ids[source.topic]):
                del self._verified[source]
                why = "another copy" if is_renamed else "a topic that was created again"
                yield f"{source}: compared from the beginning, since it is {why}"

    # One partition

    def _taken(self, report: PartitionReport) -> PartitionStatus:
        """Take over what a round found in a partition."""
        before = self._verified.get(report.source)
        found = {kind: records for kind, (_, records) in report.counts.items()}
        if report.reached is None:
            self._rest(report)
            # Not added up: the next round finds the same once more.
            differing = _sum(before.differing if before else {}, found)
            records, batches = (before.records, before.batches) if before else (0, 0)
            return PartitionStatus(
                records,
                batches,
                differing,
                self._lag_without(report),
                before.reached if before else None,
                report.reason or (None if report.outcome is Outcome.EQUAL else report.outcome.value),
            )
        self._rests.pop(report.source, None)
        skipped = self._skipped(report)
        lost = self._lost(report)
        if lost:
            # The log was compared as a whole again, which counts the same records once more.
            del self._verified[report.source]
            found[DifferenceKind.MISSING] = max(lost, found.get(DifferenceKind.MISSING, 0))
        after = self._after(report, report.reached, found)
        self._verified[report.source] = after
        behind = report.not_mirrored
        problem = f"{report.not_compared[0]}" if report.not_compared else skipped
        lag = behind.end - behind.start if behind else 0
        return PartitionStatus(after.records, after.batches, after.differing, lag, after.reached, problem)

    def _after(
        self, report: PartitionReport, reached: tuple[int, int], found: Mapping[DifferenceKind, int]
    ) -> VerifiedPartition:
        """Return the position of a partition, with the counts of all rounds."""
        before = self._verified.get(report.source)
        return VerifiedPartition(
            report.destination,
            self._ids.get(report.source.topic, (None, None)),
            reached,
            report.records + (before.records if before else 0),
            report.batches + (before.batches if before else 0),
            _sum(before.differing if before else {}, found),
        )

    def _rest(self, report: PartitionReport) -> None:
        if report.outcome is Outcome.EQUAL or not report.bytes_read:
            return  # the copy has not come so far yet, or a round costs nothing
        _, size = self._rests.get(report.source, (0, 0))
        size = min(_MOST_ROUNDS_OUT, 2 * size or 1)
        self._rests[report.source] = size, size

    def _lag_without(self, report: PartitionReport) -> int | None:
        behind = report.not_mirrored
        return behind.end - behind.start if behind else None

    def _lost(self, report: PartitionReport) -> int:
        """Return how many compared offsets the destination has lost at its end."""
        before = self._verified.get(report.source)
        if before is None or report.reached is None:
            return 0
        return max(0, before.reached[1] - report.reached[1])

    def _skipped(self, report: PartitionReport) -> str | None:
        """Return a sentence if retention has deleted records of either side before they were compared."""
        before = self._verified.get(report.source)
        if before is None or report.alignment is None or self._lost(report):
            return None
        here, there = before.reached
        sides = {
            "source": OffsetRange(here, report.alignment.source_offset),
            "destination": OffsetRange(there, report.alignment.destination_offset),
        }
        gone = [f"{side} offsets {each}" for side, each in sides.items() if each.start < each.end]
        if not gone:
            return None
        return f"not compared: {', '.join(gone)}: retention deleted records there before this round"

    def _news(self, report: PartitionReport) -> Iterator[str]:
        """Yield what no earlier round has reported about a partition."""
        sentences = tuple(f"{report.source}: {each}" for each in (*report.differences, *report.not_compared))
        if report.reason:
            sentences += (f"{report.source}: not compared: {report.reason}",)
        if skipped := self._skipped(report):
            sentences += (f"{report.source}: {skipped}",)
        before = self._verified.get(report.source)
        if report.reached is not None and (lost := self._lost(report)) and before is not None:
            sentences += (
                f"{report.source}: the destination has lost {lost:,} offsets that were compared: its log "
                f"ends at {report.reached[1]}, and ended at {before.reached[1]} before",
            )
        known = self._problems.get(report.source, ())
        if report.reached is None:
            self._problems[report.source] = sentences
        else:
            self._problems.pop(report.source, None)
        yield from (each for each in sentences if each not in known)


def _sum(one: Mapping[DifferenceKind, int], other: Mapping[DifferenceKind, int]) -> dict[DifferenceKind, int]:
    return {
        kind: one.get(kind, 0) + other.get(kind, 0) for kind in DifferenceKind if kind in one or kind in other
    }


def _topic_id(cluster: Cluster, name: str) -> str | None:
    topic = cluster.metadata.topics.get(name)
    return str(topic.topic_id) if topic is not None and topic.topic_id is not None else None


def _is_another(before: TopicIds, now: TopicIds) -> bool:
    return any(
        one is not None and other is not None and one != other for one, other in zip(before, now, strict=True)
    )

"""Compare all partitions, a few at a time."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias

from ..client.cluster import Cluster, is_transient
from ..client.config import ClientConfig
from ..client.over_partitions import over_partitions
from ..errors import ConfigError
from ..mirroring.model.copy_options import COPY_DEFAULTS, CopyOptions
from .across import with_misrouted
from .extent import WHOLE, Extent
from .findings import Difference, DifferenceKind, NotCompared, OffsetRange
from .partition import Assignment, PartitionComparison
from .plan import PartitionPlan, Plan, make_plan
from .report import ComparedCluster, PartitionReport, VerifyProgress, VerifyReport
from .state import NamedPair, VerifiedPartition, VerifyState, read_state, topic_ids, write_state

__all__ = ["DEFAULT_PATIENCE_S", "Compare", "verify"]

#: Compares partitions.
Compare: TypeAlias = Callable[[Sequence[Assignment]], Sequence[PartitionReport]]

#: As long as one request may take.
DEFAULT_PATIENCE_S = 30.0


def verify(
    source: ClientConfig,
    destination: ClientConfig,
    topics: Mapping[str, str],
    *,
    group: str | None = None,
    rules: Set[str] | None = None,
    on_progress: Callable[[VerifyProgress], object] | None = None,
    options: CopyOptions = COPY_DEFAULTS,
    patience_s: float = DEFAULT_PATIENCE_S,
    earlier: VerifyState | None = None,
    extent: Extent = WHOLE,
    draw: random.Random | None = None,
    state: str | None = None,
    compare: Compare | None = None,
) -> VerifyReport:
    """
    Compare topics with their mirrors: batch by batch, and record by record if batches are not the same.

    Everything up to the end offsets at the start is read once, on both sides. If there are differences, parts
    of the logs are read once more to explain them. Memory is bounded: each side of a thread has two buffers
    of 4 MiB, one decoded batch, and after a difference up to 65,536 records to look ahead.

    Args:
        source: How to reach the source cluster. With its ``isolation_level``
            ``READ_COMMITTED``, aborted batches are not expected at the destination.
        destination: How to reach the destination cluster.
        topics: The destination's names by the source's.
        group: The mirror's consumer group on the source cluster, whose positions
            have the offsets at which both sides begin; None for the default group.
        rules: The rules that the mirror may have had (``MirrorOptions.rules``):
            a partition that was mirrored by other rules is not compared. None
            to accept any.
        on_progress: Called a few times a second, in this thread.
        options: The limits for decoding a batch. A larger batch is not compared
            if its bytes are not the same.
        patience_s: How long to retry transient errors.
        earlier: The state of an earlier comparison, which this one continues.
        extent: The part of each partition to compare.
        draw: Places the ranges of a sample; random by default.
        state: The file that keeps how far partitions are equal. The comparison continues there, and writes
            the file when it ends. The extent is for partitions that are not in it.
        compare: Compares the partitions elsewhere, such as on Spark, without progress. None for threads of
            this process.

    Raises:
        ConfigError: The file is no state, or that of other clusters; or a topic is its own copy.
        ShoalError: A cluster does not answer. Errors of one partition are
            in its report.

    """
    started, at = time.monotonic(), datetime.now(UTC)
    is_renamed = any(name != copy for name, copy in topics.items())
    source = source.kept_by(destination, topics.__getitem__ if is_renamed else None)
    before = read_state(state) if state is not None else earlier
    if extent.until is not None and extent.until.timestamp_ms is not None:
        source.check_creations(topics, extent.until.timestamp_ms)
    with Cluster(source) as ours, Cluster(destination) as theirs:
        plan = make_plan(ours, theirs, topics, group=group, rules=rules, patience_s=patience_s)
        clusters = [ComparedCluster(each.metadata.cluster_id, each.config.servers) for each in (ours, theirs)]
        ids = topic_ids(ours, theirs, topics)
    found = (clusters[0].cluster_id, clusters[1].cluster_id)
    _check_two_logs(found, topics)
    known = VerifyState(found) if before is None else before.of_topics(topics, ids)
    known.check_clusters(found, state)
    draw = draw or random.Random()  # noqa: S311 - a sample, not a secret
    assignments = [
        _assigned(each, known.by_source.get(each.source), extent, draw) for each in plan.partitions
    ]
    compare = compare or _in_threads(source, destination, options, patience_s, on_progress)
    # The largest first: a small one is soon done while the last large one ends.
    compared = list(compare(sorted(assignments, key=lambda each: each.offsets, reverse=True)))
    after = known.with_equal(_equal(compared, ids))
    if state is not None:
        write_state(state, after)
    found_gone = [_with_deleted(each, known.by_source.get(each.source)) for each in compared]
    reports = [*found_gone, *_not_compared(plan)]
    with Cluster(source) as ours, Cluster(destination) as theirs:
        reports = with_misrouted(reports, ours, theirs, options=options, patience_s=patience_s)
    return VerifyReport(
        plan.group,
        tuple(sorted(reports, key=lambda report: report.source)),
        (*plan.warnings, *_created_again(before, known), *_isolation_warning(reports)),
        time.monotonic() - started,
        None if extent.is_whole else str(extent),
        f"{at:%Y-%m-%dT%H:%M:%SZ}",
        clusters[0],
        clusters[1],
        after,
    )


def _check_two_logs(clusters: NamedPair, topics: Mapping[str, str]) -> None:
    """
    Refuse to compare a topic with itself: it is equal, whatever became of its copy.

    Raises:
        ConfigError: Both clusters are the same, and a topic has the name of its copy.

    """
    itself = [name for name, copy in topics.items() if name == copy]
    if itself and clusters[0] is not None and clusters[0] == clusters[1]:
        raise ConfigError(
            f"source and destination are the same cluster ({clusters[0]}), so topic {itself[0]} would be "
            "compared with itself. Correct the addresses, or name the copies by --rename"
        )


def _assigned(
    plan: PartitionPlan, equal: VerifiedPartition | None, extent: Extent, draw: random.Random
) -> Assignment:
    """Return the comparison of a partition, or of its records behind those that are known to be equal."""
    if equal is None:
        return Assignment(plan, extent, draw.random())
    return Assignment(plan.after(equal.reached))


def _equal(reports: Sequence[PartitionReport], ids: Mapping[str, NamedPair]) -> Iterator[VerifiedPartition]:
    """Yield the positions of partitions that are equal up to there."""
    for each in reports:
        if each.reached is not None and not each.differences and not each.not_compared:
            both = ids.get(each.source.topic, (None, None))
            yield VerifiedPartition(each.source, each.destination, both, each.reached)


def _with_deleted(report: PartitionReport, before: VerifiedPartition | None) -> PartitionReport:
    """Add to a report the records that retention deleted on either side since the last comparison."""
    if before is None or report.alignment is None:
        return report
    here, there = before.reached
    source = OffsetRange(here, max(here, report.alignment.source_offset))
    destination = OffsetRange(there, max(there, report.alignment.destination_offset))
    records = max(source.end - source.start, destination.end - destination.start)
    if not records:
        return report
    why = "retention deleted records there before they were compared"
    gone = NotCompared(source, destination, records, why)
    return replace(report, not_compared=(gone, *report.not_compared))


def _in_threads(
    source: ClientConfig,
    destination: ClientConfig,
    options: CopyOptions,
    patience_s: float,
    on_progress: Callable[[VerifyProgress], object] | None,
) -> Compare:
    """Return the comparison in threads of this process."""

    def compare(assignments: Sequence[Assignment]) -> list[PartitionReport]:
        stop, reports = threading.Event(), list[PartitionReport]()
        comparisons = [
            PartitionComparison(each, options=options, patience_s=patience_s, stop=stop)
            for each in assignments
        ]

        def run(comparison: PartitionComparison, ours: Cluster, theirs: Cluster) -> None:
            reports.append(comparison.run(ours, theirs))

        def report_progress() -> None:
            if on_progress is not None:
                on_progress(_progress(comparisons))

        here = {each.plan.source.topic for each in assignments}
        there = {each.plan.destination.topic for each in assignments}
        over_partitions(
            comparisons,
            run,
            [(source, here), (destination, there)],
            stop=stop,
            patience_s=patience_s,
            on_progress=report_progress,
        )
        return reports

    return compare


def _progress(comparisons: Sequence[PartitionComparison]) -> VerifyProgress:
    sizes = [each.assignment.offsets for each in comparisons]
    read = sum(each.fraction * size for each, size in zip(comparisons, sizes, strict=True))
    return VerifyProgress(
        len(comparisons),
        sum(each.is_done for each in comparisons),
        sum(each.records for each in comparisons),
        sum(each.bytes_read for each in comparisons),
        sum(each.differences for each in comparisons),
        read / sum(sizes) if sum(sizes) else 1.0,
    )


def _not_compared(plan: Plan) -> Iterator[PartitionReport]:
    """Yield the reports of partitions that one side lacks, or that do not answer."""
    for mirrored, error in plan.refused.items():
        yield PartitionReport(*mirrored, reason=str(error), may_pass=is_transient(error))
    for mirrored, log in plan.surplus.items():
        records, why = log.end - log.start, "the source has no such partition"
        if records:
            extra = Difference(DifferenceKind.EXTRA, OffsetRange(0, 0), log, records, detail=why)
            counts = {DifferenceKind.EXTRA: records}
            yield PartitionReport(*mirrored, differences=(extra,), counts=counts)


def _created_again(before: VerifyState | None, known: VerifyState) -> Iterator[str]:
    for source in sorted(set(before.by_source if before else ()) - set(known.by_source)):
        yield (
            f"{source}: compared from the beginning: its topic or its copy was created again since the state "
            "was written, or it has another copy"
        )


def _isolation_warning(reports: Sequence[PartitionReport]) -> Iterator[str]:
    aborted = sum(report.aborted for report in reports)
    if aborted:
        yield (
            f"at least {aborted:,} extra records are aborted transactions of the source: a reader with "
            "isolation.level=read_uncommitted copies them, and that is MirrorMaker 2's default. To compare "
            "such a copy, set isolation.level=read_uncommitted in the file of --from-config"
        )

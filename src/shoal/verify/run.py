"""Compare all partitions, a few at a time."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime
from itertools import chain
from typing import TypeAlias

from ..client.cluster import Cluster, patiently
from ..client.config import ClientConfig
from ..errors import Stopped
from ..mirroring.model.copy_options import COPY_DEFAULTS, CopyOptions
from .extent import WHOLE, Extent
from .findings import Difference, DifferenceKind, OffsetRange
from .misrouted import with_misrouted
from .partition import PartitionComparison
from .plan import Mirrored, PartitionPlan, Plan, make_plan
from .portion import Assignment, PortionComparison, comparison_of
from .report import ComparedCluster, Outcome, PartitionReport, VerifyProgress, VerifyReport
from .state import VerifyState, read_state, topic_ids, write_state

__all__ = ["DEFAULT_PATIENCE_S", "Compare", "verify"]

#: Threads, one partition each. Python walks the batches of one at a time, so
#: more than a few only hide the network's latency.
_MOST_THREADS = 4

_PROGRESS_INTERVAL_S = 0.25

#: The time between two attempts to end the requests of threads whose results are not wanted any more.
_ABORT_INTERVAL_S = 0.1

#: Compares partitions.
Compare: TypeAlias = Callable[[Sequence[Assignment]], Sequence[PartitionReport]]

#: All of a partition, or ranges of it.
_Comparison: TypeAlias = PartitionComparison | PortionComparison

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
    earlier: VerifyReport | None = None,
    extent: Extent = WHOLE,
    draw: random.Random | None = None,
    state: str | None = None,
    compare: Compare | None = None,
) -> VerifyReport:
    """
    Compare topics with their mirrors: batch by batch, and record by record if batches are not the same.

    Everything up to the end offsets at the start is read once, on both sides.
    Batches around a difference may be fetched again. If a topic repeats its
    records and differs, other places look like the beginning. A partition of more than
    65,536 batches is then read once more for each place. Memory is bounded. Each
    side of a thread has two buffers of 4 MiB, and one decoded batch. The look ahead is
    some thousand batches or records.

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
        earlier: A former report. The comparison continues behind the records that it found equal.
        extent: The part of each partition to compare.
        draw: Places the ranges of a sample; random by default.
        state: The file that keeps how far partitions are equal. The comparison continues there, and writes
            the file when it ends. The extent is for partitions that are not in it.
        compare: Compares the partitions elsewhere, such as on Spark, without progress. None for threads of
            this process.

    Raises:
        ConfigError: The file is no state, or that of other clusters.
        ShoalError: A cluster does not answer. Errors of one partition are
            in its report.

    """
    started, at = time.monotonic(), datetime.now(UTC)
    before = read_state(state) if state is not None else None
    with Cluster(source) as ours, Cluster(destination) as theirs:
        plan = make_plan(ours, theirs, topics, group=group, rules=rules, patience_s=patience_s)
        clusters = [ComparedCluster(each.metadata.cluster_id, each.config.servers) for each in (ours, theirs)]
        ids = topic_ids(ours, theirs, topics)
    found = (clusters[0].cluster_id, clusters[1].cluster_id)
    known = VerifyState(found, {}) if before is None else before.of_topics(topics, ids)
    if state is not None:
        known.check_clusters(found, state)
    stop = threading.Event()
    draw = draw or random.Random()  # noqa: S311 - a sample, not a secret
    # The largest first: a small one is soon done while the last large one ends.
    assignments = sorted(
        (
            Assignment(each, WHOLE if each.source in known.partitions else extent, draw.random())
            for each in _behind(plan, earlier, known)
        ),
        key=lambda each: each.offsets,
        reverse=True,
    )
    comparisons = [
        comparison_of(each, options=options, patience_s=patience_s, stop=stop)
        for each in assignments
        if compare is None
    ]

    compared: list[PartitionReport] = []

    def tell_progress() -> None:
        if on_progress is not None:
            on_progress(_progress(comparisons, time.monotonic() - started))

    if compare is None:
        _compare_all(comparisons, source, destination, patience_s, stop, tell_progress, compared)
    else:
        compared = list(compare(assignments))
    if state is not None:
        write_state(state, known.after(compared, ids))
        compared = [known.with_deleted(each) for each in compared]
    reports = [*compared, *_refused(plan), *_surplus(plan)]
    if any(report.differences for report in reports):
        with Cluster(source) as ours, Cluster(destination) as theirs:
            reports = with_misrouted(reports, ours, theirs, options=options, patience_s=patience_s)
    return VerifyReport(
        plan.group,
        tuple(sorted(reports, key=lambda report: report.source)),
        (*plan.warnings, *_created_again(before, known), *_isolation_warning(reports)),
        time.monotonic() - started,
        None if extent.is_whole else str(extent),
        f"{at:%Y-%m-%dT%H:%M:%SZ}",
        *clusters,
    )


def _behind(plan: Plan, earlier: VerifyReport | None, known: VerifyState) -> Iterator[PartitionPlan]:
    """Yield the plans of all partitions, from where an earlier comparison ended."""
    equal = {
        each.source: each.reached
        for each in (earlier.partitions if earlier else ())
        if each.outcome is Outcome.EQUAL and each.reached is not None
    }
    for each in plan.partitions:
        if each.source in known.partitions:
            yield each.after(known.partitions[each.source].reached, needs_position=False)
        else:
            yield each.after(equal[each.source]) if each.source in equal else each


def _created_again(before: VerifyState | None, known: VerifyState) -> Iterator[str]:
    for source in sorted(set(before.partitions if before else ()) - set(known.partitions)):
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


def _compare_all(
    comparisons: Sequence[_Comparison],
    source: ClientConfig,
    destination: ClientConfig,
    patience_s: float,
    stop: threading.Event,
    tell_progress: Callable[[], None],
    compared: list[PartitionReport],
) -> None:
    """Add the report of each comparison to a list, as soon as it ends."""
    if not comparisons:
        return
    queue = deque(comparisons)
    threads = min(_MOST_THREADS, len(queue))
    clusters = [(Cluster(source), Cluster(destination)) for _ in range(threads)]
    with ThreadPoolExecutor(threads, thread_name_prefix="shoal-verify") as pool:
        futures = [pool.submit(_work, queue, *each, patience_s, stop, compared) for each in clusters]
        try:
            while True:
                ended, at_work = wait(futures, _PROGRESS_INTERVAL_S)
                for future in ended:
                    future.result()
                tell_progress()
                if not at_work:
                    return
        finally:
            stop.set()
            # Each request may wait for half a minute. A thread may open one more connection before it ends.
            while wait(futures, 0).not_done:
                for cluster in chain.from_iterable(clusters):
                    cluster.abort()
                wait(futures, _ABORT_INTERVAL_S)


def _size(comparison: _Comparison) -> int:
    start, end = comparison.plan.source_log
    return end - start


def _work(
    queue: deque[_Comparison],
    source: Cluster,
    destination: Cluster,
    patience_s: float,
    stop: threading.Event,
    compared: list[PartitionReport],
) -> None:
    """Compare one partition after the other until none is left, in a thread with connections of its own."""

    def pause(seconds: float) -> None:
        if stop.wait(seconds):
            raise Stopped

    plans = [comparison.plan for comparison in list(queue)]
    here, there = {plan.source.topic for plan in plans}, {plan.destination.topic for plan in plans}
    with source as ours, destination as theirs:
        patiently(lambda: ours.refresh(here), patience_s=patience_s, pause=pause)
        patiently(lambda: theirs.refresh(there), patience_s=patience_s, pause=pause)
        # Not a loop over the queue: other threads take from it too.
        while queue and not stop.is_set():
            try:
                comparison = queue.popleft()
            except IndexError:
                break
            compared.append(comparison.run(ours, theirs))


def _progress(comparisons: Sequence[_Comparison], elapsed_s: float) -> VerifyProgress:
    sizes = [_size(comparison) for comparison in comparisons]
    parts = [part for comparison in comparisons for part in _parts(comparison)]
    read = sum(each.fraction * size for each, size in zip(comparisons, sizes, strict=True))
    return VerifyProgress(
        elapsed_s,
        len(comparisons),
        sum(comparison.is_done for comparison in comparisons),
        sum(part.records for part in parts),
        sum(part.batches for part in parts),
        sum(comparison.bytes_read for comparison in comparisons),
        sum(part.differences for part in parts),
        read / sum(sizes) if sum(sizes) else 1.0,
    )


def _parts(comparison: _Comparison) -> Sequence[PartitionComparison]:
    return comparison.parts if isinstance(comparison, PortionComparison) else (comparison,)


def _refused(plan: Plan) -> list[PartitionReport]:
    return [
        PartitionReport(
            *mirrored, Outcome.NOT_COMPARED, reason=why, may_pass=mirrored in plan.refused_for_now
        )
        for mirrored, why in plan.refused.items()
    ]


def _surplus(plan: Plan) -> list[PartitionReport]:
    """Report the records of partitions that the source does not have."""
    return [_surplus_report(mirrored, log) for mirrored, log in plan.surplus.items() if log.start < log.end]


def _surplus_report(mirrored: Mirrored, log: OffsetRange) -> PartitionReport:
    records = log.end - log.start
    extra = Difference(
        DifferenceKind.EXTRA, OffsetRange(0, 0), log, records, detail="the source has no such partition"
    )
    return PartitionReport(
        *mirrored, Outcome.DIFFERENT, differences=(extra,), counts={DifferenceKind.EXTRA: records}
    )

"""
A comparison in shares for many tasks: partitions, and ranges of offsets of large ones.

Each share finds both of its ends by itself, as a range of a sample does (:mod:`.portion`). Two neighbours
look for the same record, so they find the same place, and nothing lies between them. If a share does not find
its ends, or another place than its neighbour, its partition is compared again as a whole.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..client.cluster import Cluster, patiently
from ..mirroring.model.copy_options import CopyOptions
from .comparison import PartitionComparison
from .extent import Extent
from .plan import PartitionPlan
from .portion import PortionComparison, join_neighbours
from .report import OffsetRange, PartitionReport

__all__ = ["Share", "compare_share", "joined_shares", "shares_of"]

#: Smaller shares cost more to begin than to compare.
_LEAST_OFFSETS = 1_000_000

#: So many shares for each task at once: the last ones end at about the same time.
_SHARES_PER_TASK = 3


@dataclass(frozen=True, slots=True)
class Share:
    """
    The work of one task.

    Attributes:
        number: The index of the partition's plan.
        plan: The partition.
        extent: The part of the partition to compare.
        source: The source's offsets of this share; None for all of the extent.
        seed: Places the ranges of a sample.

    """

    number: int
    plan: PartitionPlan
    extent: Extent
    source: OffsetRange | None
    seed: float


def shares_of(
    plans: Sequence[PartitionPlan],
    extent: Extent,
    draw: random.Random,
    tasks: int,
    least_offsets: int = _LEAST_OFFSETS,
) -> list[Share]:
    """
    Return the shares of a comparison, the largest first.

    Args:
        plans: The partitions.
        extent: The part of each partition to compare.
        draw: Places the ranges of a sample.
        tasks: The number of tasks that run at a time.
        least_offsets: The size of the smallest range of a partition.

    """
    total = sum(plan.source_log.end - plan.source_log.start for plan in plans)
    size = max(least_offsets, total // (tasks * _SHARES_PER_TASK))
    shares = []
    for number, plan in enumerate(plans):
        start, end = plan.source_log
        count = max(1, (end - start) // size) if extent.is_whole else 1
        if count == 1:
            shares.append(Share(number, plan, extent, None, draw.random()))
            continue
        borders = [start + (end - start) * each // count for each in range(count)] + [end]
        shares += [Share(number, plan, extent, OffsetRange(*border), 0.0) for border in pairwise(borders)]
    return sorted(shares, key=_size, reverse=True)


def _size(share: Share) -> int:
    start, end = share.source or share.plan.source_log
    return end - start


def compare_share(
    share: Share, source: Cluster, destination: Cluster, *, options: CopyOptions, patience_s: float
) -> PartitionReport:
    """
    Compare a share, with clusters that belong to this thread.

    Raises:
        ShoalError: A cluster does not answer. Errors of the partition are in its report.

    """
    patiently(lambda: source.refresh([share.plan.source.topic]), patience_s=patience_s)
    patiently(lambda: destination.refresh([share.plan.destination.topic]), patience_s=patience_s)
    stop = threading.Event()
    if share.source is None and share.extent.is_whole:
        whole = PartitionComparison(share.plan, options=options, patience_s=patience_s, stop=stop)
        return whole.run(source, destination)
    return PortionComparison(
        share.plan,
        share.extent,
        options=options,
        patience_s=patience_s,
        stop=stop,
        draw=random.Random(share.seed),  # noqa: S311 - a sample, not a secret
        ranges=None if share.source is None else (share.source,),
    ).run(source, destination)


def joined_shares(
    plans: Sequence[PartitionPlan], results: Sequence[tuple[Share, PartitionReport]]
) -> tuple[list[PartitionReport], list[PartitionPlan]]:
    """
    Join the reports of shares.

    Returns:
        The reports of partitions, and the plans of those that have to be compared as a whole.

    """
    reports, again = [], []
    for number, plan in enumerate(plans):
        own = [each for each in results if each[0].number == number]
        own.sort(key=lambda each: each[0].source or plan.source_log)
        if len(own) == 1 and own[0][0].source is None:
            reports.append(own[0][1])
            continue
        neighbours = _neighbours([report for _, report in own], plan.source_log.end)
        if neighbours is None:
            again.append(plan)
            continue
        joined = join_neighbours(plan, neighbours)
        reports.append(replace(joined, bytes_read=sum(report.bytes_read for _, report in own)))
    return reports, again


def _neighbours(reports: Sequence[PartitionReport], log_end: int) -> list[PartitionReport] | None:
    """Return the reports that follow each other up to the copy's end; None if there is a gap between two."""
    found: list[PartitionReport] = []
    end = (0, 0)
    for report in reports:
        if found and (found[-1].not_mirrored is not None or end[0] >= log_end):
            break  # the copy ends there, or this share went on to the ends of both logs
        if not report.ranges:
            if report.reason is None and found:
                found.append(report)  # the copy ends before it
                continue
            return None
        place = report.ranges[0].source.start, report.ranges[0].destination.start
        if found and place != end:
            return None
        end = report.ranges[0].source.end, report.ranges[0].destination.end
        found.append(report)
    return found

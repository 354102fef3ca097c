"""Inspect all partitions of a cluster's topics, a few at a time, with the client alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from ..client.cluster import Cluster, patiently
from ..client.config import ClientConfig
from ..client.logs import ask_logs
from ..client.over_partitions import over_partitions
from ..errors import ShoalError
from ..topic_partition import TopicPartition
from .advice import advise
from .facts import Facts
from .options import InspectOptions
from .reading import PartitionPlan, read_all, read_sample
from .report import ClusterReport, NotInspected
from .topic_report import Inspected, TopicReport
from .transactions import open_transactions

__all__ = ["InspectProgress", "inspect"]

_PATIENCE_S = 30.0

#: The partitions of a topic in which batches are decompressed for the ratio.
_RATIO_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class InspectProgress:
    """
    The progress of an inspection.

    Attributes:
        elapsed_s: The time since its start.
        partitions: The number of partitions.
        done: The number of partitions that were read.
        batches: The number of batches that were counted.
        size: Their size in bytes.

    """

    elapsed_s: float
    partitions: int
    done: int
    batches: int
    size: int


def inspect(
    source: ClientConfig,
    topics: Iterable[str],
    options: InspectOptions,
    *,
    on_progress: Callable[[InspectProgress], object] | None = None,
    now_ms: int | None = None,
) -> ClusterReport:
    """
    Inspect topics.

    Args:
        source: How to reach the cluster.
        topics: The names of the topics.
        options: The options.
        on_progress: Called a few times a second, in this thread.
        now_ms: The time to compare timestamps with; the present by default.

    Raises:
        ShoalError: The cluster does not answer. Errors of one partition are in the report.

    """
    started = time.monotonic()
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    names = sorted(topics)
    with Cluster(source) as cluster:
        plans, failures = plan_partitions(cluster, names, options)
        cluster_name = str(cluster)
    work = _Work(source, options, now_ms, plans)

    def report_progress() -> None:
        if on_progress is not None:
            done, found = len(work.inspected) + len(work.failures), work.found
            batches, size = sum(each.batches for each in found), sum(each.size for each in found)
            on_progress(InspectProgress(time.monotonic() - started, len(plans), done, batches, size))

    work.run(report_progress)
    by_topic = groupby(
        sorted(work.inspected, key=lambda each: each.partition), lambda each: each.partition.topic
    )
    reports = tuple(TopicReport.of([*parts], now_ms) for _, parts in by_topic)
    return ClusterReport(
        cluster=cluster_name,
        now_ms=now_ms,
        is_sample=not options.all,
        topics=reports,
        not_inspected=tuple(sorted([*failures, *work.failures], key=lambda each: each.partition)),
        findings=advise(reports, now_ms),
        elapsed_s=time.monotonic() - started,
    )


def plan_partitions(
    cluster: Cluster, topics: Sequence[str], options: InspectOptions
) -> tuple[list[PartitionPlan], list[NotInspected]]:
    """
    Ask for the offsets of all partitions of topics.

    Returns:
        The partitions to read, and those whose leader refuses or does not answer.

    """
    patiently(lambda: cluster.refresh(topics), patience_s=_PATIENCE_S)
    partitions = [
        TopicPartition(topic, number)
        for topic in topics
        if topic in cluster.metadata.topics
        for number in sorted(cluster.metadata.topics[topic].partitions)
    ]
    plans, failures = [], []
    for each, log in ask_logs(cluster, partitions, _PATIENCE_S).items():
        if isinstance(log, ShoalError):
            failures.append(NotInspected(each, str(log)))
        else:
            plans.append(PartitionPlan(each, log, _ratio_quota(each, options)))
    missing = [each for each in topics if each not in cluster.metadata.topics]
    failures += [
        NotInspected(TopicPartition(each, 0), "no such topic, or no DESCRIBE on it") for each in missing
    ]
    return plans, failures


def _ratio_quota(partition: TopicPartition, options: InspectOptions) -> int:
    """Return how many batches of a partition are decompressed: the topic's number, over a few partitions."""
    share, more = divmod(options.ratio_batches, _RATIO_PARTITIONS)
    return share + (partition.partition < more) if partition.partition < _RATIO_PARTITIONS else 0


class _Work:
    """Reads partitions in threads, and has their results."""

    def __init__(
        self, source: ClientConfig, options: InspectOptions, now_ms: int, plans: Sequence[PartitionPlan]
    ) -> None:
        self._source = source
        self._options = options
        self._now_ms = now_ms
        self._plans = sorted(plans, key=lambda plan: plan.log.start - plan.log.end)
        self._stop = threading.Event()
        self._facts: dict[TopicPartition, Facts] = {}
        self.inspected: list[Inspected] = []
        self.failures: list[NotInspected] = []

    @property
    def found(self) -> list[Facts]:
        """The facts about each partition so far."""
        return list(self._facts.values())

    def run(self, report_progress: Callable[[], None]) -> None:
        """Read all partitions."""
        over_partitions(
            self._plans,
            self._read,
            [(self._source, {plan.partition.topic for plan in self._plans})],
            stop=self._stop,
            patience_s=_PATIENCE_S,
            on_progress=report_progress,
        )

    def _read(self, plan: PartitionPlan, cluster: Cluster) -> None:
        def attempt() -> Inspected:
            facts = self._facts.get(plan.partition)
            if facts is not None:
                cluster.refresh([plan.partition.topic])
            if facts is None or not self._options.all:
                # A sample begins again after an error: its runs follow from each other.
                self._facts[plan.partition] = facts = Facts(self._now_ms)
            if self._options.all:
                read_all(cluster, plan, facts, self._stop.is_set)
            else:
                read_sample(cluster, plan, facts, self._options.sample, self._stop.is_set)
            opened = open_transactions(cluster, plan, self._now_ms)
            return Inspected(plan.partition, plan.log.end - plan.log.start, facts, opened)

        try:
            self.inspected.append(patiently(attempt, patience_s=_PATIENCE_S))
        except ShoalError as error:
            self.failures.append(NotInspected(plan.partition, str(error)))

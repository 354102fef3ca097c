"""Inspect all partitions of a cluster's topics, a few at a time, with the client alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..client.cluster import Cluster, patiently
from ..client.config import ClientConfig
from ..client.offsets import ask_logs
from ..client.over_partitions import over_partitions
from ..errors import ShoalError
from ..topic_partition import TopicPartition
from .advice import advise
from .facts import Facts
from .options import InspectOptions
from .reading import PartitionPlan, PartitionReading
from .report import ClusterReport, NotInspected
from .transactions import open_transactions

__all__ = ["InspectProgress", "inspect"]

_PATIENCE_S = 30.0

#: The batches of a partition that are decompressed for the ratio, and in how many partitions of a topic.
_RATIO_BATCHES, _RATIO_PARTITIONS = 2, 4


@dataclass(frozen=True, slots=True)
class InspectProgress:
    """
    The progress of an inspection.

    Attributes:
        partitions: The number of partitions.
        done: The number of partitions that were read.
        batches: The number of batches that were counted.
        size: Their size in bytes.

    """

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
        plans, refused = plan_partitions(cluster, names)
        cluster_name = str(cluster)
    stop, facts, failures = threading.Event(), dict[TopicPartition, Facts](), list(refused)

    def read_one(plan: PartitionPlan, cluster: Cluster) -> None:
        def attempt() -> None:
            counts = facts.get(plan.partition)
            if counts is not None:
                cluster.refresh([plan.partition.topic])
            if counts is None or options.sample is not None:
                # A sample begins again after an error: its runs follow from each other.
                counts = facts[plan.partition] = Facts(plan.partition.topic, now_ms)
            PartitionReading(cluster, plan, counts, stop.is_set).read(options.sample)
            counts.open_transactions = open_transactions(cluster, plan, now_ms)
            counts.end(plan.log.end - plan.log.start)

        try:
            patiently(attempt, patience_s=_PATIENCE_S)
        except ShoalError as error:
            facts.pop(plan.partition, None)
            failures.append(NotInspected(plan.partition, str(error)))

    def report_progress() -> None:
        if on_progress is not None:
            seen = list(facts.values())
            done = sum(each.partitions for each in seen) + len(failures) - len(refused)
            batches, size = sum(each.batches for each in seen), sum(each.size for each in seen)
            on_progress(InspectProgress(len(plans), done, batches, size))

    over_partitions(
        sorted(plans, key=lambda plan: plan.log.start - plan.log.end),
        read_one,
        [(source, {plan.partition.topic for plan in plans})],
        stop=stop,
        patience_s=_PATIENCE_S,
        on_progress=report_progress,
    )
    found: dict[str, Facts] = {}
    for partition in sorted(facts):
        found.setdefault(partition.topic, Facts(partition.topic, now_ms)).add(facts[partition])
    topics_found = tuple(found.values())
    return ClusterReport(
        cluster=cluster_name,
        now_ms=now_ms,
        is_sample=options.sample is not None,
        topics=topics_found,
        not_inspected=tuple(sorted(failures, key=lambda each: each.partition)),
        findings=advise(topics_found),
        elapsed_s=time.monotonic() - started,
    )


def plan_partitions(
    cluster: Cluster, topics: Sequence[str]
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
            plans.append(PartitionPlan(each, log, _RATIO_BATCHES * (each.partition < _RATIO_PARTITIONS)))
    missing = [each for each in topics if each not in cluster.metadata.topics]
    failures += [
        NotInspected(TopicPartition(each, 0), "no such topic, or no DESCRIBE on it") for each in missing
    ]
    return plans, failures

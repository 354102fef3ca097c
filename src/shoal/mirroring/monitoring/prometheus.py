"""
The registry in Prometheus's text format: ``/metrics``.

docs/metrics.md explains each metric.
"""

from __future__ import annotations

import importlib.metadata
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from ...printable import printable
from ...topic_partition import TopicPartition
from ..model.processes import ProcessUsage
from ..model.steering_status import SteeringStatus
from .door import Answer, Route
from .followed import Followed
from .metrics import Metrics
from .partition_metrics import PartitionMetrics, PartitionStatus

__all__ = ["Exposition", "metrics_routes"]

_PARTITION = ("topic", "partition")

_Family = CounterMetricFamily | GaugeMetricFamily
_Partitions = Mapping[TopicPartition, PartitionMetrics]
_LocalProcesses = Callable[[], Iterable[ProcessUsage]]


def metrics_routes(metrics: Metrics, local_processes: _LocalProcesses) -> Mapping[str, Route]:
    """Return the route of the metrics; it reads the driver's and its JVMs' usage at each scrape."""
    exposition = Exposition(metrics, local_processes)
    return {"/metrics": lambda: Answer(exposition.text(), {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})}


class Exposition:
    """The answer to a scrape."""

    def __init__(self, metrics: Metrics, local_processes: _LocalProcesses) -> None:
        self._metrics = metrics
        self._local_processes = local_processes
        self._own_process = ProcessCollector(registry=None)
        self._version = importlib.metadata.version("shoal")
        self._lock = threading.Lock()
        self._cached: tuple[int, bytes] | None = None

    def text(self) -> bytes:
        """Return the current text."""
        with self._lock:
            of_partitions = self._text_of_partitions()
        processes = [*self._local_processes(), *self._metrics.workers()]
        others = [
            _incidents(self._metrics),
            _last_report(self._metrics),
            _clusters(self._metrics),
            *_of_followed(self._metrics.followed),
            *_steering(self._metrics.steering),
            _build(self._version),
            *_consumer_groups(self._metrics),
            *_of_processes(processes),
            *self._own_process.collect(),
        ]
        return of_partitions + generate_latest(_Families(others))

    def _text_of_partitions(self) -> bytes:
        # The text of a thousand partitions takes 0.1 s to write, so idle partitions are written once.
        version = self._metrics.version
        if self._cached is not None and self._cached[0] == version:
            return self._cached[1]
        partitions = self._metrics.shown_partitions()
        text = generate_latest(_Families(_of_partitions(partitions, time.time())))
        lag_grows = any(each.unmirrored_since is not None for each in partitions.values())
        self._cached = None if lag_grows else (version, text)
        return text


class _Families(Collector):
    """A collector of given metrics, for prometheus_client's encoder."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _of_partitions(partitions: _Partitions, now: float) -> Iterator[Metric]:
    def each_partition(family: _Family, value: Callable[[PartitionMetrics], float | None]) -> Metric:
        for (topic, partition), metrics in partitions.items():
            if (known := value(metrics)) is not None:
                family.add_metric((printable(topic), str(partition)), known)
        return family

    def counter(name: str, meaning: str, value: Callable[[PartitionMetrics], float]) -> Metric:
        return each_partition(CounterMetricFamily(f"shoal_{name}", meaning, labels=_PARTITION), value)

    def gauge(name: str, meaning: str, value: Callable[[PartitionMetrics], float | None]) -> Metric:
        return each_partition(GaugeMetricFamily(f"shoal_{name}", meaning, labels=_PARTITION), value)

    yield counter("records", "Records that the destination has acknowledged.", lambda each: each.records)
    yield counter("batches", "Batches that the destination has acknowledged.", lambda each: each.batches)
    yield counter("fetched_bytes", "Bytes of batches fetched from the source.", lambda each: each.bytes_in)
    yield counter(
        "produced_bytes",
        "Bytes of batches that the destination has acknowledged.",
        lambda each: each.bytes_out,
    )
    yield counter("retries", "Waits and new attempts after errors.", lambda each: each.retries)
    yield _decisions(partitions)
    yield gauge(
        "lag_records", "Offsets of the source that are not mirrored yet.", lambda each: each.lag_records
    )
    yield gauge(
        "held_back_records",
        "Offsets between the source's last stable offset and its high watermark, held back by transactions.",
        lambda each: each.held_back,
    )
    yield gauge(
        "lag_seconds",
        "Upper bound for the age of the oldest record that is not mirrored yet.",
        lambda each: each.lag_s(now),
    )
    yield gauge(
        "last_commit_timestamp_seconds",
        "Unix time of the last commit of the position.",
        lambda each: each.committed_at,
    )
    yield gauge(
        "partition_waiting",
        "1 if the partition waits for a temporary problem to end, else 0.",
        lambda each: each.waits_for is not None,
    )
    yield gauge(
        "partition_stopped",
        "1 if the partition is stopped until an operator acts, else 0.",
        lambda each: each.stopped is not None,
    )
    yield _states(partitions)


def _decisions(partitions: _Partitions) -> Metric:
    family = CounterMetricFamily(
        "shoal_decisions",
        "Batches by decision: copied unchanged, rebuilt, cropped or dropped.",
        labels=(*_PARTITION, "decision"),
    )
    for (topic, partition), metrics in partitions.items():
        for decision, count in metrics.decisions.items():
            family.add_metric((printable(topic), str(partition), decision), count)
    return family


def _states(partitions: _Partitions) -> Metric:
    counts = Counter(each.state for each in partitions.values())
    family = GaugeMetricFamily("shoal_partitions", "Partitions by state.", labels=("state",))
    for state in PartitionStatus:
        family.add_metric((state.value,), counts[state])
    return family


def _incidents(metrics: Metrics) -> Metric:
    family = CounterMetricFamily(
        "shoal_incidents",
        "Incidents by kind: foreign records in the copy, or records that were lost.",
        labels=("kind",),
    )
    for kind, count in metrics.incidents().items():
        family.add_metric((kind.value,), count)
    return family


def _last_report(metrics: Metrics) -> Metric:
    family = GaugeMetricFamily(
        "shoal_last_report_timestamp_seconds", "Unix time of the last report of any task.", labels=()
    )
    if (reported_at := metrics.last_report_at) is not None:
        family.add_metric((), reported_at)
    return family


def _clusters(metrics: Metrics) -> Metric:
    family = GaugeMetricFamily(
        "shoal_cluster_up", "1 if the cluster answers, 0 if no broker of it does.", labels=("cluster",)
    )
    for name, silence in metrics.clusters.items():
        family.add_metric((name,), silence is None)
    return family


def _of_followed(followed: Followed) -> Iterator[Metric]:
    differing = GaugeMetricFamily(
        "shoal_follow_differing",
        "Topics or ACLs that differ between both clusters, at the last comparison.",
        labels=("kind", "synced"),
    )
    compared_at = GaugeMetricFamily(
        "shoal_follow_last_comparison_timestamp_seconds",
        "Unix time of the last comparison of configurations or ACLs.",
        labels=("kind",),
    )
    for follower, done in followed.rounds().items():
        differing.add_metric((follower.value, str(done.is_synced).lower()), done.differing)
        compared_at.add_metric((follower.value,), done.at_s)
    yield from (differing, compared_at)


def _steering(status: SteeringStatus | None) -> Iterator[Metric]:
    if status is None:
        return
    paused = GaugeMetricFamily("shoal_topics_paused", "Topics that are paused.", labels=())
    paused.add_metric((), len(status.paused))
    yield paused
    limit = GaugeMetricFamily(
        "shoal_limit_bytes_per_second", "Limit of the bytes that the mirror fetches.", labels=()
    )
    if status.limit is not None:
        limit.add_metric((), status.limit)
    yield limit


def _consumer_groups(metrics: Metrics) -> Iterator[Metric]:
    status = metrics.groups
    if status is None:
        return
    groups = GaugeMetricFamily(
        "shoal_consumer_groups", "Consumer groups whose committed offsets follow the records.", labels=()
    )
    groups.add_metric((), status.groups)
    yield groups
    untranslated = GaugeMetricFamily(
        "shoal_consumer_groups_untranslated",
        "Consumer groups in the last translation of which no offset can be translated.",
        labels=(),
    )
    untranslated.add_metric((), status.untranslated)
    yield untranslated
    offsets = GaugeMetricFamily(
        "shoal_consumer_group_offsets",
        "Committed offsets in the last translation, by exactness.",
        labels=("exactness",),
    )
    for exactness, count in status.offsets.items():
        offsets.add_metric((exactness,), count)
    yield offsets
    actions = GaugeMetricFamily(
        "shoal_consumer_group_actions",
        "Committed offsets in the last translation, by action.",
        labels=("action",),
    )
    for action, count in status.actions.items():
        actions.add_metric((action,), count)
    yield actions
    last = GaugeMetricFamily(
        "shoal_consumer_groups_timestamp_seconds",
        "Unix time of the last translation that succeeded.",
        labels=(),
    )
    if status.at is not None:
        last.add_metric((), status.at)
    yield last


def _build(version: str) -> Metric:
    family = InfoMetricFamily("shoal_build", "The version of shoal.")
    family.add_metric((), {"version": version})
    return family


def _of_processes(processes: Iterable[ProcessUsage]) -> Iterator[Metric]:
    labels = ("process", "role")
    cpu = CounterMetricFamily(
        "shoal_process_cpu_seconds",
        "User and system CPU time since the mirror's start, by process.",
        labels=labels,
    )
    memory = GaugeMetricFamily(
        "shoal_process_resident_memory_bytes", "Resident memory, by process.", labels=labels
    )
    gc_time = CounterMetricFamily(
        "shoal_jvm_gc_seconds",
        "Time in garbage collection pauses since the mirror's start, by JVM.",
        labels=labels,
    )
    gc_pauses = CounterMetricFamily(
        "shoal_jvm_gc_collections",
        "Garbage collection pauses since the mirror's start, by JVM.",
        labels=labels,
    )
    for each in processes:
        of_process = (each.name, each.role.value)
        cpu.add_metric(of_process, each.cpu_s)
        memory.add_metric(of_process, each.rss_bytes)
        if each.gc is not None:
            gc_time.add_metric(of_process, each.gc.time_s)
            gc_pauses.add_metric(of_process, each.gc.pauses)
    yield from (cpu, memory, gc_time, gc_pauses)

"""The partitions that a mirror copies, as of now; and a running mirror, as its parts share it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ...topic_partition import TopicPartition
from ..control import ControlServer
from ..model.incidents import IncidentKind
from ..model.options import MirrorOptions
from ..model.reports import SmallBatches, TaskReport
from ..monitoring.metrics import Metrics
from ..prepare.changes import PreparedTopic

__all__ = ["PartitionSchedule", "Running"]


class PartitionSchedule:
    """The topics of a mirror, and the state of their partitions. For any thread.

    Implements :class:`~..control.DriverEvents`.

    Attributes:
        on_news: Called when there is something else to copy, from any thread.
        on_stopped: Called when a partition has stopped, from any thread.

    """

    def __init__(
        self,
        topics: Mapping[str, PreparedTopic],
        metrics: Metrics,
        *,
        shares: bool = False,
        on_small_batches: Callable[[SmallBatches], object] = lambda _: None,
    ) -> None:
        """
        Begin with the prepared topics.

        Args:
            topics: The topics by their names at the source.
            metrics: The counts of the tasks' reports.
            shares: Whether this mirror copies only the partitions that :meth:`take` adds.
            on_small_batches: Called once, with the first finding of a task.

        """
        self._lock = threading.Lock()
        self._topics = dict(topics)
        self._metrics = metrics
        self._records: dict[TopicPartition, int] = {}
        self._share: frozenset[TopicPartition] | None = frozenset() if shares else None
        self._on_small_batches = on_small_batches
        self._has_small_batches = False
        self.on_news: Callable[[], object] = lambda: None
        self.on_stopped: Callable[[], object] = lambda: None

    @property
    def topics(self) -> dict[str, PreparedTopic]:
        """The topics, by their names at the source."""
        with self._lock:
            return dict(self._topics)

    @property
    def names(self) -> dict[str, str]:
        """The destination's names by the source's."""
        return {name: topic.destination for name, topic in self.topics.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """The number of partitions of each source topic."""
        return {name: topic.partitions for name, topic in self.topics.items()}

    def add(self, topic: PreparedTopic) -> list[TopicPartition]:
        """Add a topic that is new, or has new partitions; return these."""
        with self._lock:
            known = self._topics.get(topic.source)
            self._topics[topic.source] = topic
        first = known.partitions if known else 0
        added = [TopicPartition(topic.source, number) for number in range(first, topic.partitions)]
        self._metrics.expect({}, dict.fromkeys(added, 0))
        self.on_news()
        return added

    def take(self, topics: Mapping[str, PreparedTopic], partitions: Iterable[TopicPartition]) -> None:
        """Add partitions that the group assigned to this mirror."""
        added = set(partitions)
        with self._lock:
            self._topics |= topics
            self._share = (self._share or frozenset()) | added
        self._metrics.expect({}, dict.fromkeys(added, 0))
        self.on_news()

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that the group revoked."""
        with self._lock:
            self._share = (self._share or frozenset()) - set(partitions)

    def apply(self, report: TaskReport) -> None:
        """Count what a task, or the driver itself, reports."""
        self._metrics.apply(report)
        with self._lock:
            is_first = report.small_batches is not None and not self._has_small_batches
            self._has_small_batches |= is_first
        if is_first and report.small_batches is not None:
            self._on_small_batches(report.small_batches)
        if any(each.stopped for each in report.partitions):
            self.on_stopped()

    def has(self, partition: TopicPartition) -> bool:
        """Whether the group has not revoked a partition."""
        with self._lock:
            return self._share is None or partition in self._share

    def takeable(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those that a task may take now: neither stopped nor revoked."""
        now = self._metrics.partitions()
        stopped = {each for each, known in now.items() if known.stopped and not known.is_tried_again}
        return [each for each in partitions if each not in stopped and self.has(each)]

    def take_weights(self) -> dict[TopicPartition, int]:
        """Return the amount of work of each partition: its records since the last call, and its lag."""
        now = self._metrics.partitions()
        before = self._records
        self._records = {partition: each.counts.records for partition, each in now.items()}
        return {
            partition: each.counts.records - before.get(partition, 0) + (each.lag_records or 0)
            for partition, each in now.items()
        }

    def copies(self) -> dict[TopicPartition, TopicPartition]:
        """Return the partitions that are not stopped: the destination partition by source partition."""
        partitions = self._metrics.partitions().items()
        names = self.names
        return {
            partition: TopicPartition(names[partition.topic], partition.partition)
            for partition, each in partitions
            if not each.stopped and partition.topic in names and self.has(partition)
        }

    def try_again(self, partitions: Iterable[TopicPartition], accepted: IncidentKind | None = None) -> None:
        """Have stopped partitions copied again; they may continue once after an incident of this kind."""
        self._metrics.try_again(partitions, accepted)
        self.on_news()

    def take_due(
        self, interval_s: float, *, requested: bool, now: float | None = None
    ) -> list[TopicPartition]:
        """
        Have stopped partitions copied again, each once for each time that it stopped; return these.

        A reason may heal (:attr:`PartitionStopped.can_heal`): a missing ACL, a record that the destination's
        configuration refuses, a damaged batch. After an incident (foreign records, a loss, a reset) only a
        policy lets the partition continue. Such a partition is tried again only if an operator requests it.

        Args:
            interval_s: The time from a stop to the attempt.
            requested: Whether an operator requests it now, for all.
            now: Unix time.

        """
        since = (time.time() if now is None else now) - interval_s
        due = [
            partition
            for partition, each in self._metrics.partitions().items()
            if each.stopped is not None
            and not each.is_tried_again
            and (requested or (each.stopped.can_heal and each.stopped_at <= since))
        ]
        if due:
            self.try_again(due)
        return due

    def accepted(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, IncidentKind]:
        """Return the accepted kinds of partitions that have neither continued nor stopped since."""
        now = self._metrics.partitions()
        return {each: kind for each in partitions if each in now and (kind := now[each].accepted) is not None}

    def held_up(self) -> list[TopicPartition]:
        """Return the partitions that wait, or are stopped or paused: no task reports their ends."""
        paused = self._metrics.steering.paused
        return [
            partition
            for partition, each in self._metrics.partitions().items()
            if each.is_held_up or partition.topic in paused
        ]

    def in_trouble(self) -> dict[TopicPartition, str]:
        """Return the partitions that wait, with the reason that they reported last."""
        partitions = self._metrics.partitions().items()
        return {partition: each.waiting_for for partition, each in partitions if each.waiting_for}


@dataclass(frozen=True, slots=True)
class Running:
    """
    A mirror that has its group and listens for tasks.

    Attributes:
        options: Its options.
        group: The consumer group on the source cluster.
        schedule: Its partitions.
        metrics: Its counts.
        control: The connection to its tasks.
        warn: A function for warnings; from any thread.
        warn_in_report: The same, for those that stay on the page and in the report.
        notify: A function for sentences that are no problem.

    """

    options: MirrorOptions
    group: str
    schedule: PartitionSchedule
    metrics: Metrics
    control: ControlServer
    warn: Callable[[str], object]
    warn_in_report: Callable[[str], object]
    notify: Callable[[str], object]

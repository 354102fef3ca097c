"""The partitions that a mirror copies, as of now."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ...errors import PartitionStopped
from ...topic_partition import TopicPartition
from ..model.incidents import IncidentKind
from ..model.progress import PartitionIncident
from ..model.reports import SmallBatches, TaskReport
from ..monitoring.metrics import Metrics
from ..prepare.changes import PreparedTopic

__all__ = ["PartitionSchedule", "Plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """
    The partitions to copy now.

    Attributes:
        topics: For each source topic its name at the destination, and the number of partitions there.
        excluded: Source partitions that are stopped.
        weights: The recent amount of work of each source partition that had any.
        share: The source partitions of this mirror, if it shares its group with others; None for all.
        streams: The number of tasks, at most those that can run at a time; None for as many as are of use.

    """

    topics: Mapping[str, tuple[str, int]]
    excluded: frozenset[TopicPartition] = frozenset()
    weights: Mapping[TopicPartition, int] = field(default_factory=dict)
    share: frozenset[TopicPartition] | None = None
    streams: int | None = None

    def includes(self, partition: TopicPartition) -> bool:
        """Whether the plan has a source partition, if the partition exists."""
        return partition not in self.excluded and (self.share is None or partition in self.share)


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
        streams: int | None = None,
        on_small_batches: Callable[[SmallBatches], object] = lambda _: None,
    ) -> None:
        """
        Begin with the prepared topics.

        Args:
            topics: The topics by their names at the source.
            metrics: The counts of the tasks' reports.
            shares: Whether this mirror copies only the partitions that :meth:`take` adds.
            streams: See :class:`Plan`.
            on_small_batches: Called once, with the first finding of a task.

        """
        self._lock = threading.Lock()
        self._topics = dict(topics)
        self._metrics = metrics
        self._records: dict[TopicPartition, int] = {}
        #: The kind that an operator accepts once, and the very stop that the operator saw.
        self._accepted: dict[TopicPartition, tuple[IncidentKind, PartitionStopped]] = {}
        self._share: frozenset[TopicPartition] | None = frozenset() if shares else None
        self._streams = streams
        self._on_small_batches = on_small_batches
        self._has_small_batches = False
        self.on_news: Callable[[], object] = lambda: None
        self.on_stopped: Callable[[], object] = lambda: None

    @property
    def names(self) -> dict[str, str]:
        """The destination's names by the source's."""
        with self._lock:
            return {name: topic.destination for name, topic in self._topics.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """The number of partitions of each source topic."""
        with self._lock:
            return {name: topic.partitions for name, topic in self._topics.items()}

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
            for each in report.partitions if self._accepted else ():
                if any(incident.continued for incident in each.counters.incidents):
                    self._accepted.pop(each.partition, None)
            is_first = report.small_batches is not None and not self._has_small_batches
            self._has_small_batches |= is_first
        if is_first and report.small_batches is not None:
            self._on_small_batches(report.small_batches)
        if any(each.stopped for each in report.partitions):
            self.on_stopped()

    def count(self, incident: PartitionIncident) -> None:
        """Count an incident that no task reports."""
        self._metrics.count(incident)

    def has(self, partition: TopicPartition) -> bool:
        """Whether the group has not revoked a partition."""
        with self._lock:
            return self._share is None or partition in self._share

    def takeable(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those that a task may take now: neither stopped nor revoked."""
        now = self._metrics.partitions()
        stopped = {each for each, known in now.items() if known.stopped and not known.is_tried_again}
        return [each for each in partitions if each not in stopped and self.has(each)]

    def plan(self) -> Plan:
        """Plan what to copy; a partition weighs its records since the last plan, and its lag."""
        now = self._metrics.partitions()
        records = {partition: each.records for partition, each in now.items()}
        weights = {
            partition: each.records - self._records.get(partition, 0) + (each.lag_records or 0)
            for partition, each in now.items()
        }
        self._records = records
        with self._lock:
            topics = {name: (topic.destination, topic.partitions) for name, topic in self._topics.items()}
            share, streams = self._share, self._streams
        return Plan(
            topics,
            frozenset(name for name, each in now.items() if each.stopped and not each.is_tried_again),
            {partition: weight for partition, weight in weights.items() if weight},
            share,
            streams,
        )

    def copies(self) -> dict[TopicPartition, TopicPartition]:
        """Return the partitions that are not stopped: the destination partition by source partition."""
        partitions = self._metrics.partitions().items()
        names = self.names
        return {
            partition: TopicPartition(names[partition.topic], partition.partition)
            for partition, each in partitions
            if not each.stopped and partition.topic in names and self.has(partition)
        }

    def try_again(self, partitions: Iterable[TopicPartition]) -> None:
        """Have stopped partitions copied again."""
        self._metrics.try_again(partitions)
        self.on_news()

    def accept(self, partitions: Iterable[TopicPartition], kind: IncidentKind) -> None:
        """Have stopped partitions copied again, which may continue once after an incident of this kind."""
        now = self._metrics.partitions()
        with self._lock:
            for partition in partitions:
                stopped = now[partition].stopped
                if stopped is not None:
                    self._accepted[partition] = kind, stopped
        self.try_again(partitions)

    def accepted(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, IncidentKind]:
        """Return the accepted kinds of partitions that have neither continued nor stopped since."""
        now = self._metrics.partitions()
        with self._lock:
            self._accepted = {
                partition: (kind, stopped)
                for partition, (kind, stopped) in self._accepted.items()
                if partition in now and now[partition].stopped is stopped
            }
            return {each: self._accepted[each][0] for each in partitions if each in self._accepted}

    def held_up(self) -> list[TopicPartition]:
        """Return the partitions that wait, or are stopped or paused: no task reports their ends."""
        steering = self._metrics.steering
        paused = frozenset() if steering is None else steering.paused
        return [
            partition
            for partition, each in self._metrics.partitions().items()
            if each.waiting_for or each.stopped or partition.topic in paused
        ]

    def expect(self, ends: Mapping[TopicPartition, int]) -> None:
        """Report the ends of partitions."""
        self._metrics.expect({}, ends)

    def in_trouble(self) -> dict[TopicPartition, str]:
        """Return the partitions that wait, with the reason that they reported last."""
        partitions = self._metrics.partitions().items()
        return {partition: each.waiting_for for partition, each in partitions if each.waiting_for}

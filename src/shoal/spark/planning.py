"""Plan, on the driver, the offsets that each task reads."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql.datasource import InputPartition

from shoal.client.cluster import Cluster, is_transient, patiently
from shoal.client.coordinator import MemberId
from shoal.client.metadata import leader_in
from shoal.client.offsets import EARLIEST, list_offsets, log_end_offsets
from shoal.client.reachable import check_advertised
from shoal.errors import ConfigError, PartitionStopped, ShoalError
from shoal.mirroring.assignment import (
    assign_tasks,
    doubted_sources,
    partitions_of,
    plan_ranges,
    start_offsets,
    tasks_worth_having,
)
from shoal.mirroring.model.position import MirrorPosition
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.positions import GroupPositions
from shoal.mirroring.prepare.copies import compare_copies
from shoal.spark.options import OffsetBound, ReadOptions
from shoal.topic_partition import TopicPartition

__all__ = ["PATIENCE_S", "Planner", "Starts", "TaskPartition", "leaders_of", "reference_rows"]

#: The time for which a plan waits for brokers that do not respond.
PATIENCE_S = 60.0


class TaskPartition(InputPartition):
    """The ranges of one task. Spark pickles them on the driver and unpickles them in the task."""

    def __init__(self, ranges: Sequence[CopyRange]) -> None:
        super().__init__(tuple(ranges))


class Starts:
    """
    The start offsets of partitions without a position, which a mirror looks up once.

    ``latest`` must not move on, so the planner keeps the offsets. A partition that is created later is
    mirrored from its beginning. So is a topic that was deleted and created again: the old topic's offsets
    have no meaning for it.

    """

    def __init__(self, begin_at: OffsetBound) -> None:
        self._begin_at = begin_at
        self._offsets: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, uuid.UUID | None] = {}
        self._first: frozenset[TopicPartition] | None = None

    @property
    def has_looked(self) -> bool:
        """Whether :meth:`look` has been called."""
        return self._first is not None

    def look(
        self,
        cluster: Cluster,
        partitions: Sequence[TopicPartition],
        there: Sequence[TopicPartition] | None = None,
    ) -> list[TopicPartition]:
        """
        Drop the offsets of topics that are gone or replaced; return the partitions without a known start.

        Args:
            cluster: The source cluster, with metadata of the partitions.
            partitions: The partitions to read.
            there: At the first call, the partitions that exist already; by default ``partitions``.

        """
        topics = cluster.metadata.topics
        changed = {
            topic
            for topic, topic_id in self._topic_ids.items()
            if topic not in topics or topics[topic].topic_id != topic_id
        }
        self._offsets = {each: start for each, start in self._offsets.items() if each.topic not in changed}
        if self._first is None:
            self._first = frozenset(partitions if there is None else there)
        self._first = frozenset(each for each in self._first if each.topic not in changed)
        self._topic_ids = {topic: topics[topic].topic_id for topic in {each.topic for each in partitions}}
        return [each for each in partitions if each not in self._offsets]

    def begin_at(
        self, unknown: Sequence[TopicPartition]
    ) -> Iterator[tuple[OffsetBound, list[TopicPartition]]]:
        """Yield the offsets to look up: for partitions of the first look, then for the others."""
        first = self._first or frozenset()
        yield self._begin_at, [each for each in unknown if each in first]
        yield OffsetBound(EARLIEST), [each for each in unknown if each not in first]

    def add(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Add start offsets."""
        self._offsets |= offsets

    def __getitem__(self, partition: TopicPartition) -> int:
        return self._offsets[partition]

    def __contains__(self, partition: object) -> bool:
        return partition in self._offsets


def reference_rows(partition: InputPartition) -> Iterator[tuple[str, int, int, int]]:
    """Yield the rows by reference of one task. Runs in the task."""
    for each in partition.value or ():
        yield (each.topic, each.partition, each.start_offset, each.end_offset)


class Planner:
    """Plans tasks from the clusters' metadata and offsets. Runs on the driver."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def batch(self, cluster: Cluster) -> list[list[CopyRange]]:
        """Return the ranges of each task between the options' offsets; wait for brokers that are down."""
        check_advertised(cluster)  # for the error; if brokers are down now, the plan waits for them

        def plan() -> list[list[CopyRange]]:
            partitions = self.partitions(cluster)
            starts = self.bounds(cluster, partitions, self._options.starting)
            ends = self._ends(cluster, partitions)
            return self.tasks(cluster, starts, ends)

        return patiently(plan, patience_s=PATIENCE_S)

    def partitions(self, cluster: Cluster) -> list[TopicPartition]:
        """
        Return the existing partitions that the options select.

        Raises:
            ConfigError: The options name a topic that does not exist.

        """
        options = self._options
        if options.topics is None:
            found = partitions_of(cluster, sorted({each.topic for each in options.assigned}))
            return [each for each in options.assigned if each in found]
        selected = options.topics.select(cluster.refresh().topics)
        missing = options.topics.missing(selected)
        if missing:
            raise ConfigError(f"topics {', '.join(missing)} are not on {cluster}")
        return partitions_of(cluster, list(selected))

    def bounds(
        self, cluster: Cluster, partitions: Sequence[TopicPartition], offsets: OffsetBound
    ) -> dict[TopicPartition, int]:
        """Return each partition's offset for an option, such as ``latest``."""
        level = cluster.config.isolation_level
        bounds = start_offsets(cluster, partitions, offsets.timestamp_ms, level)
        for partition, offset in (offsets.named or {}).items():
            if partition in bounds:
                named = (
                    start_offsets(cluster, [partition], offset, level)[partition] if offset < 0 else offset
                )
                bounds[partition] = named
        return bounds

    def _ends(self, cluster: Cluster, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """
        Return each partition's end; refuse or move those behind the log's end (``failOnDataLoss``).

        A task takes a log that ends before its range for one that has lost its tail.

        Raises:
            ConfigError: A log ends before the option's offset, and ``failOnDataLoss`` is set.

        """
        ends = self.bounds(cluster, partitions, self._options.ending)
        named = [each for each, offset in (self._options.ending.named or {}).items() if offset >= 0]
        for partition, log_end in log_end_offsets(cluster, [each for each in named if each in ends]).items():
            if isinstance(log_end, ShoalError):
                if is_transient(log_end):
                    raise log_end
                continue  # a broker before Kafka 2.3, of which a task does not learn the log's end, either
            if self._options.fail_on_data_loss and log_end < ends[partition]:
                raise ConfigError(
                    f"option endingOffsets: the log of {partition} on {cluster} ends at offset {log_end}, "
                    f"before {ends[partition]}. Name an offset up to {log_end}, or set failOnDataLoss=false "
                    "to read up to there"
                )
            ends[partition] = min(ends[partition], log_end)
        return ends

    def tasks(
        self,
        cluster: Cluster,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> list[list[CopyRange]]:
        """
        Return the tasks for the offsets between starts and ends; positions of the group replace starts.

        Raises:
            PartitionStopped: The source no longer has an offset, and ``failOnDataLoss`` is set.

        """
        options = self._options
        destinations = self.destinations(cluster, {each.topic for each in ends})
        if options.group is None:
            ranges = plan_ranges(starts, ends, {}, destinations)
            ranges = [each for each in ranges if each.start_offset < each.end_offset]
            self._check_present(cluster, ranges)
            return assign_tasks(ranges, options.tasks, self._source_leaders(cluster, ranges))
        state = GroupPositions(cluster, options.group, MemberId).read_state(ends)
        positions, starts = state.positions, {**starts, **state.starts}
        next_offsets = {partition: position.source_offset for partition, position in positions.items()}
        destination_config = options.destination
        if destination_config is None:
            ranges = plan_ranges(starts, ends, next_offsets, destinations)
            leaders = self._source_leaders(cluster, ranges)
        else:
            with Cluster(destination_config) as destination:
                destination.refresh(destinations.values())
                doubted = self._doubted(destination, positions, destinations)
                doubted += doubted_sources(cluster, positions, ends)
                ranges = plan_ranges(starts, ends, next_offsets, destinations, doubted)
                leaders = {each.source: leaders_of(each, cluster, destination) for each in ranges}
        return assign_tasks(ranges, tasks_worth_having(len(ranges), leaders, options.tasks), leaders)

    @staticmethod
    def _doubted(
        destination: Cluster,
        positions: Mapping[TopicPartition, MirrorPosition],
        destinations: Mapping[str, str],
    ) -> list[TopicPartition]:
        """
        Return the partitions whose copy differs from their position, or was not seen: they need a task.

        The task waits for the copy's leader, and finds out whether the records are its own or those of
        another program.
        """
        copies = {each: TopicPartition(destinations[each.topic], each.partition) for each in positions}
        return list(compare_copies(destination, positions, copies))

    def destinations(self, cluster: Cluster, topics: set[str]) -> dict[str, str]:
        """Return the names of topics at the destination, by those at the source."""
        mapping = TopicSelection("(.*)", rename=self._options.rename)
        known = cluster.metadata.topics
        return mapping.select({name: known[name] for name in topics if name in known})

    def _check_present(self, cluster: Cluster, ranges: list[CopyRange]) -> None:
        """Refuse or move starts that are before the log start offset (``failOnDataLoss``)."""
        earliest = list_offsets(cluster, dict.fromkeys([each.source for each in ranges], EARLIEST))
        for index, each in enumerate(ranges):
            begins = earliest[each.source]
            if isinstance(begins, ShoalError):
                raise begins
            if each.start_offset >= begins:
                continue
            if self._options.fail_on_data_loss:
                raise PartitionStopped(
                    *each.source,
                    each.start_offset,
                    f"{cluster} deleted the offsets before {begins}. Set failOnDataLoss=false to continue "
                    "from there",
                )
            ranges[index] = each._replace(start_offset=min(begins, each.end_offset))

    @staticmethod
    def _source_leaders(
        cluster: Cluster, ranges: Sequence[CopyRange]
    ) -> dict[TopicPartition, tuple[int, int]]:
        return {each.source: (cluster.partition(each.source).leader, -1) for each in ranges}


def leaders_of(each: CopyRange, source: Cluster, destination: Cluster) -> tuple[int, int]:
    """Return the leaders on both sides by the clusters' metadata; -1 for both if one has no leader."""
    source_leader = leader_in(source.known, each.source)
    destination_leader = leader_in(destination.known, each.destination)
    # The task waits for a leader.
    if source_leader is None or destination_leader is None:
        return -1, -1
    return source_leader, destination_leader

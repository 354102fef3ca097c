"""Plan, on the driver, the offsets that each task reads: of an archive, one task for each object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.datasource import InputPartition

from shoal.client.cluster import Cluster, is_transient, patiently
from shoal.client.offsets import EARLIEST, list_offsets, log_end_offsets
from shoal.client.reachable import check_advertised
from shoal.errors import ConfigError, PartitionStopped, ShoalError
from shoal.mirroring.assignment import (
    Wanted,
    assign_tasks,
    partitions_of,
    start_offsets,
)
from shoal.mirroring.model.ranges import CopyRange
from shoal.spark.options import OffsetBound, ReadOptions
from shoal.topic_partition import TopicPartition

__all__ = ["PATIENCE_S", "Planner"]

#: The time for which a plan waits for brokers that do not respond.
PATIENCE_S = 60.0


class Planner:
    """Plans tasks from the clusters' metadata and offsets. Runs on the driver."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def batch(self, cluster: Cluster) -> list[InputPartition]:
        """Return the ranges of each task between the options' offsets; wait for brokers that are down."""
        check_advertised(cluster)  # for the error; if brokers are down now, the plan waits for them

        def plan() -> list[InputPartition]:
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
        bounds = start_offsets(cluster, partitions, offsets.timestamp_ms)
        for partition, offset in (offsets.named or {}).items():
            if partition in bounds:
                looked_up = {} if offset >= 0 else start_offsets(cluster, [partition], offset)
                bounds[partition] = looked_up.get(partition, offset)
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
    ) -> list[InputPartition]:
        """
        Return the tasks, each with its ranges between starts and ends: of an archive, one for each object.

        Raises:
            PartitionStopped: The source no longer has an offset, and ``failOnDataLoss`` is set.

        """
        ranges = [
            CopyRange(*partition, partition.topic, starts[partition], end)
            for partition, end in sorted(ends.items())
            if starts[partition] < end
        ]
        self._check_present(cluster, ranges)
        pieces = self._options.source.pieces(
            {each.source: (each.start_offset, each.end_offset) for each in ranges}
        )
        if pieces is not None:
            return [InputPartition((CopyRange(*each, each.topic, *piece),)) for each, *piece in pieces]
        wanted = [
            Wanted(each, (cluster.partition(each.source).leader, -1), each.end_offset - each.start_offset)
            for each in ranges
        ]
        return [InputPartition(tuple(each)) for each in assign_tasks(wanted, self._options.tasks)]

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

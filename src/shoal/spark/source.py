"""
Plan on the driver, and read in the tasks: the source half of ``format("shoal")``.

PySpark has limits of a micro-batch since 4.2; 4.0 and 4.1 call ``latestOffset()`` without arguments. If the
real classes are missing, those here have their names and fields, so that the reader's signatures are the
same. A reader for all versions has ``latestOffset(self, start=None, limit=None)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyspark
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from shoal.client.cluster import Cluster, patiently
from shoal.client.offsets import EARLIEST
from shoal.client.scan import read_decided
from shoal.errors import ConfigError
from shoal.mirroring.assignment import end_offsets, partitions_of, start_offsets
from shoal.records import RecordBatch
from shoal.spark.options import ReadOptions
from shoal.spark.planning import PATIENCE_S, Planner
from shoal.spark.rows import RowKind
from shoal.topic_partition import TopicPartition

__all__ = ["BatchReader", "StreamReader"]

#: Whether PySpark passes the start and the limit of a micro-batch.
HAS_LIMITS = True

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ModuleNotFoundError:
        HAS_LIMITS = False

        class ReadLimit:
            """Stand-in for PySpark's base class of limits."""

        @dataclass
        class ReadAllAvailable(ReadLimit):
            """Stand-in for PySpark's limit that allows all available offsets."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """Stand-in for PySpark's limit by rows."""

            max_rows: int

        class SupportsTriggerAvailableNow:
            """Stand-in for PySpark's mark of readers for ``Trigger.AvailableNow``."""


T = TypeVar("T")


def _rows(partition: InputPartition, options: ReadOptions) -> Iterator[Any]:
    """Yield the rows of one task. Runs in the task."""
    if not partition.value:
        return
    with Cluster(options.source) as cluster:
        cluster.refresh({each.topic for each in partition.value})
        for each in partition.value:
            offsets = range(each.start_offset, each.end_offset)
            batches = _batches(cluster, each.source, offsets, options.rows)
            yield from options.rows.to_arrow(each.source, batches, offsets)


def _batches(
    cluster: Cluster, partition: TopicPartition, offsets: range, rows: RowKind
) -> Iterator[RecordBatch]:
    """Yield the batches of a run that have a row."""
    level = cluster.config.isolation_level
    behind = offsets.start
    for decision, batch in read_decided(cluster, partition, offsets.start, level):
        header = batch.header
        if rows is RowKind.RECORDS:
            # Each run has the records with its offsets. The offset of an old message is that of the last one
            # inside it.
            decisive = header.base_offset if header.magic == 2 else behind
        else:
            # A batch belongs to the run that has its last offset. So two adjacent runs never both have it.
            decisive = header.last_offset
        if decisive >= offsets.stop:
            break
        behind = header.next_offset
        if rows is RowKind.HEADERS or not decision.is_drop:
            yield batch


class BatchReader(DataSourceReader):
    """
    The reader of ``spark.read``: the records between two offsets of each partition.

    Spark makes it on the driver and pickles it for the tasks, so it contains only options.

    With ``pushFilters``, later queries would lack rows. All queries of a DataFrame share a data source, and
    Spark 4.1 to 4.3 keep the tasks of a filtered query there (``setReadInfo`` of ``PythonScanBuilder``). A
    later query without a filter then reads those tasks. SPARK-58551 (apache/spark#57752) keeps them with the
    query, from Spark 5.0 on. Until then, the options choose the objects.

    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the tasks. Runs once, on the driver."""
        with Cluster(self._options.source) as cluster:
            return Planner(self._options).batch(cluster)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield a task's rows. Runs in the task."""
        return _rows(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """
    The reader of ``spark.readStream``: micro-batches, each up to the end offsets at the time of its plan.

    An offset is ``{"topic": {"0": 23}}``: the first one behind the micro-batch, as in Spark's connector.

    One object serves the whole query, in a process on the driver. Copies of it read in the tasks.

    """

    def __init__(self, options: ReadOptions) -> None:
        if options.max_offsets_per_trigger and not HAS_LIMITS:
            raise ConfigError(
                f"option maxOffsetsPerTrigger: needs PySpark 4.2 or newer, and this is {pyspark.__version__}"
            )
        self._options = options
        self._planner = Planner(options)
        self._available: dict[str, Any] | None = None
        self._last: dict[str, Any] = {}

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of the stream. Spark calls this once for a checkpoint."""

        def ask(cluster: Cluster) -> dict[TopicPartition, int]:
            return self._planner.bounds(cluster, self._planner.partitions(cluster), self._options.starting)

        self._last = _to_json(self._ask(ask))
        return self._last

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of ``maxOffsetsPerTrigger``."""
        limit = self._options.max_offsets_per_trigger
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Keep the present end offsets. The query stops when it has reached them."""
        self._available = self.reportLatestOffset()

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the present end offsets."""
        return _to_json(self._ask(self._ends))

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return the end of the next micro-batch. PySpark before 4.2 passes neither argument."""
        start = self._last if start is None else start
        begins = _from_json(start)
        ends = _from_json(self._available) if self._available is not None else self._ask(self._ends)
        if isinstance(limit, ReadMaxRows):
            ends = _limited(begins, ends, limit.max_rows)
        self._last = _to_json(ends)
        return self._last

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch. Runs on the driver, once for each."""
        begins, ends = _from_json(start), _from_json(end)

        def plan(cluster: Cluster) -> list[InputPartition]:
            partitions_of(cluster, sorted({each.topic for each in ends}))
            return self._planner.tasks(cluster, self._starts_of(cluster, begins, ends), ends)

        return self._ask(plan)

    def _starts_of(
        self,
        cluster: Cluster,
        begins: Mapping[TopicPartition, int],
        wanted: Mapping[TopicPartition, int],
    ) -> Mapping[TopicPartition, int]:
        """Return the start offsets, also of partitions that Spark's log does not have."""
        late = [each for each in wanted if each not in begins]
        # Read later partitions from their beginning.
        return {**begins, **start_offsets(cluster, late, EARLIEST)}

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield a task's rows. Runs in the task."""
        return _rows(partition, self._options)

    def _ends(self, cluster: Cluster) -> dict[TopicPartition, int]:
        partitions = self._planner.partitions(cluster)
        return end_offsets(cluster, partitions)

    def _ask(self, question: Callable[[Cluster], T]) -> T:
        with Cluster(self._options.source) as cluster:
            return patiently(lambda: question(cluster), patience_s=PATIENCE_S)


def _limited(
    begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Cut a micro-batch to about ``most`` offsets, each partition in proportion (at least one)."""
    lengths = {partition: max(0, end - begins.get(partition, 0)) for partition, end in ends.items()}
    total = sum(lengths.values())
    if total <= most:
        return dict(ends)
    return {
        partition: begins.get(partition, 0) + min(length, max(1, length * most // total))
        if length
        else ends[partition]
        for partition, length in lengths.items()
    }


def _to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(number)] = offset
    return by_topic


def _from_json(offsets: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): offset
        for topic, numbers in offsets.items()
        for number, offset in numbers.items()
    }

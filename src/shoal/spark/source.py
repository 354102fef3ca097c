"""Plan on the driver, and read in the tasks: the source half of ``format("shoal")``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from shoal.client.cluster import Cluster, patiently
from shoal.client.groups import Membership
from shoal.client.metadata import TopicPartition
from shoal.client.offsets import EARLIEST, list_offsets
from shoal.errors import BrokerError, ConfigError, PartitionStopped, ShoalError, Stopped
from shoal.mirroring.control import ControlConnection
from shoal.mirroring.plan import (
    deal_lanes,
    end_offsets,
    lanes_worth_having,
    partitions_of,
    plan_ranges,
    start_offsets,
)
from shoal.mirroring.positions import GroupPositions
from shoal.mirroring.ranges import CopyRange
from shoal.mirroring.reading import read_decided
from shoal.mirroring.topics import TopicSelection
from shoal.spark.arrow import ARROW_SCHEMA, to_row
from shoal.spark.options import Offsets, ReadOptions
from shoal.spark.unlocking import unlocked

__all__ = ["BatchReader", "StreamReader"]

T = TypeVar("T")

#: In the offsets of a stream with a group; no topic can have that name.
_SLICE = "#slice"

#: How long a plan waits for brokers that do not answer.
_PATIENCE_S = 60.0

#: Rows with bytes go to the JVM in pieces of about this size.
_ARROW_BYTES = 4 * 1024 * 1024


class Lane(InputPartition):
    """What one task reads: pickled on the driver, unpickled in the task."""

    def __init__(self, ranges: Sequence[CopyRange]) -> None:
        super().__init__(tuple(ranges))


class _Planner:
    """Asks the clusters what there is. Runs on the driver, in a process that Spark makes for it."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self, cluster: Cluster) -> list[TopicPartition]:
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
        self, cluster: Cluster, partitions: Sequence[TopicPartition], offsets: Offsets
    ) -> dict[TopicPartition, int]:
        """Return the offsets that an option stands for."""
        level = cluster.config.isolation_level
        bounds = start_offsets(cluster, partitions, offsets.timestamp_ms, level)
        for partition, offset in (offsets.named or {}).items():
            if partition in bounds:
                named = (
                    start_offsets(cluster, [partition], offset, level)[partition] if offset < 0 else offset
                )
                bounds[partition] = named
        return bounds

    def lanes(
        self,
        cluster: Cluster,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> list[Lane]:
        options = self._options
        destinations = self._destinations(cluster, {each.topic for each in ends})
        positions = {}
        if options.group:
            pairs = GroupPositions(cluster, options.group, Membership).read(ends)
            positions = {partition: pair.source_offset for partition, pair in pairs.items()}
        ranges = plan_ranges(starts, ends, positions, destinations)
        if not options.group:
            ranges = [each for each in ranges if each.start_offset < each.end_offset]
            self._check_present(cluster, ranges)
        leaders = self._leaders(cluster, ranges)
        lanes = lanes_worth_having(len(ranges), leaders, options.lanes) if options.group else options.lanes
        return [Lane(lane) for lane in deal_lanes(ranges, lanes, leaders)]

    def _destinations(self, cluster: Cluster, topics: set[str]) -> dict[str, str]:
        mapping = TopicSelection("(.*)", rename=self._options.rename)
        known = cluster.metadata.topics
        return mapping.select({name: known[name] for name in topics if name in known})

    def _check_present(self, cluster: Cluster, ranges: list[CopyRange]) -> None:
        """Refuse, or move, starts that the log does not reach back to any more (``failOnDataLoss``)."""
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
                    f"{cluster} holds only what is from offset {begins} on; "
                    "failOnDataLoss=false reads on from there",
                )
            ranges[index] = each._replace(start_offset=min(begins, each.end_offset))

    def _leaders(
        self, cluster: Cluster, ranges: Sequence[CopyRange]
    ) -> dict[TopicPartition, tuple[int, int]]:
        destination_config = unlocked(self._options).destination
        if destination_config is None:
            return {each.source: (cluster.partition(each.source).leader, -1) for each in ranges}
        with Cluster(destination_config) as destination:
            destination.refresh({each.destination_topic for each in ranges})
            leaders = {}
            for each in ranges:
                try:
                    pair = (
                        cluster.partition(each.source).leader,
                        destination.partition(each.destination).leader,
                    )
                except BrokerError:
                    pair = (-1, -1)  # without a leader for now; the task waits for it
                leaders[each.source] = pair
            return leaders


def _rows(lane: InputPartition, options: ReadOptions) -> Iterator[Any]:
    """Yield a lane's rows. Runs in the task."""
    if not options.with_bytes:
        for each in lane.value or ():
            yield (each.topic, each.partition, each.start_offset, each.end_offset)
        return
    with Cluster(unlocked(options).source) as cluster:
        cluster.refresh({each.topic for each in lane.value or ()})
        for each in lane.value or ():
            yield from _arrow_batches(cluster, each)


def _arrow_batches(cluster: Cluster, wanted: CopyRange) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    size = 0
    level = cluster.config.isolation_level
    for decision, batch in read_decided(cluster, wanted.source, wanted.start_offset, level):
        # A batch belongs to the run that has its last offset: to one of two neighbours, never to both.
        if batch.header.last_offset >= wanted.end_offset:
            break
        if not decision.is_drop:
            rows.append(to_row(wanted.topic, wanted.partition, batch))
            size += len(batch.view)
        if size >= _ARROW_BYTES:
            yield pa.RecordBatch.from_pylist(rows, schema=ARROW_SCHEMA)
            rows, size = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=ARROW_SCHEMA)


class BatchReader(DataSourceReader):
    """
    ``spark.read``: what there is between two offsets.

    Made on the driver; pickled for the tasks, so it holds nothing but options.

    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the lanes. Runs once, on the driver."""
        options = self._options
        planner = _Planner(options)
        with Cluster(unlocked(options).source) as cluster:

            def plan() -> list[Lane]:
                partitions = planner.partitions(cluster)
                starts = planner.bounds(cluster, partitions, options.starting)
                ends = planner.bounds(cluster, partitions, options.ending)
                return planner.lanes(cluster, starts, ends)

            return list(patiently(plan, patience_s=_PATIENCE_S))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield a lane's rows. Runs in the task."""
        return _rows(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """
    ``spark.readStream``: micro-batches, each up to the ends that were seen when it was planned.

    An offset is ``{"topic": {"0": 23}}``: the first that is not in the micro-batch, as in Spark's connector.
    With a group, the group's pairs say where a partition goes on, and Spark's log says nothing: a ``#slice``
    in the offsets counts up where partitions were left behind, so that they are planned again.

    One object serves the whole query, in a process on the driver; copies of it read in the tasks.

    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._planner = _Planner(options)
        self._available: dict[str, Any] | None = None
        self._began = False
        self._starts: dict[TopicPartition, int] = {}

    def initialOffset(self) -> dict[str, Any]:
        """Say where the stream begins; called once in its life."""

        def ask(cluster: Cluster) -> dict[TopicPartition, int]:
            return self._planner.bounds(cluster, self._planner.partitions(cluster), self._options.starting)

        return _to_json(self._ask(ask))

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets_per_trigger
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Keep today's ends: the query stops when it has reached them."""
        self._available = self.reportLatestOffset()

    def reportLatestOffset(self) -> dict[str, Any]:
        """Say where the topics end now."""
        return _to_json(self._ask(self._ends))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Say where the next micro-batch ends: at ``start`` where the driver wants to stop."""
        word = self._word_of_driver()
        if word is None:
            return start
        excluded, waiting = word
        begins = _from_json(start)
        try:
            ends = _from_json(self._available) if self._available is not None else self._ask(self._ends)
        except Stopped:
            return start
        if isinstance(limit, ReadMaxRows):
            ends = _limited(begins, ends, limit.max_rows)
        # A partition that is stopped stays where it was planned last.
        latest = _to_json(
            {each: begins.get(each, end) if each in excluded else end for each, end in ends.items()}
        )
        if self._options.group:
            # What the last process, or the last micro-batch, left behind is not in these offsets.
            again = waiting or not self._began
            latest[_SLICE] = start.get(_SLICE, 0) + int(again)
        self._began = True
        return latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the lanes of a micro-batch."""
        begins, ends = _from_json(start), _from_json(end)

        def plan(cluster: Cluster) -> list[Lane]:
            partitions_of(cluster, sorted({each.topic for each in ends}))
            excluded, _ = self._word_of_driver() or (frozenset(), False)
            wanted = {each: offset for each, offset in ends.items() if each not in excluded}
            return self._planner.lanes(cluster, self._starts_of(cluster, begins, wanted), wanted)

        try:
            return self._ask(plan)
        except Stopped:
            return []  # what is not copied now is planned by the next process

    def _starts_of(
        self,
        cluster: Cluster,
        begins: Mapping[TopicPartition, int],
        wanted: Mapping[TopicPartition, int],
    ) -> Mapping[TopicPartition, int]:
        """
        Say where partitions begin: with a group, those without a pair.

        Not from Spark's log then: it goes on past a partition that could not be copied.
        What the options say is looked up once in the life of this process: ``latest`` must not run away.
        """
        if self._options.group:
            unknown = [each for each in wanted if each not in self._starts]
            begin_at = self._options.starting if not self._starts else Offsets(EARLIEST)
            self._starts |= self._planner.bounds(cluster, unknown, begin_at)
            return self._starts
        late = [each for each in wanted if each not in begins]
        # Partitions that came into being later are read whole.
        return {**begins, **start_offsets(cluster, late, EARLIEST, cluster.config.isolation_level)}

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield a lane's rows. Runs in the task."""
        return _rows(partition, self._options)

    def _ends(self, cluster: Cluster) -> dict[TopicPartition, int]:
        partitions = self._planner.partitions(cluster)
        level = self._options.source.isolation_level
        # One partition without a leader does not hold up a mirror; the group remembers it.
        return end_offsets(cluster, partitions, level, all_of_them=self._options.group is None)

    def _ask(self, question: Callable[[Cluster], T]) -> T:
        with Cluster(unlocked(self._options).source) as cluster:
            return patiently(lambda: question(cluster), patience_s=self._patience_s, pause=self._pause)

    @property
    def _patience_s(self) -> float:
        # A mirror waits for its source as long as it takes: its driver can stop it.
        return math.inf if self._options.control else _PATIENCE_S

    def _pause(self, seconds: float) -> None:
        if self._word_of_driver() is None:
            raise Stopped("the mirror was stopped while it waited for its source cluster")
        time.sleep(seconds)

    def _word_of_driver(self) -> tuple[frozenset[TopicPartition], bool] | None:
        """
        Ask the mirror's driver which partitions are stopped, and whether others wait to be tried again.

        None where nothing more is to be planned.
        """
        address = self._options.control
        if address is None:
            return frozenset(), False
        try:
            with ControlConnection((address.host, address.port), address.token) as control:
                return None if control.stop_requested else (control.excluded, control.waiting)
        except Stopped:
            return None


def _limited(
    begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Cut a micro-batch to about so many offsets, each partition in proportion (at least one)."""
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
        if topic != _SLICE
        for number, offset in numbers.items()
    }

"""
``shoal inspect --master``: the facts of whole partitions, counted in the tasks of Spark.

The rows are those of ``format("shoal")`` with ``rows=headers``. Each task counts the rows of its offsets, and
sends the counts, which are small, to the driver. The driver asks for offsets and open transactions itself.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Row, SparkSession

from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.errors import ShoalError
from shoal.inspect.facts import Facts
from shoal.inspect.options import InspectOptions
from shoal.inspect.reading import PartitionPlan
from shoal.inspect.report import ClusterReport, NotInspected
from shoal.inspect.run import Inspected, conclude, plan_partitions
from shoal.inspect.transactions import open_transactions
from shoal.records import BatchHeader, Codec
from shoal.records.aborted import Marker
from shoal.records.batch import CONTROL, LOG_APPEND_TIME, LOG_OVERHEAD, TRANSACTIONAL
from shoal.spark.datasource import data_source
from shoal.spark.engine import our_errors
from shoal.spark.launch.session import spark_session
from shoal.state_directory import state_dir
from shoal.topic_partition import TopicPartition

__all__ = ["header_of", "inspect_on_spark", "inspect_with_session"]

#: A codec of later versions of Kafka, by its bits.
_UNKNOWN_CODEC = 7

_MARKERS = {"commit": Marker.COMMIT.value, "abort": Marker.ABORT.value}


def inspect_on_spark(
    source: ClientConfig,
    connection: Mapping[str, str],
    topics: Iterable[str],
    options: InspectOptions,
    *,
    master: str,
    conf: Mapping[str, str],
) -> ClusterReport:
    """
    Start Spark, and inspect all batches of topics on it.

    Args:
        source: How to reach the cluster, for the driver.
        connection: Options of ``format("shoal")`` for the same cluster.
        topics: The names of the topics.
        options: The options.
        master: Spark's master.
        conf: Spark's settings.

    Raises:
        ConfigError: Spark cannot start with these settings, or would reveal the cluster's credentials.
        ShoalError: The cluster does not answer, or Spark fails.

    """
    directory = state_dir()
    log_file = directory / "inspect-spark.log"
    session = spark_session(master, conf, log_file, directory)
    try:
        with our_errors(log_file):
            return inspect_with_session(session, source, connection, topics, options)
    finally:
        session.stop()


def inspect_with_session(
    spark: SparkSession,
    source: ClientConfig,
    connection: Mapping[str, str],
    topics: Iterable[str],
    options: InspectOptions,
    *,
    now_ms: int | None = None,
) -> ClusterReport:
    """Inspect all batches of topics in a session; the arguments are those of :func:`inspect_on_spark`."""
    started = time.monotonic()
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    names = sorted(topics)
    # Rows have no payload, so no ratio can be measured.
    options = replace(options, all=True, ratio_batches=0)
    with Cluster(source) as cluster:
        plans, failures = plan_partitions(cluster, names, options)
        facts = _facts(spark, connection, [each for each in plans if each.start < each.end], now_ms)
        inspected = []
        for plan in plans:
            try:
                opened = open_transactions(cluster, plan, now_ms)
            except ShoalError as error:
                failures.append(NotInspected(plan.partition, str(error)))
            else:
                inspected.append(Inspected(plan, facts.get(plan.partition, Facts(now_ms)), opened))
        name = str(cluster)
    return conclude(
        name,
        names,
        inspected,
        failures,
        is_sample=False,
        now_ms=now_ms,
        elapsed_s=time.monotonic() - started,
    )


def _facts(
    spark: SparkSession, connection: Mapping[str, str], plans: Sequence[PartitionPlan], now_ms: int
) -> dict[TopicPartition, Facts]:
    if not plans:
        return {}
    spark.dataSource.register(data_source(spark))
    starts = {plan.partition: plan.start for plan in plans}
    rows = (
        spark.read.format("shoal")
        .options(**connection)
        .option("kafka.isolation.level", "read_uncommitted")
        .option("assign", _by_topic(plans, None))
        .option("startingOffsets", _by_topic(plans, lambda plan: plan.start))
        .option("endingOffsets", _by_topic(plans, lambda plan: plan.end))
        # Retention may delete segments meanwhile.
        .option("failOnDataLoss", "false")
        .option("rows", "headers")
        .load()
    )
    found: dict[TopicPartition, Facts] = {}
    for partition, facts in rows.rdd.mapPartitions(_counter(starts, now_ms)).collect():
        found.setdefault(partition, Facts(now_ms)).add_run(facts)
    for plan in plans:
        # Between the runs of two tasks, too, offsets without a batch were removed.
        facts = found.setdefault(plan.partition, Facts(now_ms))
        facts.runs = [(min([plan.start, *(start for start, _ in facts.runs)]), plan.end)]
    return found


def _by_topic(plans: Sequence[PartitionPlan], offset: Callable[[PartitionPlan], int] | None) -> str:
    """Return partitions, or their offsets, as Spark's Kafka connector writes them."""
    topics: dict[str, dict[str, int]] = defaultdict(dict)
    for plan in plans:
        topics[plan.partition.topic][str(plan.partition.partition)] = offset(plan) if offset else 0
    if offset is None:
        return json.dumps({topic: [int(each) for each in numbers] for topic, numbers in topics.items()})
    return json.dumps(topics)


def _counter(
    starts: Mapping[TopicPartition, int], now_ms: int
) -> Callable[[Iterable[Row]], Iterator[tuple[TopicPartition, Facts]]]:
    """Return the function that counts the rows of one task. Spark pickles it for the tasks."""

    def count(rows: Iterable[Row]) -> Iterator[tuple[TopicPartition, Facts]]:
        found: dict[TopicPartition, Facts] = {}
        for row in rows:
            partition = TopicPartition(row.topic, row.partition)
            facts = found.get(partition)
            if facts is None:
                facts = found[partition] = Facts(now_ms)
                facts.begin_run(max(row.base_offset, starts[partition]))
            facts.see(header_of(row), _MARKERS.get(row.control))
        yield from found.items()

    return count


def header_of(row: Row) -> BatchHeader:
    """Return the header of a row with ``rows=headers``; its CRC, which has no column, is 0."""
    codec = Codec[row.codec.upper()].value if row.codec.upper() in Codec.__members__ else _UNKNOWN_CODEC
    attributes = (
        codec
        | (LOG_APPEND_TIME if row.timestamp_type == "LogAppendTime" else 0)
        | (TRANSACTIONAL if row.transactional else 0)
        | (CONTROL if row.control is not None else 0)
    )
    return BatchHeader(
        base_offset=row.base_offset,
        batch_length=row.size_bytes - LOG_OVERHEAD,
        leader_epoch=row.leader_epoch,
        magic=row.magic,
        crc=0,
        attributes=attributes,
        last_offset_delta=row.last_offset - row.base_offset,
        base_timestamp=row.base_timestamp_ms,
        max_timestamp=row.max_timestamp_ms,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        base_sequence=row.base_sequence,
        records_count=row.records_count,
    )

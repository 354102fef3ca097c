"""``format("shoal")`` in Spark, between two embedded brokers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import shoal
from shoal.errors import ConfigError
from shoal.spark.rows import BYTES
from shoal.spark.trust import refuse_speculation
from tests.spark.sessions import spark_session
from tests.world.clusters import TwoBrokers
from tests.world.history import ABORT, COMMIT

#: Of a stream, on a machine that does much else.
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    state = tmp_path_factory.mktemp("spark")
    session = spark_session("local[2]", {}, state / "spark.log", state)
    session.dataSource.register(shoal.ShoalDataSource)
    yield session
    session.stop()


def read(spark: SparkSession, brokers: TwoBrokers, **options: str) -> DataFrame:
    reader = spark.read.format("shoal").option("kafka.bootstrap.servers", brokers.source.bootstrap)
    return reader.option("subscribe", "topic").options(**options).load()


def write(rows: DataFrame, brokers: TwoBrokers, **options: str) -> None:
    writer = rows.write.format("shoal").mode("append")
    writer.option("kafka.bootstrap.servers", brokers.destination.bootstrap).options(**options).save()


def test_write_under_speculation_is_refused_before_a_record(spark: SparkSession, brokers: TwoBrokers) -> None:
    brokers.topic()[0].plain(3)
    spark.sparkContext.setLocalProperty("spark.speculation", "TRUE")  # as Spark passes settings to its tasks
    try:
        with pytest.raises(PySparkException, match=r"spark\.speculation"):
            write(read(spark, brokers, rows="bytes"), brokers)
    finally:
        spark.sparkContext.setLocalProperty("spark.speculation", None)  # type: ignore[arg-type]
    assert brokers.copied() == []


@pytest.mark.parametrize(
    ("value", "is_refused"),
    [("true", True), ("TRUE", True), (" True ", True), ("false", False), (None, False)],
)
def test_refuse_speculation_reads_the_setting_as_spark_does(value: str | None, is_refused: bool) -> None:
    with pytest.raises(ConfigError) if is_refused else nullcontext():
        refuse_speculation({"spark.speculation": value}.get)


def test_offsets_are_chosen_as_with_spark_s_connector(spark: SparkSession, brokers: TwoBrokers) -> None:
    for history in brokers.topic(partitions=2):
        history.plain(3, 4)
    rows = read(spark, brokers, startingOffsets='{"topic": {"0": 3}}', endingOffsets='{"topic": {"1": 3}}')
    read_offsets = [(row.partition, row.base_offset, row.last_offset) for row in rows.collect()]
    assert sorted(read_offsets) == [(0, 3, 6), (1, 0, 2)]


def test_row_of_bytes_has_the_batch_of_the_log(spark: SparkSession, brokers: TwoBrokers) -> None:
    history = brokers.topic()[0].plain(3).transaction(2, ends=ABORT).transaction(5, ends=COMMIT)
    rows = read(spark, brokers, rows="bytes")
    assert rows.schema == BYTES
    found = rows.orderBy("base_offset").collect()
    assert [(row.base_offset, row.last_offset, row.records_count) for row in found] == [(0, 2, 3), (6, 10, 5)]
    assert [(row.codec, row.transactional) for row in found] == [("none", False), ("none", True)]
    assert all(len(row.batch) > 61 for row in found)
    assert history.committed


def test_rows_with_headers_are_refused_before_a_job(spark: SparkSession, brokers: TwoBrokers) -> None:
    brokers.topic()[0].plain(3)
    with pytest.raises(PySparkException, match=r"shoal\.errors\.ConfigError: .*rows=bytes"):
        write(read(spark, brokers, rows="headers"), brokers)


def test_rows_of_bytes_are_written_in_offset_order(spark: SparkSession, brokers: TwoBrokers) -> None:
    history = brokers.topic()[0].plain(3, 1, 4, 1, 5)
    rows = read(spark, brokers, rows="bytes").orderBy("base_offset", ascending=False).coalesce(1)
    write(rows, brokers)
    brokers.assert_exact(history)
    write(rows, brokers)
    brokers.assert_exact(history)


def test_gap_between_rows_is_refused_without_allow_gaps(spark: SparkSession, brokers: TwoBrokers) -> None:
    history = brokers.topic()[0].plain(3).transaction(2, ends=ABORT).plain(4)
    rows = read(spark, brokers, rows="bytes")
    with pytest.raises(PySparkException, match=r"3.*5.*allowGaps"):
        write(rows, brokers)
    assert brokers.copied() == []
    write(rows, brokers, allowGaps="true")
    brokers.assert_exact(history)


def test_rows_of_one_partition_in_several_tasks_are_refused(spark: SparkSession, brokers: TwoBrokers) -> None:
    brokers.topic()[0].plain(*[2] * 40)
    rows = read(spark, brokers, rows="bytes").repartition(2)
    with pytest.raises(PySparkException, match=r"repartition\("):
        write(rows, brokers, allowGaps="true")


def test_stream_copies_available_records_and_ends(
    spark: SparkSession, brokers: TwoBrokers, tmp_path: Path
) -> None:
    history = brokers.topic()[0].plain(3, 4)

    def run() -> None:
        options: dict[str, Any] = {"subscribe": "topic", "startingOffsets": "earliest"}
        rows = spark.readStream.format("shoal").options(**options)
        stream = rows.option("kafka.bootstrap.servers", brokers.source.bootstrap).load().writeStream
        query = (
            stream.format("shoal")
            .option("kafka.bootstrap.servers", brokers.destination.bootstrap)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S)

    run()
    brokers.assert_exact(history)
    history.plain(5)
    run()
    brokers.assert_exact(history)


def test_program_mirrors_and_receives_each_run(spark: SparkSession, brokers: TwoBrokers) -> None:
    history = brokers.topic()[0].plain(3).transaction(2, ends=ABORT).plain(4)
    runs = []
    source: Any = brokers.source.bootstrap
    destination: Any = brokers.destination.bootstrap
    topics: Any = "topic"
    summary = shoal.mirror(
        shoal.MirrorOptions(source, destination, topics, once=True),
        on_run=lambda partition, run: runs.append((*partition, *_values(run))),
        stop=threading.Event(),
    )
    assert summary.exit_code == 0
    assert summary.records == 7
    brokers.assert_exact(history)
    assert runs == [("topic", 0, 0, 3, 0), ("topic", 0, 6, 10, 3)]
    # The session was the program's, and still is.
    assert spark.range(3).count() == 3


def _values(run: Any) -> tuple[int, int, int]:
    return run.source_start, run.source_end, run.destination_start

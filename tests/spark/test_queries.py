"""The queries of docs/python.md run as they stand, and the one with an output prints it."""

from __future__ import annotations

import datetime
import io
import re
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition, LessThan

import shoal
from shoal_broker import Broker
from tests.archive.archives import add, new_archive, plain
from tests.spark.sessions import spark_session
from tests.world import batches
from tests.world.history import ABORT, COMMIT, History

PAGE = Path(__file__).parents[2] / "docs" / "python.md"

#: As Python counts the days of the week.
TUESDAY = 1

#: 2026-03-01, 12:00 UTC.
NOON_MS = 1_772_366_400_000


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    state = tmp_path_factory.mktemp("spark")
    conf = {"spark.sql.session.timeZone": "UTC"}
    session = spark_session("local[2]", conf, state / "spark.log", state)
    session.dataSource.register(shoal.data_source(session))
    yield session
    session.stop()


def fill(broker: Broker) -> None:
    """Write the example: transactions that committed, aborted, and stay open."""
    broker.create_topic("payments", 1)
    payments = History(broker.log("payments"), NOON_MS)
    payments.transaction(2, 2, ends=COMMIT, producer_id=21)
    payments.transaction(3, ends=ABORT, producer_id=22)
    payments.transaction(4, ends=COMMIT, producer_id=21)
    payments.store(payments.batch(5, flags=batches.TRANSACTIONAL, producer_id=23, producer_epoch=0))


@pytest.fixture(scope="module")
def source() -> Iterator[Broker]:
    with Broker() as broker:
        fill(broker)
        yield broker


def code_and_outputs(heading: str) -> tuple[list[str], list[str]]:
    _, _, section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    section, _, _ = section.partition("\n## ")
    return (
        re.findall(r"```python\n(.*?)```", section, re.DOTALL),
        re.findall(r"```text\n(.*?)```", section, re.DOTALL),
    )


def blocks() -> tuple[str, list[tuple[str, str]]]:
    """Return the code before the queries, and each query with its output."""
    (first, *queries), outputs = code_and_outputs("A query over batches")
    return first, list(zip(queries, outputs, strict=True))


def test_queries_of_the_page_have_their_outputs(spark: SparkSession, source: Broker) -> None:
    before, queries = blocks()
    assert queries
    names = {"spark": spark}
    exec(before.replace("source:9092", source.bootstrap), names)
    printed = []
    for code, _ in queries:
        with redirect_stdout(io.StringIO()) as output:
            exec(code, names)
        printed.append(output.getvalue().strip())
    assert printed == [output.strip() for _, output in queries]


def last_tuesday() -> datetime.datetime:
    """Return noon of the last Tuesday before today, UTC."""
    today = datetime.datetime.now(datetime.UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    return today - datetime.timedelta(days=(today.weekday() - TUESDAY - 1) % 7 + 1)


@pytest.fixture
def archive(tmp_path: Path) -> str:
    """Archive an object for each of five days around the last Tuesday, with as many orders as its number."""
    archive = new_archive(tmp_path / "archive")
    offset = 0
    for number, days in enumerate(range(-2, 3), start=1):
        day_ms = int((last_tuesday() + datetime.timedelta(days=days)).timestamp() * 1000)
        add(archive, plain(number, base_offset=offset, timestamp=day_ms), tmp_path, offset=offset)
        offset += number
    return str(tmp_path / "archive")


def test_archive_of_the_page_becomes_a_table(spark: SparkSession, archive: str, tmp_path: Path) -> None:
    (table, query, asked_again), _ = code_and_outputs("An archive as a table")
    parquet = str(tmp_path / "orders")
    names: dict[str, Any] = {"spark": spark, "shoal": shoal}
    exec(table.replace("s3://bucket/kafka", archive).replace("/data/orders", parquet), names)
    question = query.removeprefix('spark.sql("""').partition('"""')[0]
    (row,) = spark.sql(question).collect()
    assert (row.hour, row.orders) == (12, 3)
    assert spark.table("orders").count() == sum(range(6))

    names["records"].createOrReplaceTempView("orders")
    (asked,) = spark.sql(question).collect()
    assert asked == row

    exec(asked_again.replace("s3://bucket/kafka", archive), names)
    assert names["records"].count() == 0, "of another year"


def test_spark_keeps_the_tasks_of_a_filtered_query(spark: SparkSession) -> None:
    """The reason why filters leave out no object. If this fails, BatchReader may have ``pushFilters``."""

    class Reader(DataSourceReader):
        end = 3

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
            for each in filters:
                if isinstance(each, LessThan):
                    self.end = each.value
                yield each

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(self.end)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (partition.value,)

    class Numbers(DataSource):
        def schema(self) -> str:
            return "number int"

        def reader(self, schema: object) -> Reader:
            return Reader()

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        spark.dataSource.register(Numbers)
        numbers = spark.read.format("Numbers").load()
        assert numbers.where("number < 1").count() == 1
        assert numbers.count() == 1, "there are three"
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

"""``shoal inspect --master``: the facts that tasks count from ``rows=headers`` are those of the client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from shoal.error_codes import ErrorCode
from shoal.errors import ShoalError
from shoal.inspect import ClusterReport, InspectOptions, inspect
from shoal.inspect.facts import Facts
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal.spark.engine import our_errors
from shoal.spark.inspect import inspect_with_session
from shoal.spark.launch.session import spark_session
from shoal_broker import Broker
from tests import batches
from tests.inspect.topics import NOW_MS, config_of, history
from tests.two_brokers import ABORT, COMMIT, may_compact


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    state = tmp_path_factory.mktemp("spark")
    session = spark_session("local[2]", {}, state / "spark.log", state)
    yield session
    session.stop()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        first = history(running, partitions=3)
        may_compact(running, "orders")
        first.plain(3, 40, codec=Codec.ZSTD, producer_id=5, producer_epoch=1, base_sequence=0)
        first.transaction(2, ends=ABORT).transaction(3, ends=COMMIT)
        first.holed(6, [1, 2]).gap(4).empty(2).plain(2).gap_at_the_end(3)
        second = history(running, partition=1)
        second.plain(*[1] * 50, leader_epoch=2)
        second.store(second.batch(2, flags=batches.TRANSACTIONAL, producer_id=9, producer_epoch=0))
        second.store(batches.message(1, offset=second.next_offset))
        history(running, "far").plain(2, base_timestamp=2**62)
        yield running


def without_ratio(report: ClusterReport) -> ClusterReport:
    """Return a report without durations, and without what only a payload shows."""
    topics = []
    for each in report.topics:
        facts = Facts(NOW_MS)
        facts.add_partition(each.facts)
        facts.ratios, facts.producer_places = {}, 0
        facts.opened.clear()
        topics.append(replace(each, facts=facts))
    return replace(report, topics=tuple(topics), findings=(), elapsed_s=0.0)


def test_facts_of_tasks_are_those_of_the_client(spark: SparkSession, broker: Broker) -> None:
    source, topics, options = config_of(broker), ["orders", "far"], InspectOptions(all=True)
    connection = {"kafka.bootstrap.servers": broker.bootstrap}
    counted = inspect_with_session(spark, source, connection, topics, options, now_ms=NOW_MS)
    alone = inspect(source, topics, options, now_ms=NOW_MS)
    assert without_ratio(counted) == without_ratio(alone)
    (far, orders) = counted.topics
    assert (far.facts.future_batches, orders.facts.magics[1], orders.removed_between) == (1, 1, 7)
    assert [each.producer_id for each in orders.open_transactions] == [9]


def test_leader_that_refuses_a_task_is_an_error_of_shoal(spark: SparkSession, broker: Broker) -> None:
    broker.faults.add(ApiKey.FETCH, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
    connection = {"kafka.bootstrap.servers": broker.bootstrap}
    with pytest.raises(ShoalError, match="orders") as raised, our_errors(Path("spark.log")):
        inspect_with_session(spark, config_of(broker), connection, ["orders"], InspectOptions(all=True))
    assert "\n" not in str(raised.value)


def test_topic_without_records_is_counted(spark: SparkSession) -> None:
    with Broker() as broker:
        broker.create_topic("orders", 2)
        connection = {"kafka.bootstrap.servers": broker.bootstrap}
        report = inspect_with_session(
            spark, config_of(broker), connection, ["orders"], InspectOptions(all=True), now_ms=NOW_MS
        )
    assert [(each.partitions, each.offsets) for each in report.topics] == [(2, 0)]

"""The source plans and reads without Spark itself."""

from __future__ import annotations

from itertools import pairwise

import pytest

from shoal.errors import ShoalError
from shoal.spark.options import ReadOptions
from shoal.spark.rows import HEADERS
from shoal.spark.source import BatchReader, StreamReader
from tests.world.batches import TRANSACTIONAL
from tests.world.clusters import TwoBrokers
from tests.world.history import ABORT, COMMIT


def options(brokers: TwoBrokers, *, streaming: bool = True, **more: str) -> ReadOptions:
    given = {"kafka.bootstrap.servers": brokers.source.bootstrap, "subscribe": "topic", **more}
    return ReadOptions.parse(given, streaming=streaming)


def test_source_continues_at_spark_s_offsets(brokers: TwoBrokers) -> None:
    brokers.topic()[0].plain(60, 40)
    reader = StreamReader(options(brokers))
    (planned,) = reader.partitions({"topic": {"0": 60}}, {"topic": {"0": 100}})
    assert [tuple(each) for each in planned.value] == [("topic", 0, "topic", 60, 100)]


def test_partition_without_an_offset_of_spark_s_is_read_from_its_beginning(brokers: TwoBrokers) -> None:
    brokers.topic()[0].plain(60)
    (planned,) = StreamReader(options(brokers)).partitions({}, {"topic": {"0": 60}})
    assert [tuple(each) for each in planned.value] == [("topic", 0, "topic", 0, 60)]


@pytest.mark.parametrize("rows", ["headers", "bytes"])
@pytest.mark.parametrize("election", [False, True])
def test_ending_offset_behind_the_log_s_end_is_refused(
    brokers: TwoBrokers, rows: str, election: bool
) -> None:
    """Whatever happened to the partition before: nothing shows that its log was ever so long."""
    history = brokers.topic()[0].plain(5)
    if election:
        history.log.begin_leader_epoch(3)
    named = {"rows": rows, "endingOffsets": '{"topic": {"0": 9}}'}
    with pytest.raises(ShoalError, match=r"topic-0.*offset.*5.*9"):
        BatchReader(options(brokers, streaming=False, **named)).partitions()
    reader = BatchReader(options(brokers, streaming=False, failOnDataLoss="false", **named))
    assert [tuple(each) for task in reader.partitions() for each in task.value] == [
        ("topic", 0, "topic", 0, 5)
    ]


def test_batch_across_two_ranges_is_read_by_one(brokers: TwoBrokers) -> None:
    brokers.topic()[0].plain(100, 20)
    reader = StreamReader(options(brokers, rows="bytes"))
    ends = [0, 60, 120]
    read = [
        arrow.num_rows
        for start, end in pairwise(ends)
        for partition in reader.partitions({"topic": {"0": start}}, {"topic": {"0": end}})
        for arrow in reader.read(partition)
    ]
    assert sum(read) == 2


def headers(brokers: TwoBrokers, **more: str) -> list[dict[str, object]]:
    reader = BatchReader(options(brokers, streaming=False, rows="headers", **more))
    return [
        row
        for partition in reader.partitions()
        for arrow in reader.read(partition)
        for row in arrow.to_pylist()
    ]


def test_rows_with_headers_have_each_batch_of_the_log(brokers: TwoBrokers) -> None:
    history = brokers.topic()[0]
    history.plain(3).transaction(2, ends=ABORT).empty(4).transaction(1, ends=COMMIT, producer_id=8)
    read = headers(brokers)
    assert list(read[0]) == HEADERS.names
    assert [(row["base_offset"], row["records_count"], row["control"]) for row in read] == [
        (0, 3, None),
        (3, 2, None),
        (5, 1, "abort"),
        (6, 0, None),
        (10, 1, None),
        (11, 1, "commit"),
    ]
    assert [row["producer_id"] for row in read] == [-1, 77, 77, -1, 8, 8]


def test_rows_with_headers_hold_times_beyond_the_calendar(brokers: TwoBrokers) -> None:
    brokers.topic()[0].plain(1, base_timestamp=2**63 - 1)
    assert headers(brokers)[0]["max_timestamp_ms"] == 2**63 - 1


def test_rows_with_headers_show_open_transactions_only_uncommitted(brokers: TwoBrokers) -> None:
    history = brokers.topic()[0].plain(1)
    history.store(history.batch(2, flags=TRANSACTIONAL, producer_id=9, producer_epoch=0))
    assert [row["base_offset"] for row in headers(brokers)] == [0]
    uncommitted = {"kafka.isolation.level": "read_uncommitted"}
    assert [row["transactional"] for row in headers(brokers, **uncommitted)] == [False, True]

"""The source reads archives, and records, without Spark itself."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from shoal.archive.description import DamagedObject
from shoal.archive.directory import Archive
from shoal.records import Codec
from shoal.spark.options import ReadOptions
from shoal.spark.rows import RECORDS
from shoal.spark.source import BatchReader, StreamReader
from tests.archive.archives import add, described, new_archive, objects_of, plain
from tests.world import batches
from tests.world.clusters import TwoBrokers
from tests.world.contents import content_of_batch
from tests.world.history import ABORT, COMMIT

MAGICS = {
    "plain": plain(3, timestamp=1_000),
    "magic 0": bytes(batches.message(0, b"older", offset=3)),
    "magic 1": bytes(batches.message(1, None, offset=4, key=None)),
    "wrapper": bytes(
        batches.wrapper(
            1, Codec.GZIP, [batches.message(1, b"inner", offset=number) for number in range(3)], offset=7
        )
    ),
    "append time": bytes(
        batches.batch([b"a", b"b"], base_offset=8, flags=batches.LOG_APPEND_TIME, codec=Codec.LZ4)
    ),
    "zstd": bytes(batches.batch([b"c"] * 50, base_offset=10, codec=Codec.ZSTD)),
}


def given(directory: Path, **more: str) -> dict[str, str]:
    return {"path": str(directory / "archive"), "rows": "records", **more}


def options(directory: Path, **more: str) -> ReadOptions:
    return ReadOptions.parse(given(directory, **more), streaming=False)


def of_topic(brokers: TwoBrokers) -> ReadOptions:
    topic = {"kafka.bootstrap.servers": brokers.source.bootstrap, "subscribe": "topic", "rows": "records"}
    return ReadOptions.parse(topic, streaming=False)


def rows_of(reader: BatchReader) -> list[dict[str, Any]]:
    return [
        row
        for partition in reader.partitions()
        for arrow in reader.read(partition)
        for row in arrow.to_pylist()
    ]


def records(directory: Path, **more: str) -> list[dict[str, Any]]:
    return rows_of(BatchReader(options(directory, **more)))


def offsets(directory: Path, **more: str) -> list[int]:
    return [row["offset"] for row in records(directory, **more)]


def planned(reader: BatchReader) -> list[tuple[str, int, int, int]]:
    return [
        (each.topic, each.partition, each.start_offset, each.end_offset)
        for task in reader.partitions()
        for each in task.value or ()
    ]


def archive_of(directory: Path, *segments: bytes) -> Archive:
    archive = new_archive(directory / "archive")
    for segment in segments:
        add(archive, segment, directory, offset=objects_of(archive).end_offset or 0)
    return archive


def milliseconds(at: datetime.datetime) -> int:
    return round(at.timestamp() * 1000)


def test_each_object_is_a_task(tmp_path: Path) -> None:
    archive_of(tmp_path, plain(3), plain(2, base_offset=3), plain(4, base_offset=5))
    assert planned(BatchReader(options(tmp_path))) == [
        ("orders", 0, 0, 3),
        ("orders", 0, 3, 5),
        ("orders", 0, 5, 9),
    ]
    assert offsets(tmp_path) == list(range(9))


def test_overlapping_objects_give_each_record_once(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, plain(3, 3))
    add(archive, plain(3, 4, base_offset=3), tmp_path, offset=3, generation=9)
    assert planned(BatchReader(options(tmp_path))) == [("orders", 0, 0, 3), ("orders", 0, 3, 10)]
    assert offsets(tmp_path) == list(range(10))


def test_records_have_the_columns_of_spark_s_kafka_source(tmp_path: Path) -> None:
    record = batches.Record(b"v", b"k", [("trace", b"1"), ("trace", None)])
    made = bytes(batches.raw_batch(batches.payload([record]), base_timestamp=1_700_000_000_123))
    archive_of(tmp_path, made)
    (row,) = records(tmp_path)
    assert list(row) == RECORDS.names
    assert row == {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp": datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=datetime.UTC),
        "timestampType": 0,
        "headers": [{"key": "trace", "value": b"1"}, {"key": "trace", "value": None}],
    }


def test_records_of_all_formats_are_those_of_another_reader(tmp_path: Path) -> None:
    archive_of(tmp_path, *MAGICS.values())
    found = records(tmp_path)
    expected = [each for made in MAGICS.values() for each in content_of_batch(made)]
    assert [(row["offset"], row["key"], row["value"]) for row in found] == [
        (offset, content.key, content.value) for offset, content in expected
    ]
    kinds = [row["timestampType"] for row in found]
    assert kinds == [0] * 3 + [-1] + [0] * 4 + [1] * 2 + [0] * 50
    is_create_time = [(row, content) for row, (_, content) in zip(found, expected, strict=True)]
    assert all(
        milliseconds(row["timestamp"]) == content.timestamp
        for row, content in is_create_time
        if row["timestampType"] != 1
    )


@pytest.mark.parametrize("start", range(0, 12, 2))
@pytest.mark.parametrize("end", range(3, 13, 3))
def test_records_begin_and_end_inside_batches(tmp_path: Path, start: int, end: int) -> None:
    inner = [batches.message(1, b"inner", offset=number) for number in range(4)]
    wrapped = bytes(batches.wrapper(1, Codec.GZIP, inner, offset=7))
    archive_of(tmp_path, plain(4) + wrapped, plain(4, base_offset=8))
    named = {
        "startingOffsets": f'{{"orders": {{"0": {start}}}}}',
        "endingOffsets": f'{{"orders": {{"0": {end}}}}}',
    }
    assert offsets(tmp_path, **named) == list(range(start, end))


def test_records_of_aborted_transactions_follow_the_isolation_level(tmp_path: Path) -> None:
    def open_transaction(producer_id: int, offset: int) -> bytes:
        made = batches.batch(
            [b"t"], base_offset=offset, flags=batches.TRANSACTIONAL, producer_id=producer_id, producer_epoch=0
        )
        return bytes(made)

    archive = new_archive(tmp_path / "archive")
    add(archive, open_transaction(7, 0) + open_transaction(8, 1), tmp_path, aborted=[(7, 0)])
    ends = bytes(batches.marker(ABORT, 7, base_offset=2)) + bytes(batches.marker(COMMIT, 8, base_offset=3))
    add(archive, ends + open_transaction(9, 4), tmp_path, offset=2, aborted=[(7, 0)])
    assert offsets(tmp_path) == [1, 4]
    assert offsets(tmp_path, **{"kafka.isolation.level": "read_uncommitted"}) == [0, 1, 4]


def test_records_of_an_archive_are_those_of_its_cluster(tmp_path: Path, brokers: TwoBrokers) -> None:
    history = brokers.topic()[0].plain(3).transaction(2, ends=ABORT).holed(5, [1]).transaction(2, ends=COMMIT)
    found = rows_of(BatchReader(of_topic(brokers)))
    assert [(row["key"], row["value"]) for row in found] == [
        (each.key, each.value) for each in history.committed
    ]


def test_records_come_in_bounded_pieces(tmp_path: Path) -> None:
    archive_of(tmp_path, bytes(batches.batch([bytes(1_000_000)] * 20, codec=Codec.ZSTD)))
    reader = BatchReader(options(tmp_path))
    sizes = [arrow.nbytes for partition in reader.partitions() for arrow in reader.read(partition)]
    assert len(sizes) >= 4
    assert max(sizes) < 6_000_000


@pytest.mark.parametrize("rows", ["headers", "bytes", "records"])
def test_damaged_object_is_named_before_a_row(tmp_path: Path, rows: str) -> None:
    archive = archive_of(tmp_path, plain(3))
    objects = objects_of(archive)
    file = tmp_path / "archive" / objects.path / f"{objects.names[0]}.log"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    reader = BatchReader(options(tmp_path, rows=rows))
    (task,) = reader.partitions()
    with pytest.raises(DamagedObject, match=file.name):
        next(iter(reader.read(task)))


def test_stream_reads_objects_as_they_appear(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, plain(3))
    streaming = ReadOptions.parse(given(tmp_path, startingOffsets="earliest"), streaming=True)
    reader = StreamReader(streaming)
    start = reader.initialOffset()
    assert reader.latestOffset(start) == {"orders": {"0": 3}}
    add(archive, plain(2, base_offset=3), tmp_path, offset=3)
    assert reader.latestOffset(start) == {"orders": {"0": 5}}
    tasks = reader.partitions(start, {"orders": {"0": 5}})
    assert [arrow.num_rows for task in tasks for arrow in reader.read(task)] == [3, 2]


def test_options_choose_the_objects_that_are_read(tmp_path: Path) -> None:
    archive = archive_of(
        tmp_path,
        plain(3, timestamp=1_000),
        plain(3, base_offset=3, timestamp=2_000),
        plain(3, base_offset=6, timestamp=3_000),
    )
    archive.describe(described(name="clicks"))

    def starts(**chosen: str) -> list[int]:
        return [start for _, _, start, _ in planned(BatchReader(options(tmp_path, **chosen)))]

    assert starts(subscribe="orders") == [0, 3, 6]
    assert starts(subscribe="clicks") == []
    assert starts(assign='{"orders": [0]}', startingOffsets='{"orders": {"0": 4}}') == [4, 6]
    assert starts(startingTimestamp="1500") == [3, 6]
    assert starts(startingTimestamp="1500", endingTimestamp="2500") == [3]

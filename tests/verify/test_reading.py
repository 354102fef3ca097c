"""One side's log as digests: second fetches, damage, and errors that end a reading."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator

import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import IsolationLevel
from shoal.client.scan import PartitionReader
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, Disconnected, Stopped
from shoal.mirroring.model.copy_options import CopyOptions
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchedPartition
from shoal.records import Codec
from shoal.topic_partition import TopicPartition
from shoal.verify import Side, reading
from shoal.verify.buffered import BufferedBatches
from shoal.verify.errors import DamagedLog, NotDecodable
from shoal.verify.reading import LogReader
from tests import batches
from tests.two_brokers import ABORT, COMMIT, History, TwoBrokers, batches_of
from tests.verifying import flip


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


@pytest.fixture
def reader(brokers: TwoBrokers, history: History, stop: threading.Event) -> Iterator[LogReader]:
    with Cluster(brokers.settings.source) as cluster:
        cluster.refresh(["topic"])
        reader = LogReader(
            Side.SOURCE,
            cluster,
            TopicPartition("topic", 0),
            IsolationLevel.READ_COMMITTED,
            patience_s=0.5,
            stop=stop,
            options=CopyOptions(max_decompressed_bytes=2**20),
        )
        yield reader
        reader.close()


def empty_buffer(reader: LogReader) -> None:
    """Let a reader forget the batches of its last fetch, as the next fetch does."""
    reader._buffered = BufferedBatches(memoryview(b""))


def ranges(reader: LogReader, start: int, end: int, **options: int) -> list[tuple[int, int]]:
    return [(batch.base_offset, batch.next_offset) for batch in reader.digests(start, end, **options)]


def test_digests_are_of_the_batches_that_a_mirror_copies(reader: LogReader, history: History) -> None:
    history.plain(3).transaction(2, ends=ABORT).transaction(1, ends=COMMIT).empty(2).plain(2)
    found = list(reader.digests(0, history.next_offset))
    assert [(each.base_offset, each.next_offset, each.follows, each.gap_before) for each in found] == [
        (0, 3, 0, 0),
        (6, 7, 3, 0),
        (10, 12, 7, 2),
    ]
    assert reader.bytes_read == sum(len(batch.view) for batch in batches_of(history.log))


def test_digests_begin_with_the_batch_of_the_start_and_stop_before_the_end(
    reader: LogReader, history: History
) -> None:
    history.plain(3, 2, 4, 1)
    assert ranges(reader, 4, 9) == [(3, 5), (5, 9)]
    assert ranges(reader, 0, 3) == [(0, 3)]
    assert ranges(reader, 5, 5) == []


def test_digests_crop_the_batch_in_which_the_comparison_begins(reader: LogReader, history: History) -> None:
    history.plain(3, 2)
    first, second = reader.digests(1, 5, crop_at=1)
    assert (first.base_offset, first.next_offset, first.records_count, first.fingerprint) == (
        1,
        3,
        None,
        None,
    )
    assert second.fingerprint is not None
    assert [record.offset for record in reader.decode(first).records] == [1, 2]


def test_decode_uses_the_buffer_or_fetches_again(
    reader: LogReader, brokers: TwoBrokers, history: History
) -> None:
    history.plain(3, 2, 4, codec=Codec.LZ4)
    first, second, third = reader.digests(0, 9)
    before = reader.bytes_read
    assert [record.offset for record in reader.decode(second).records] == [3, 4]
    assert [record.offset for record in reader.decode(first).records] == [0, 1, 2]
    assert reader.bytes_read == before
    empty_buffer(reader)
    assert [record.offset for record in reader.decode(first).records] == [0, 1, 2]
    again = reader.bytes_read
    assert again > before
    # Those behind it came with it.
    brokers.source.faults.add(ApiKey.FETCH, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
    assert [record.offset for record in reader.decode(second).records] == [3, 4]
    assert [record.offset for record in reader.decode(third).records] == [5, 6, 7, 8]
    assert reader.bytes_read == again


def test_decode_retries_the_second_fetch(reader: LogReader, brokers: TwoBrokers, history: History) -> None:
    history.plain(3)
    (batch,) = reader.digests(0, 3)
    empty_buffer(reader)
    brokers.source.faults.add(ApiKey.FETCH, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    brokers.source.faults.add(ApiKey.FETCH, drop="before")
    assert len(reader.decode(batch).records) == 3


def test_decode_refuses_a_batch_damaged_meanwhile(reader: LogReader, history: History) -> None:
    history.plain(3)
    (batch,) = reader.digests(0, 3)
    empty_buffer(reader)
    flip(history.log, 0, -1)
    with pytest.raises(NotDecodable, match=r"0.*changed"):
        reader.decode(batch)


def test_decode_refuses_a_batch_that_is_too_large(reader: LogReader, history: History) -> None:
    history.store(history.batch(2**15, codec=Codec.GZIP))
    (batch,) = reader.digests(0, 2**15)
    with pytest.raises(NotDecodable, match=r"0.*decompressed"):
        reader.decode(batch)


def test_decode_returns_the_append_time(reader: LogReader, history: History) -> None:
    history.store(history.batch(2, flags=batches.LOG_APPEND_TIME))
    (batch,) = reader.digests(0, 2)
    decoded = reader.decode(batch)
    assert decoded.append_time == history.base_timestamp + 1
    assert [record.timestamp for record in decoded.records] == [
        history.base_timestamp,
        history.base_timestamp + 1,
    ]


def test_digests_of_many_fetches_are_complete(
    reader: LogReader, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BUFFER_BYTES", 80_000)
    monkeypatch.setattr("shoal.client.fetch.SMALLEST_PARTITION_MAX_BYTES", 1000)
    history.plain(*[5] * 200)
    assert ranges(reader, 0, 1000) == [(start, start + 5) for start in range(0, 1000, 5)]


def test_digests_fetch_a_batch_damaged_in_transit_again(
    reader: LogReader, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.plain(3, 2)
    receive = PartitionReader.receive
    flips = [-1]

    def receive_with_a_flip(self: PartitionReader) -> FetchedPartition:
        fetched = receive(self)
        if flips:
            record_set = bytearray(fetched.record_set)
            record_set[flips.pop()] ^= 1
            return dataclasses.replace(fetched, record_set=memoryview(record_set))
        return fetched

    monkeypatch.setattr(PartitionReader, "receive", receive_with_a_flip)
    first, second = reader.digests(0, 5)
    assert (first.damage, second.damage, flips) == (None, None, [])
    assert len(reader.decode(second).records) == 2


def test_digests_keep_the_damage_if_the_second_fetch_fails(
    reader: LogReader, brokers: TwoBrokers, history: History
) -> None:
    history.plain(3, 2)
    flip(history.log, 1, -1)
    brokers.source.faults.add(ApiKey.FETCH, times=1)
    brokers.source.faults.add(ApiKey.FETCH, drop="before")
    assert [bool(batch.damage) for batch in reader.digests(0, 5)] == [False, True]


def test_digests_end_a_damaged_batch_before_the_next(reader: LogReader, history: History) -> None:
    history.plain(3, 2, 1)
    flip(history.log, 1, 24, 3)  # it says that it has half a million offsets more
    found = list(reader.digests(0, 6))
    assert [(each.base_offset, each.next_offset) for each in found] == [(0, 3), (3, 5), (5, 6)]
    assert [bool(each.damage) for each in found] == [False, True, False]


def test_digests_keep_a_damaged_marker(reader: LogReader, history: History) -> None:
    history.transaction(2, ends=COMMIT).plain(1)
    flip(history.log, 1, -1)
    assert [bool(batch.damage) for batch in reader.digests(0, 4)] == [False, True, False]


def test_digests_include_messages_of_old_formats(reader: LogReader, history: History) -> None:
    history.store(batches.message(0, offset=0))
    history.store(batches.message(1, offset=1))
    inner = [batches.message(1, offset=offset) for offset in range(3)]
    history.store(batches.wrapper(1, Codec.GZIP, inner, offset=4))
    history.plain(1)
    found = list(reader.digests(0, 6))
    assert [
        (each.base_offset, each.next_offset, each.records_count, each.fingerprint is None) for each in found
    ] == [
        (0, 1, 1, True),
        (1, 2, 1, True),
        (2, 5, None, True),
        (5, 6, 1, False),
    ]
    assert [record.offset for record in reader.decode(found[2]).records] == [2, 3, 4]


def test_digests_raise_damaged_log_for_bytes_that_are_no_batches(reader: LogReader, history: History) -> None:
    history.plain(3, 2)
    flip(history.log, 1, 16, 3)
    found = reader.digests(0, 5)
    assert next(found).base_offset == 0
    with pytest.raises(DamagedLog, match=r"damaged.*3") as raised:
        next(found)
    assert (raised.value.side, raised.value.offset) == (Side.SOURCE, 3)


def test_digests_of_a_log_that_ends_early_raise_after_patience(reader: LogReader, history: History) -> None:
    history.plain(3)
    found = reader.digests(0, 5)
    assert next(found).base_offset == 0
    with pytest.raises(BrokerError, match=r"answer.*batch") as raised:
        next(found)
    assert raised.value.code == ErrorCode.OFFSET_NOT_AVAILABLE


def test_digests_without_a_leader_raise_after_patience(
    reader: LogReader, brokers: TwoBrokers, history: History
) -> None:
    history.plain(3)
    brokers.source.stop()
    with pytest.raises(Disconnected):
        next(reader.digests(0, 3))
    brokers.source.start()


def test_digests_raise_stopped_on_request(reader: LogReader, history: History, stop: threading.Event) -> None:
    history.plain(3)
    stop.set()
    with pytest.raises(Stopped):
        next(reader.digests(0, 3))


class StopWhileWaiting(threading.Event):
    """Is set as soon as a thread waits for it."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


@pytest.mark.parametrize("stop", [StopWhileWaiting()])
def test_digests_raise_stopped_while_waiting(
    reader: LogReader, brokers: TwoBrokers, history: History
) -> None:
    history.plain(3)
    brokers.source.faults.add(ApiKey.FETCH, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(Stopped):
        next(reader.digests(0, 3))

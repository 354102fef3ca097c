"""One side's log as digests: what is fetched again, what is damaged, what ends a reading."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import batches
import pytest
from two_brokers import ABORT, COMMIT, History, TwoBrokers, batches_of
from verifying import flip

from shoal.client.cluster import Cluster
from shoal.client.config import IsolationLevel
from shoal.client.metadata import TopicPartition
from shoal.errors import BrokerError, CorruptBatch, Disconnected, ErrorCode, Stopped
from shoal.mirroring.verify import Side, reading
from shoal.mirroring.verify.errors import DamagedLog
from shoal.mirroring.verify.reading import LogReader
from shoal.protocol.apis import ApiKey
from shoal.records import RecordBatch, verify_crc

pytestmark = pytest.mark.timeout(30)


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
        )
        yield reader
        reader.close()


def ranges(reader: LogReader, start: int, end: int, **options: int) -> list[tuple[int, int]]:
    return [(batch.base_offset, batch.next_offset) for batch in reader.digests(start, end, **options)]


def test_what_a_mirror_copies_is_read(reader: LogReader, history: History) -> None:
    history.plain(3).transaction(2, ends=ABORT).transaction(1, ends=COMMIT).empty(2).plain(2)
    found = list(reader.digests(0, history.next_offset))
    assert [(each.base_offset, each.next_offset, each.follows, each.gap_before) for each in found] == [
        (0, 3, 0, 0),
        (6, 7, 3, 0),
        (10, 12, 7, 2),
    ]
    assert reader.bytes_read == sum(len(batch.view) for batch in batches_of(history.log))


def test_the_range_begins_with_the_batch_that_holds_its_start_and_ends_before_its_end(
    reader: LogReader, history: History
) -> None:
    history.plain(3, 2, 4, 1)
    assert ranges(reader, 4, 9) == [(3, 5), (5, 9)]
    assert ranges(reader, 0, 3) == [(0, 3)]
    assert ranges(reader, 5, 5) == []


def test_a_batch_in_the_middle_of_which_the_mirror_began_is_not_decoded(
    reader: LogReader, history: History
) -> None:
    history.plain(3, 2)
    first, second = reader.digests(1, 5, mirrored_from=1)
    assert (first.records_count, first.fingerprint) == (None, None)
    assert "in the middle" in str(first.undecoded)
    assert second.undecoded is None


def test_a_topic_is_read_by_many_fetches(
    reader: LogReader, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_BUFFER_BYTES", 80_000)
    monkeypatch.setattr("shoal.client.fetch._SMALLEST_PARTITION_MAX_BYTES", 1000)
    history.plain(*[5] * 200)
    assert ranges(reader, 0, 1000) == [(start, start + 5) for start in range(0, 1000, 5)]


def test_what_was_damaged_on_its_way_is_fetched_again(
    reader: LogReader, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.plain(3, 2)
    failures = [CorruptBatch("a bit flipped on its way", 3)]

    def verify_once(batch: RecordBatch) -> None:
        if batch.header.base_offset == 3 and failures:
            raise failures.pop()
        verify_crc(batch)

    monkeypatch.setattr(reading, "verify_crc", verify_once)
    assert [batch.damage for batch in reader.digests(0, 5)] == [None, None]
    assert not failures


def test_a_second_look_that_fails_leaves_the_damage(
    reader: LogReader, brokers: TwoBrokers, history: History
) -> None:
    history.plain(3, 2)
    flip(history.log, 1, -1)
    brokers.source.faults.add(ApiKey.FETCH, times=1)
    brokers.source.faults.add(ApiKey.FETCH, drop="before")
    assert [bool(batch.damage) for batch in reader.digests(0, 5)] == [False, True]


def test_a_damaged_batch_ends_where_the_next_begins(reader: LogReader, history: History) -> None:
    history.plain(3, 2, 1)
    flip(history.log, 1, 24, 3)  # it says that it has half a million offsets more
    found = list(reader.digests(0, 6))
    assert [(each.base_offset, each.next_offset) for each in found] == [(0, 3), (3, 5), (5, 6)]
    assert [bool(each.damage) for each in found] == [False, True, False]


def test_a_damaged_marker_is_not_dropped(reader: LogReader, history: History) -> None:
    history.transaction(2, ends=COMMIT).plain(1)
    flip(history.log, 1, -1)
    assert [bool(batch.damage) for batch in reader.digests(0, 4)] == [False, True, False]


def test_messages_of_old_formats_are_read(reader: LogReader, history: History) -> None:
    history.store(batches.message(0, offset=0))
    history.store(batches.message(1, offset=1))
    history.plain(1)
    found = list(reader.digests(0, 3))
    assert [(each.base_offset, each.records_count, bool(each.undecoded)) for each in found] == [
        (0, None, True),
        (1, None, True),
        (2, 1, False),
    ]


def test_bytes_that_are_no_batches_end_the_reading(reader: LogReader, history: History) -> None:
    history.plain(3, 2)
    flip(history.log, 1, 16, 3)
    found = reader.digests(0, 5)
    assert next(found).base_offset == 0
    with pytest.raises(DamagedLog, match="source cluster is damaged at offset 3") as raised:
        next(found)
    assert (raised.value.side, raised.value.offset) == (Side.SOURCE, 3)


def test_a_log_that_ends_earlier_than_it_should_ends_patience(reader: LogReader, history: History) -> None:
    history.plain(3)
    found = reader.digests(0, 5)
    assert next(found).base_offset == 0
    with pytest.raises(BrokerError, match="nothing came") as raised:
        next(found)
    assert raised.value.code == ErrorCode.OFFSET_NOT_AVAILABLE


def test_a_leader_that_is_gone_ends_patience(
    reader: LogReader, brokers: TwoBrokers, history: History
) -> None:
    history.plain(3)
    brokers.source.stop()
    with pytest.raises(Disconnected):
        next(reader.digests(0, 3))
    brokers.source.start()


def test_a_reading_is_stopped(reader: LogReader, history: History, stop: threading.Event) -> None:
    history.plain(3)
    stop.set()
    with pytest.raises(Stopped):
        next(reader.digests(0, 3))


class StopWhileWaiting(threading.Event):
    """Is set as soon as somebody waits for it."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


@pytest.mark.parametrize("stop", [StopWhileWaiting()])
def test_a_reading_that_waits_is_stopped(reader: LogReader, brokers: TwoBrokers, history: History) -> None:
    history.plain(3)
    brokers.source.faults.add(ApiKey.FETCH, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(Stopped):
        next(reader.digests(0, 3))

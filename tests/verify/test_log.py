"""One side's log as runs and records: what is left out, damage, second fetches, and errors."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator

import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import IsolationLevel
from shoal.client.scan import PartitionReader
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, Stopped
from shoal.mirroring.model.copy_options import CopyOptions
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchedPartition
from shoal.topic_partition import TopicPartition
from shoal.verify import OffsetRange, Side
from shoal.verify.errors import DamagedLog
from shoal.verify.log import Log, LogRecord
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of
from tests.world.history import ABORT, COMMIT, History
from tests.world.verifying import flip


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


@pytest.fixture
def log(brokers: TwoBrokers, history: History, stop: threading.Event) -> Iterator[Log]:
    with Cluster(brokers.settings.source) as cluster:
        cluster.refresh(["topic"])
        yield Log(
            Side.SOURCE,
            cluster,
            TopicPartition("topic", 0),
            IsolationLevel.READ_COMMITTED,
            OffsetRange(0, 100_000),
            patience_s=0.5,
            stop=stop,
            options=CopyOptions(max_decompressed_bytes=2**20),
        )


def runs(log: Log, start: int, end: int) -> list[tuple[int, int, int, bool]]:
    """Return offsets, gap, and whether there are rows, of each run."""
    return [(each.offset, each.end, each.gap, bool(each.rows)) for each in log.runs(start, end)]


def offsets(log: Log, start: int, end: int) -> list[int]:
    return [each.offset for each in log.records(start, end)]


def damaged(log: Log, start: int, end: int) -> list[LogRecord]:
    return [each for each in log.records(start, end) if each.unreadable and each.unreadable.is_damaged]


def test_runs_are_of_the_batches_that_a_mirror_copies(log: Log, history: History) -> None:
    history.plain(3).transaction(2, ends=ABORT).transaction(1, ends=COMMIT).empty(2).plain(2)
    assert runs(log, 0, history.next_offset) == [(0, 3, 0, True), (6, 7, 0, True), (10, 12, 2, True)]
    assert log.bytes_read == sum(len(batch.view) for batch in batches_of(history.log))


def test_runs_of_many_fetches_are_complete(
    log: Log, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.verify.log.BUFFER_BYTES", 80_000)
    monkeypatch.setattr("shoal.client.fetch.SMALLEST_PARTITION_MAX_BYTES", 1000)
    history.plain(*[5] * 200)
    assert offsets(log, 0, 1000) == list(range(1000))


def test_batch_damaged_in_transit_is_fetched_again(
    log: Log, history: History, monkeypatch: pytest.MonkeyPatch
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
    found = list(log.records(0, 5))
    assert ([each.unreadable for each in found], flips) == ([None] * 5, [])


def test_batch_stays_damaged_if_the_second_fetch_fails(
    log: Log, brokers: TwoBrokers, history: History
) -> None:
    history.plain(3, 2)
    flip(history.log, 1, -1)
    brokers.source.faults.add(ApiKey.FETCH, times=1)
    brokers.source.faults.add(ApiKey.FETCH, drop="before")
    assert [(each.offset, each.records) for each in damaged(log, 0, 5)] == [(3, 2)]


def test_bytes_that_are_no_batches_end_the_log(log: Log, history: History) -> None:
    history.plain(3, 2)
    flip(history.log, 1, 16, 3)
    found = log.runs(0, 5)
    assert next(found).offset == 0
    with pytest.raises(DamagedLog, match=r"damaged.*3") as raised:
        next(found)
    assert (raised.value.side, raised.value.offset) == (Side.SOURCE, 3)
    assert offsets(log, 0, 5) == [0, 1, 2]


def test_log_that_ends_early_raises_after_patience(log: Log, history: History) -> None:
    history.plain(3)
    found = log.runs(0, 5)
    assert next(found).offset == 0
    with pytest.raises(BrokerError, match=r"answer.*batch") as raised:
        next(found)
    assert raised.value.code == ErrorCode.OFFSET_NOT_AVAILABLE


class StopWhileWaiting(threading.Event):
    """Is set as soon as a thread waits for it."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


@pytest.mark.parametrize("stop", [StopWhileWaiting()])
def test_runs_raise_stopped_while_waiting(log: Log, brokers: TwoBrokers, history: History) -> None:
    history.plain(3)
    brokers.source.faults.add(ApiKey.FETCH, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(Stopped):
        next(log.runs(0, 3))

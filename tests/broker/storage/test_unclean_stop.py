"""A broker whose data directory was not closed: killed, torn, damaged, or on a full disk."""

import gc
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.error_codes import ErrorCode
from shoal.errors import ConfigError
from shoal.protocol.apis import ApiKey
from shoal.records import split
from shoal_broker import ApiError, Broker
from tests.batches import TRANSACTIONAL, batch
from tests.broker.storage.directories import fetched_payloads, segments, serving, stored
from tests.broker.wire import PATIENCE_S, Wire
from tests.two_brokers import wait_until

T = TypeVar("T")


def killed(data: Path) -> None:
    """Change a directory to the state after a kill."""
    (data / ".kafka_cleanshutdown").unlink()


SAME_FIXTURES = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SAME_FIXTURES
@given(share=st.floats(0, 1, exclude_max=True), garbage=st.binary(max_size=100))
def test_torn_tail_alone_is_cut(
    tmp_path_factory: pytest.TempPathFactory, share: float, garbage: bytes
) -> None:
    data = tmp_path_factory.mktemp("torn")
    with serving(data) as (broker, wire):
        broker.create_topic("topic")
        for _ in range(3):
            wire.produce("topic", batch(2))
        whole = stored(wire)
    killed(data)
    size = len(whole) // 3
    left = int(len(whole) * share)
    (segment,) = segments(data)
    torn = whole[:left] + garbage
    segment.write_bytes(torn)
    with serving(data) as (_, wire):
        # The garbage may be what was there.
        kept = max(number for number in range(4) if torn.startswith(whole[: number * size]))
        assert wire.end_offset("topic") == 2 * kept
        assert segment.read_bytes() == whole[: kept * size]
        assert wire.produce("topic", batch(1)).base_offset == 2 * kept


@pytest.mark.parametrize("was_clean", [True, False])
def test_flipped_bit_is_found_after_a_kill(data: Path, was_clean: bool) -> None:
    with serving(data) as (broker, wire):
        broker.create_topic("topic")
        for _ in range(3):
            wire.produce("topic", batch(2))
    (segment,) = segments(data)
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    segment.write_bytes(damaged)
    if not was_clean:
        killed(data)
    with serving(data) as (_, wire):
        assert wire.end_offset("topic") == (6 if was_clean else 2)


def test_segments_after_a_torn_one_are_deleted(data: Path) -> None:
    with serving(data) as (broker, wire):
        broker.create_topic("topic", config={"segment.bytes": str(1 << 20)})
        for _ in range(5):
            wire.produce("topic", batch([b"x" * 600_000]))
    killed(data)
    with segments(data)[2].open("r+b") as file:
        file.truncate(1000)
    with serving(data) as (_, wire):
        assert wire.end_offset("topic") == 2
        assert [int(path.stem) for path in segments(data)] == [0, 1, 2]


def test_cut_journal_line_is_ignored(data: Path) -> None:
    with serving(data) as (broker, wire):
        broker.create_topic("topic")
        wire.commit("group", "topic", 7)
    with (data / "journal.jsonl").open("ab") as file:
        file.write(b'["offset",["group","top')
    with serving(data) as (_, wire):
        assert wire.committed("group", "topic").committed_offset == 7


def test_journal_damaged_in_its_middle_is_refused(data: Path) -> None:
    with serving(data) as (broker, _):
        broker.create_topic("topic")
    journal = data / "journal.jsonl"
    journal.write_bytes(b"garbage\n" + journal.read_bytes())
    with pytest.raises(ConfigError, match="line 1"):
        Broker(data=data)
    journal.write_bytes(journal.read_bytes().removeprefix(b"garbage\n"))
    Broker(data=data).stop()  # the directory is not locked


@contextmanager
def limited(what: int, most: int) -> Iterator[None]:
    """A limit of the system, as far as this process can see."""
    before = resource.getrlimit(what)
    resource.setrlimit(what, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(what, before)


def no_file_larger_than(size: int) -> AbstractContextManager[None]:
    """A disk that is full."""
    return limited(resource.RLIMIT_FSIZE, size)


def no_more_files_than(count: int) -> AbstractContextManager[None]:
    """
    So many besides those that are open, at most.

    A thread of a former broker may end meanwhile, and with it close some more: want hundreds too many.
    """
    gc.collect()  # the files of former brokers
    spare = os.dup(0)
    os.close(spare)
    return limited(resource.RLIMIT_NOFILE, spare + count)


def test_full_disk_refuses_without_partial_write(data: Path) -> None:
    with serving(data) as (broker, wire):
        broker.create_topic("topic")
        wire.produce("topic", batch(2))
        (segment,) = segments(data)
        before = segment.read_bytes()
        with no_file_larger_than(len(before) + 1000):
            answer = wire.produce("topic", batch([b"x" * 5000]))
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert segment.read_bytes() == before
        assert wire.produce("topic", batch(1)).base_offset == 2


def test_changes_refused_by_a_full_disk_succeed_later(data: Path) -> None:
    with serving(data) as (broker, wire):
        wire.create_topic("topic")
        with no_file_larger_than((data / "journal.jsonl").stat().st_size + 10):
            assert wire.create_topic("other").error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert wire.commit("group", "topic", 3) == ErrorCode.KAFKA_STORAGE_ERROR
            assert wire.committed("group", "topic").committed_offset == -1
        assert broker.topics.get("other") is None
        assert wire.create_topic("other").error_code == ErrorCode.NONE
    with serving(data) as (broker, wire):
        assert sorted(topic.name for topic in broker.topics) == ["other", "topic"]


@pytest.mark.parametrize("committed", [True, False])
def test_transaction_whose_marker_could_not_be_written_is_ended_later(data: Path, committed: bool) -> None:
    def end() -> ErrorCode:
        answer = wire.call(
            ApiKey.END_TXN,
            3,
            transactional_id="id",
            producer_id=producer_id,
            producer_epoch=0,
            committed=committed,
        )
        return ErrorCode(answer.error_code)

    with serving(data) as (broker, wire):
        broker.create_topic("topic")
        producer_id = wire.init_producer_id("id").producer_id
        sent = batch(
            [b"x" * 100_000],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            flags=TRANSACTIONAL,
        )
        wire.produce("topic", sent, version=12, transactional_id="id")
        with no_file_larger_than(len(sent) + 10):
            assert end() == ErrorCode.KAFKA_STORAGE_ERROR
            assert wire.end_offset("topic", committed=True) == 0
        assert end() == ErrorCode.NONE
        assert wire.end_offset("topic", committed=True) == wire.end_offset("topic") == 2
        aborted = wire.fetch("topic", committed=True).aborted_transactions
        assert list(aborted) == ([] if committed else [(producer_id, 0)])


def test_more_partitions_than_open_files_allowed_are_refused(data: Path) -> None:
    with serving(data) as (broker, wire):
        wire.create_topic("topic")
        with no_more_files_than(20):
            assert wire.create_topic("other", 500).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            with pytest.raises(ApiError):
                broker.topics.grow(broker.topics.topic("topic"), 500)
        assert len(broker.topics.topic("topic").logs) == 1
        assert wire.create_topic("other", 50).error_code == ErrorCode.NONE
        assert wire.produce("other", batch(), partition=49).error_code == ErrorCode.NONE
    with no_more_files_than(20), pytest.raises(ConfigError, match="Too many open files"):
        Broker(data=data)


def test_index_that_cannot_be_written_is_completed_later(data: Path) -> None:
    with serving(data, log_index_interval_bytes="0") as (broker, wire):
        broker.create_topic("topic")
        (segment,) = segments(data)
        index = segment.with_suffix(".index")
        index.rename(index.with_name("aside"))
        index.mkdir()
        assert [wire.produce("topic", batch()).base_offset for _ in range(3)] == [0, 1, 2]
        index.rmdir()
        index.with_name("aside").rename(index)
        assert [offset for offset, _ in fetched_payloads(wire)] == [0, 1, 2]
        wire.produce("topic", batch())
    entries = list(struct.iter_unpack(">ii", index.read_bytes()))
    assert entries == [(number, number * len(batch())) for number in (1, 2, 3)]


def test_segment_that_cannot_be_created_refuses_until_it_can(data: Path) -> None:
    with serving(data) as (broker, wire):
        broker.create_topic("topic", config={"segment.bytes": str(1 << 20)})
        large = batch([b"x" * 600_000])
        wire.produce("topic", large)
        (segment,) = segments(data)
        in_the_way = segment.with_name("00000000000000000001.log")
        in_the_way.mkdir()
        assert wire.produce("topic", large).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        in_the_way.rmdir()
        assert wire.produce("topic", large).base_offset == 1


def test_refused_topic_leaves_no_directories(data: Path) -> None:
    with serving(data) as (broker, wire):
        wire.create_topic("topic")
        with no_more_files_than(20):
            assert wire.create_topic("other", 500).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            with pytest.raises(ApiError):
                broker.topics.grow(broker.topics.topic("topic"), 500)
        with no_file_larger_than((data / "journal.jsonl").stat().st_size + 10):
            assert wire.create_topic("third", 3).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert sorted(each.name for each in data.iterdir() if each.is_dir()) == ["topic-0"]


class SlowDirectory:
    """Lets the third partition of a topic wait for its directory."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waits, self.goes_on = threading.Event(), threading.Event()
        directories = broker.topics._data
        assert directories is not None
        self._make = directories.partition
        monkeypatch.setattr(directories, "partition", self._partition)

    def _partition(self, topic: str, number: int, topic_id: uuid.UUID) -> Path:
        if number == 2:
            self.waits.set()
            assert self.goes_on.wait(PATIENCE_S)
        return self._make(topic, number, topic_id)


def test_topics_are_found_while_another_is_created(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(data) as (broker, wire), ThreadPoolExecutor(1) as pool:
        wire.create_topic("topic")
        slow = SlowDirectory(broker, monkeypatch)
        created = pool.submit(broker.create_topic, "large", 5)
        assert slow.waits.wait(PATIENCE_S)
        found = at_once(lambda: [topic.name for topic in broker.topics])
        refused = at_once(lambda: wire.create_topic("topic").error_code)
        slow.goes_on.set()
        assert found == ["topic"]
        assert refused == ErrorCode.TOPIC_ALREADY_EXISTS
        assert len(created.result(PATIENCE_S).logs) == 5


def at_once(call: Callable[[], T]) -> T:
    """Call a function that must not wait for the others."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(PATIENCE_S)


def test_stopping_broker_creates_no_further_partition(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(data) as (broker, _), ThreadPoolExecutor(2) as pool:
        slow = SlowDirectory(broker, monkeypatch)
        created = pool.submit(broker.create_topic, "large", 5)
        assert slow.waits.wait(PATIENCE_S)
        stopped = pool.submit(broker.stop)
        wait_until(lambda: broker.topics.closing)
        slow.goes_on.set()
        with pytest.raises(ApiError, match="large-3 was not created: the broker is stopping"):
            created.result(PATIENCE_S)
        stopped.result(PATIENCE_S)
        assert [each.name for each in data.iterdir() if each.is_dir()] == []
    with serving(data) as (_, wire):
        assert wire.create_topic("large", 5).error_code == ErrorCode.NONE


def test_broker_stopped_with_a_full_disk_checks_batches_at_the_next_start(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(data, log_index_interval_bytes="0") as (broker, wire):
        broker.create_topic("topic")
        wire.produce("topic", batch(2))
        with no_file_larger_than(1):
            broker.stop()
        assert broker.failure is None
        assert "was not closed cleanly" in caplog.text
        assert not (data / ".kafka_cleanshutdown").exists()
    (data / ".kafka_cleanshutdown").unlink()
    with serving(data) as (_, wire):
        assert wire.end_offset("topic") == 2


# Killed


@contextmanager
def process(data: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `shoal-broker` in a process of its own; give its address."""
    command = [
        sys.executable,
        "-m",
        "shoal_broker",
        "--listen",
        "127.0.0.1:0",
        "--data",
        str(data),
        *options,
    ]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    try:
        yield running, running.stdout.readline().rsplit(maxsplit=1)[-1]
    finally:
        running.kill()
        running.wait()
        running.stdout.close()


class _Load(threading.Thread):
    """Produces batches to one partition until the broker is gone; records the acknowledged ones."""

    def __init__(self, address: str, partition: int) -> None:
        super().__init__()
        self._address = address
        self._partition = partition
        self.acknowledged = 0

    def run(self) -> None:
        with Wire(self._address) as wire:
            sequence = 0
            while True:
                sent = batch(
                    [b"%d" % (sequence + number) * 50 for number in range(10)],
                    producer_id=7,
                    producer_epoch=0,
                    base_sequence=sequence,
                )
                try:
                    answer = wire.produce("load", sent, partition=self._partition)
                except (AssertionError, OSError):
                    return
                assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, sequence)
                sequence += 10
                self.acknowledged = sequence


@pytest.mark.parametrize("flush", [False, True])
def test_acknowledged_records_survive_a_kill_under_load(data: Path, flush: bool) -> None:
    options = ["--config", "log.flush.interval.messages=1"] if flush else []
    with process(data, *options) as (running, address):
        with Wire(address) as wire:
            assert wire.create_topic("load", 3, segment_bytes=str(1 << 20)).error_code == ErrorCode.NONE
        loads = [_Load(address, partition) for partition in range(3)]
        for load in loads:
            load.start()
        # Each of their requests may be a flush, and the disk a slow one.
        wait_until(lambda: min(load.acknowledged for load in loads) >= 1000, timeout_s=100)
        running.send_signal(signal.SIGKILL)
        for load in loads:
            load.join(PATIENCE_S)
    with process(data) as (_, address), Wire(address) as wire:
        for partition, load in enumerate(loads):
            end = wire.end_offset("load", partition=partition)
            # One request was under way, and may have been written.
            assert load.acknowledged <= end <= load.acknowledged + 10
            assert _sequences(wire, partition, end) == list(range(0, end, 10))


def _sequences(wire: Wire, partition: int, end: int) -> list[int]:
    found: list[int] = []
    offset = 0
    while offset < end:
        fetched = wire.fetch("load", offset, partition=partition)
        for each in split(memoryview(bytes(fetched.record_set))):
            assert each.header.base_offset == each.header.base_sequence
            found.append(each.header.base_sequence)
            offset = each.header.next_offset
    return found

"""A broker with a data directory: the state that survives its end, clean or not."""

import errno
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
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.broker import ApiError, Broker
from shoal.broker.clock import now_ms
from shoal.broker.storage import journal
from shoal.broker.storage.journal import Journal
from shoal.broker.storage.log_dir_failure import LogDirFailure
from shoal.broker.storage.ranges import FileRange
from shoal.error_codes import ErrorCode
from shoal.errors import ConfigError
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal.records import split
from tests.batches import TRANSACTIONAL, batch
from tests.broker.wire import PATIENCE_S, Wire
from tests.two_brokers import wait_until

T = TypeVar("T")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@contextmanager
def serving(data: Path, **config: str) -> Iterator[tuple[Broker, Wire]]:
    """Run a broker over a directory, and connect to it."""
    settings_by_name = {key.replace("_", "."): value for key, value in config.items()}
    with Broker(data=data, config=settings_by_name) as broker, Wire(broker.bootstrap) as wire:
        yield broker, wire


def stored(wire: Wire, topic: str = "topic", offset: int = 0) -> bytes:
    """Read all that one answer holds."""
    return bytes(wire.fetch(topic, offset, partition_max_bytes=1 << 26, max_bytes=1 << 26).record_set)


def segments(data: Path, partition: str = "topic-0") -> list[Path]:
    return sorted((data / partition).glob("*.log"))


# Stopped cleanly


def test_created_directory_is_private(data: Path) -> None:
    with Broker(data=data):
        assert data.stat().st_mode & 0o777 == 0o700


def test_existing_directory_keeps_its_mode(data: Path) -> None:
    data.mkdir()
    data.chmod(0o755)
    with Broker(data=data):
        assert data.stat().st_mode & 0o777 == 0o755


def test_records_topics_and_settings_survive_a_restart(data: Path) -> None:
    with serving(data) as (broker, wire):
        created = broker.create_topic("topic", 3, {"retention.ms": "-1"})
        wire.produce("topic", batch(3), partition=2)
        before = bytes(wire.fetch("topic", partition=2).record_set)
        cluster_id = broker.cluster_id
    with serving(data) as (broker, wire):
        topic = broker.topics.topic("topic")
        assert (topic.topic_id, len(topic.logs), topic.overrides) == (
            created.topic_id,
            3,
            {"retention.ms": "-1"},
        )
        assert bytes(wire.fetch("topic", partition=2).record_set) == before
        assert broker.cluster_id == cluster_id


def test_segment_file_has_the_fetched_bytes(data: Path) -> None:
    with serving(data) as (broker, wire):
        broker.create_topic("topic")
        for _ in range(3):
            wire.produce("topic", batch(5))
        (segment,) = segments(data)
        assert segment.name == "00000000000000000000.log"
        assert segment.read_bytes() == stored(wire)


def test_read_returns_a_range_of_the_file(data: Path) -> None:
    with serving(data) as (broker, wire):
        log = broker.create_topic("topic").logs[0]
        wire.produce("topic", batch(5))
        read = log.read(0, 1 << 20, committed=False, at_least_one_batch=True)
        assert isinstance(read.record_set, FileRange)


def test_response_larger_than_socket_buffers_arrives_whole(data: Path) -> None:
    with serving(data, message_max_bytes=str(1 << 26)) as (broker, wire):
        broker.create_topic("topic", 2)
        big = [batch([bytes([number]) * (9 << 20)]) for number in range(2)]
        for number in range(2):
            assert wire.produce("topic", big[number], partition=number).error_code == ErrorCode.NONE
        answer = wire.fetch_all(
            [("topic", 0, 0), ("topic", 1, 0)], max_bytes=1 << 25, partition_max_bytes=1 << 25
        )
        for number, fetched in enumerate(answer.partitions):
            assert fetched.record_set[16:] == big[number][16:]


def test_leader_epochs_continue_after_a_restart(data: Path) -> None:
    for epoch in range(3):
        with serving(data) as (broker, wire):
            if epoch == 0:
                broker.create_topic("topic")
            wire.produce("topic", batch(2))
            assert wire.fetch("topic", leader_epoch=epoch).error_code == ErrorCode.NONE
            for past in range(epoch + 1):
                assert wire.end_of_epoch("topic", past).end_offset == 2 * past + 2


def test_leader_epoch_without_records_is_not_reused(data: Path) -> None:
    epochs = []
    for number in range(3):
        with serving(data) as (broker, _):
            log = broker.log("topic") if number else broker.create_topic("topic").logs[0]
            epochs.append(log.leader_epoch)
    assert epochs == [0, 1, 2]


def with_producer(sequence: int, producer_id: int = 5, **fields: Any) -> bytearray:
    return batch(
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        base_timestamp=now_ms(),
        **fields,
    )


def test_producers_continue_their_sequences_after_a_restart(data: Path) -> None:
    batches = [with_producer(sequence) for sequence in range(7)]
    with serving(data) as (broker, wire):
        broker.create_topic("topic")
        for each in batches:
            wire.produce("topic", each)
    with serving(data) as (broker, wire):
        assert [wire.produce("topic", each).base_offset for each in batches[2:]] == [2, 3, 4, 5, 6]
        assert wire.produce("topic", batches[1]).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert wire.produce("topic", with_producer(8)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert wire.produce("topic", with_producer(7)).base_offset == 7


def test_producer_ids_are_not_reused_after_a_restart(data: Path) -> None:
    given_ids = []
    for _ in range(3):
        with serving(data) as (_, wire):
            given_ids += [wire.init_producer_id().producer_id for _ in range(3)]
    assert len(set(given_ids)) == 9


def test_group_offsets_survive_a_restart_and_deleted_ones_do_not(data: Path) -> None:
    with serving(data) as (broker, wire):
        broker.create_topic("topic")
        wire.commit("group", "topic", 7, metadata="a pair")
        wire.commit("gone", "topic", 8)
        broker.groups.delete("gone")
    with serving(data) as (_, wire):
        found = wire.committed("group", "topic")
        assert (found.committed_offset, found.metadata) == (7, "a pair")
        assert wire.committed("gone", "topic").committed_offset == -1


def test_altered_settings_survive_a_restart(data: Path) -> None:
    resource = request_class(ApiKey.ALTER_CONFIGS).AlterConfigsResource
    with serving(data) as (broker, wire):
        broker.create_topic("topic")
        for kind, name, setting in ((2, "topic", "max.message.bytes"), (4, "1", "message.max.bytes")):
            wire.call(
                ApiKey.ALTER_CONFIGS,
                2,
                resources=[
                    resource(
                        resource_type=kind,
                        resource_name=name,
                        configs=[resource.AlterableConfig(name=setting, value="700")],
                    )
                ],
                validate_only=False,
            )
    with serving(data) as (broker, wire):
        assert broker.topics.topic("topic").overrides == {"max.message.bytes": "700"}
        assert broker.config["message.max.bytes"] == "700"


def test_deleted_records_and_topics_stay_deleted(data: Path) -> None:
    with serving(data) as (broker, wire):
        for name in ("topic", "gone"):
            broker.create_topic(name)
            for _ in range(3):
                wire.produce(name, batch(2))
        wire.delete_records("topic", 4)
        broker.topics.delete(broker.topics.topic("gone"))
        assert not (data / "gone-0").exists()
    with serving(data) as (broker, wire):
        assert broker.topics.get("gone") is None
        assert broker.log("topic").log_start_offset == 4
        broker.create_topic("gone")
        assert wire.end_offset("gone") == 0


def test_deleted_records_leave_the_offsets(data: Path) -> None:
    with serving(data) as (broker, wire):
        broker.create_topic("topic")
        wire.produce("topic", batch(5))
        wire.delete_records("topic", -1)
    with serving(data) as (_, wire):
        assert wire.produce("topic", batch()).base_offset == 5


def test_records_deleted_by_retention_stay_deleted(data: Path) -> None:
    with serving(data) as (broker, wire):
        broker.create_topic("topic", config={"segment.bytes": str(1 << 20), "retention.bytes": "0"})
        for _ in range(4):
            wire.produce("topic", batch([b"x" * 400_000]))
        broker.log("topic").delete_old_segments(now_ms())
        start = broker.log("topic").log_start_offset
        assert start > 0
        kept = segments(data)
    with serving(data) as (broker, wire):
        assert broker.log("topic").log_start_offset == start
        assert wire.fetch("topic", start - 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert segments(data) == kept


def test_open_transaction_continues_after_a_restart(data: Path) -> None:
    with serving(data) as (broker, wire):
        broker.create_topic("topic")
        producer_id = wire.init_producer_id("id").producer_id
        answer = wire.produce(
            "topic", with_producer(0, producer_id, flags=TRANSACTIONAL), version=12, transactional_id="id"
        )
        assert answer.error_code == ErrorCode.NONE
    with serving(data) as (_, wire):
        assert wire.end_offset("topic", committed=True) == 0
        ended = wire.call(
            ApiKey.END_TXN,
            3,
            transactional_id="id",
            producer_id=producer_id,
            producer_epoch=0,
            committed=False,
        )
        assert ended.error_code == ErrorCode.NONE
        assert wire.end_offset("topic", committed=True) == 2
    with serving(data) as (_, wire):
        assert list(wire.fetch("topic", committed=True).aborted_transactions) == [(producer_id, 0)]


def test_transaction_in_preparation_is_ended_at_the_start(data: Path) -> None:
    with serving(data) as (broker, wire):
        broker.create_topic("topic")
        producer_id = wire.init_producer_id("id").producer_id
        wire.produce(
            "topic", with_producer(0, producer_id, flags=TRANSACTIONAL), version=12, transactional_id="id"
        )
        (fact,) = [fact for _, fact in broker.journal.facts("transaction")]
        broker.journal.put("transaction", "id", value={**fact, "state": "PrepareCommit"})
    with serving(data) as (_, wire):
        assert wire.end_offset("topic", committed=True) == 2


def test_rolled_segments_are_read_after_a_restart(data: Path) -> None:
    with serving(data) as (broker, wire):
        broker.create_topic("topic", config={"segment.bytes": str(1 << 20)})
        for _ in range(7):
            wire.produce("topic", batch([b"x" * 400_000]))
        assert [int(path.stem) for path in segments(data)] == [0, 2, 4, 6]
    with serving(data) as (broker, wire):
        assert wire.end_offset("topic") == 7
        for offset in range(7):
            found = next(split(memoryview(stored(wire, offset=offset))))
            assert found.header.base_offset == offset
        wire.delete_records("topic", 5)
        assert [int(path.stem) for path in segments(data)] == [4, 6]


def test_restarted_broker_continues_in_its_files(data: Path) -> None:
    with serving(data) as (broker, wire):
        broker.create_topic("topic")
        wire.produce("topic", batch(2))
        broker.stop()
        broker.start()
        with Wire(broker.bootstrap) as again:
            assert again.produce("topic", batch(3)).base_offset == 2
    with serving(data) as (_, wire):
        assert wire.end_offset("topic") == 5


def test_broker_refuses_to_start_on_files_changed_by_another(data: Path) -> None:
    with serving(data) as (broker, _):
        broker.stop()
        with serving(data) as (other, _):
            other.create_topic("topic")
        with pytest.raises(ConfigError, match="another broker since"):
            broker.start()


def test_directory_in_use_is_refused(data: Path) -> None:
    with serving(data), pytest.raises(ConfigError, match="in use"):
        Broker(data=data)


def test_topic_with_the_longest_name_is_deleted(data: Path) -> None:
    with serving(data) as (broker, _):
        topic = broker.create_topic("t" * 249, 2)
        broker.topics.delete(topic)
        assert not any(path.is_dir() for path in data.iterdir())
        broker.create_topic(topic.name)
    with serving(data) as (broker, _):
        assert broker.topics.get(topic.name)


def test_first_start_can_be_repeated_after_any_flush(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flush = os.fsync
    left = number = 0

    def ends_once(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise SystemExit
        flush(descriptor)

    first = None
    while first is None:
        left = number = number + 1
        with monkeypatch.context() as first_start, suppress(SystemExit):
            first_start.setattr(os, "fsync", ends_once)
            first = Broker(data=data / str(number))
        if first is None:
            Broker(data=data / str(number)).stop()
    first.stop()
    assert number > 4


def test_directory_of_another_cluster_or_node_is_refused(data: Path) -> None:
    with serving(data):
        pass
    with pytest.raises(ConfigError, match=r"cluster\.id"):
        Broker(data=data, cluster_id="another")
    with pytest.raises(ConfigError, match=r"node\.id"):
        Broker(data=data, node_id=7)


# Not stopped cleanly


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
    segment.write_bytes(whole[:left] + garbage)
    with serving(data) as (_, wire):
        kept = left // size
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


def _fetched(wire: Wire) -> list[tuple[int, bytes]]:
    """Offset and payload of every batch of the topic."""
    found = split(memoryview(bytes(wire.fetch("topic").record_set)))
    return [(each.header.base_offset, bytes(each.payload)) for each in found]


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
        assert [offset for offset, _ in _fetched(wire)] == [0, 1, 2]
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


# The journal


@pytest.fixture
def small_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrite the journal after every two or three facts."""
    monkeypatch.setattr(journal, "_LARGE_BYTES", 150)


def put_many(kept: Journal, count: int = 20) -> None:
    for number in range(count):
        kept.put("fact", "key", value="x" * 40 + str(number))


@pytest.mark.usefixtures("small_journal")
@pytest.mark.parametrize("failing", ["open", "write", "replace"])
def test_journal_that_cannot_be_rewritten_continues(
    data: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    data.mkdir()
    kept = Journal(data)
    with monkeypatch.context() as disk:
        if failing == "open":
            disk.setattr(os, "open", _raising(errno.EMFILE))
        elif failing == "replace":
            disk.setattr(Path, "replace", _raising(errno.ENOSPC))
        else:
            disk.setattr(journal, "flush_file", _raising(errno.ENOSPC))
        put_many(kept)
        assert not (data / "journal.new").exists()
    assert dict(Journal(data).facts("fact")) == {("key",): "x" * 40 + "19"}
    assert kept._failure.reason is None


def _raising(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.usefixtures("small_journal")
def test_journal_does_not_write_to_a_closed_descriptor(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data.mkdir()
    kept = Journal(data)
    opened = os.open
    with monkeypatch.context() as disk:
        disk.setattr(os, "open", _raising(errno.EMFILE))
        put_many(kept)
    other = opened(data / "other", os.O_RDWR | os.O_CREAT)
    put_many(kept)
    assert os.fstat(other).st_size == 0
    os.close(other)
    assert b"x19" in (data / "journal.jsonl").read_bytes()


def test_journal_with_a_partial_line_that_cannot_be_cut_goes_offline(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.mkdir()
    kept = Journal(data, LogDirFailure(data))
    kept.put("fact", "first", value=1)
    write = os.write

    def write_half(descriptor: int, line: bytes) -> int:
        if len(line) < 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, line[:-5])

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", write_half)
        disk.setattr(os, "ftruncate", _raising(errno.ENOSPC))
        with pytest.raises(ApiError):
            kept.put("fact", "second", value=2)
    with pytest.raises(ApiError):
        kept.put("fact", "third", value=3)
    assert "failed at journal.jsonl: No space left on device" in str(kept._failure.reason)
    assert dict(Journal(data).facts("fact")) == {("first",): 1}


@pytest.mark.usefixtures("small_journal")
def test_journal_whose_rename_is_not_flushed_flushes_it_later(
    data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data.mkdir()
    kept = Journal(data, LogDirFailure(data))
    kept.flush()
    with monkeypatch.context() as disk:
        disk.setattr(journal, "flush_directory", _raising(errno.EMFILE))
        put_many(kept)
        assert "could not be rewritten" not in caplog.text
        with pytest.raises(ApiError):
            kept.flush()
    flushed: list[Path] = []
    monkeypatch.setattr(journal, "flush_directory", flushed.append)
    kept.flush()
    kept.flush()
    assert flushed == [data]
    assert kept._failure.reason is None


def test_leftover_files_are_removed_at_the_start(data: Path) -> None:
    with serving(data) as (broker, _):
        broker.create_topic("topic")
    (data / "journal.new").write_bytes(b"x" * 5000)
    (data / "topic-0" / "partition.metadata.new").write_bytes(b"x")
    with serving(data) as (broker, _):
        assert [topic.name for topic in broker.topics] == ["topic"]
        assert list(data.rglob("*.new")) == []


def test_journal_that_cannot_be_rewritten_at_the_start_is_cut_after_its_last_line(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(data) as (broker, _):
        broker.create_topic("topic")
    with (data / "journal.jsonl").open("ab") as file:
        file.write(b'["topic",["torn"')
    with monkeypatch.context() as disk:
        disk.setattr(Path, "replace", _raising(errno.ENOSPC))
        broker = Broker(data=data)
    broker.create_topic("other")
    broker.stop()
    assert [topic.name for topic in Broker(data=data).topics] == ["topic", "other"]


# A directory that fails


@pytest.fixture(params=["fdatasync", "pwritev"])
def failing_call(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_log_directory_that_fails_goes_offline_and_the_broker_stops(
    data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing_call: str
) -> None:
    monkeypatch.setattr("shoal.broker.broker._LAST_ANSWERS_S", PATIENCE_S)
    halted = threading.Event()
    with serving(data, log_flush_interval_messages="1") as (broker, wire):
        broker.when_halted(halted.set)
        broker.create_topic("topic")
        assert wire.produce("topic", batch([b"kept"])).error_code == ErrorCode.NONE
        with monkeypatch.context() as disk:
            disk.setattr(os, failing_call, _raising(errno.EIO))
            assert wire.produce("topic", batch([b"lost"])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        # The disk seems to work again, but it may have lost writes.
        for _ in range(2):
            assert wire.produce("topic", batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert wire.fetch("topic").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert wire.commit("group", "topic", 1) == ErrorCode.KAFKA_STORAGE_ERROR
        (partition,) = wire.call(ApiKey.METADATA, 5, topics=None).topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert partition.offline_replicas == [1]
        broker.purgatory.close()  # the last answers are given
        assert halted.wait(PATIENCE_S)
        with pytest.raises(OSError), Wire(broker.bootstrap) as late:  # noqa: PT011
            late.call(ApiKey.METADATA, 1, topics=[])
    assert broker.failure is not None
    assert str(data) in broker.failure
    assert [record.message for record in caplog.records].count(
        f"{broker.failure}; its partitions are offline, and the broker stops"
    ) == 1
    with pytest.raises(ConfigError, match="a new broker has to read it"):
        broker.start()
    assert not (data / ".kafka_cleanshutdown").exists()
    with serving(data) as (_, wire):
        assert [payload.count(b"kept") for _, payload in _fetched(wire)] == [1]


def test_flush_failed_on_a_full_disk_is_final(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(data, log_flush_interval_messages="1") as (broker, wire):
        broker.create_topic("topic")
        with monkeypatch.context() as disk:
            disk.setattr(os, "fdatasync", _raising(errno.ENOSPC))
            assert wire.produce("topic", batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.failure is not None


# Killed


@contextmanager
def process(data: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `shoal broker` in a process of its own; give its address."""
    command = [
        sys.executable,
        "-m",
        "shoal",
        "broker",
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


_WITH_A_BROKEN_DISK = """
import errno, os, sys
def failing(_):
    raise OSError(errno.EIO, os.strerror(errno.EIO))
os.fdatasync = failing
from shoal.__main__ import main
options = ["--listen", "127.0.0.1:0", "--config", "log.flush.interval.messages=1", "--data", sys.argv[1]]
sys.argv = ["shoal", "broker", *options]
sys.exit(main())
"""


def test_process_with_failed_log_directory_exits_1_with_the_cause(data: Path) -> None:
    command = [sys.executable, "-c", _WITH_A_BROKEN_DISK, str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            with Wire(running.stdout.readline().rsplit(maxsplit=1)[-1]) as wire:
                wire.create_topic("topic")
                assert wire.produce("topic", batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            _, said = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
    assert running.returncode == 1
    assert said.strip().splitlines()[-1] == (
        f"shoal: log directory {data} failed at topic-0: Input/output error; "
        "replace the disk, or start with another --data"
    )
    assert "Traceback" not in said


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

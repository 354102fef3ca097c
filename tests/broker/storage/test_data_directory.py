"""A broker with a data directory: the state that survives its clean end."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.errors import ConfigError
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal.records import split
from shoal_broker import Broker
from shoal_broker.clock import now_ms
from shoal_broker.storage.ranges import FileRange
from tests.batches import TRANSACTIONAL, batch
from tests.broker.storage.directories import segments, serving, stored
from tests.broker.wire import Wire


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

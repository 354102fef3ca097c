"""Rows with bytes: written once, in the order of their offsets, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from shoal.client.cluster import Cluster
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, CorruptBatch, Disconnected, ShoalError, UnsupportedBatch
from shoal.mirroring.model.position import ProducerIdentity
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal.spark import sink as module
from shoal.spark.sink import new_writer, write_rows
from shoal.timing import Timing
from shoal.topic_partition import TopicPartition
from tests.world import batches
from tests.world.batches import Content
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of, content_of
from tests.world.faults import Held, let_pass
from tests.world.history import NOW_MS
from tests.world.late_requests import Requests, arrive
from tests.world.logs import lagging
from tests.world.waiting import InThread, wait_until


class Row(NamedTuple):
    topic: str
    partition: int
    batch: bytes


def row(offset: int, count: int = 2, *, topic: str = "topic", partition: int = 0, **fields: Any) -> Row:
    values = [b"%s-%d at %d" % (topic.encode(), partition, offset + number) for number in range(count)]
    return Row(
        topic, partition, bytes(batches.batch(values, base_offset=offset, base_timestamp=NOW_MS, **fields))
    )


def write(
    brokers: TwoBrokers,
    rows: Sequence[Row],
    *,
    allow_gaps: bool = False,
    writer: ProducerIdentity | None = None,
) -> list[TopicPartition]:
    destination = brokers.settings.destination
    writer = writer or new_writer(destination)
    return list(write_rows(iter(rows), destination, lambda name: name, allow_gaps, writer))


def values(brokers: TwoBrokers, topic: str = "topic", partition: int = 0) -> list[bytes | None]:
    return [each.value for each in written(brokers, topic, partition)]


def written(brokers: TwoBrokers, topic: str = "topic", partition: int = 0) -> list[Content]:
    return content_of(brokers.destination.log(topic, partition))


@pytest.fixture(autouse=True)
def topics(brokers: TwoBrokers) -> None:
    brokers.topic("topic", 2)
    brokers.topic("other")


def test_rows_are_written_in_the_order_of_their_offsets(brokers: TwoBrokers) -> None:
    rows = [
        row(12, codec=Codec.ZSTD),
        row(10),
        row(5, partition=1),
        row(14, count=1),
        row(0, topic="other"),
        row(3, partition=1),
    ]
    partitions = [TopicPartition("other", 0), TopicPartition("topic", 0), TopicPartition("topic", 1)]
    assert write(brokers, rows) == partitions
    assert values(brokers) == [b"topic-0 at %d" % offset for offset in range(10, 15)]
    assert values(brokers, "topic", 1) == [b"topic-1 at %d" % offset for offset in range(3, 7)]
    assert [each.header.codec_id for each in batches_of(brokers.destination.log("topic"))] == [0, 4, 0]


def test_rows_are_appended_to_existing_records_of_a_renamed_topic(brokers: TwoBrokers) -> None:
    write(brokers, [row(0, topic="other")])
    destination = brokers.settings.destination
    list(write_rows([row(7)], destination, lambda _: "other", False, new_writer(destination)))
    assert len(written(brokers, "other")) == 4


# Refusals before the first write


REFUSED: dict[str, tuple[Sequence[Row], type[Exception], str]] = {
    "twice": ([row(0), row(0)], ShoalError, "the batches at offsets 0 and 0 overlap"),
    "overlap": ([row(0, 3), row(2, 3)], ShoalError, "the batches at offsets 0 and 2 overlap"),
    "gap": ([row(0), row(5)], ShoalError, "no batch has offsets 2 to 4.*allowGaps=true"),
    "nothing": ([Row("topic", 0, b"")], CorruptBatch, "exactly one whole batch"),
    "cut": ([Row("topic", 0, row(0).batch[:-1])], CorruptBatch, "exactly one whole batch"),
    "two": ([Row("topic", 0, row(0).batch + row(2).batch)], CorruptBatch, "exactly one whole batch"),
    "tail": ([Row("topic", 0, row(0).batch + b"\0")], CorruptBatch, "exactly one whole batch"),
    "flipped": ([Row("topic", 0, row(0).batch[:-1] + b"\x7f")], CorruptBatch, "its CRC is"),
    "control": ([Row("topic", 0, bytes(batches.marker(1, 7)))], UnsupportedBatch, "control"),
    "empty": ([row(0, holes=(0, 1))], UnsupportedBatch, "empty"),
    "holes": ([row(0, 3, holes=(1,))], UnsupportedBatch, "holes"),
    "magic-1": ([Row("topic", 0, bytes(batches.message(1)))], UnsupportedBatch, "old format"),
}


@pytest.mark.parametrize(("rows", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_invalid_rows_are_refused_before_the_first_write(
    brokers: TwoBrokers, rows: Sequence[Row], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        write(brokers, [*rows, row(100, topic="zzz")])
    assert written(brokers) == []


def test_gaps_are_accepted_if_allowed_and_overlaps_are_not(brokers: TwoBrokers) -> None:
    write(brokers, [row(0), row(5), row(9)], allow_gaps=True)
    assert len(written(brokers)) == 6
    with pytest.raises(ShoalError, match="overlap"):
        write(brokers, [row(20), row(20)], allow_gaps=True)


# Repetition


ROWS = [row(0), row(2, 3), row(5, 1), row(6, 2), row(8, 2)]


def test_repeated_write_adds_only_new_rows(brokers: TwoBrokers) -> None:
    assert write(brokers, ROWS) == write(brokers, ROWS)
    assert len(written(brokers)) == 10
    write(brokers, [*ROWS, row(10)])
    assert len(written(brokers)) == 12


@pytest.mark.parametrize("drop", ["before", "within", "after"])
@pytest.mark.parametrize("requests", range(5))
def test_prefix_of_a_dead_attempt_is_not_written_again(brokers: TwoBrokers, drop: str, requests: int) -> None:
    write(brokers, [row(50, topic="topic")])
    let_pass(brokers.destination, ApiKey.PRODUCE, requests)
    brokers.destination.faults.add(ApiKey.PRODUCE, drop=drop)  # type: ignore[arg-type]
    with pytest.raises(Disconnected):
        write(brokers, ROWS)
    write(brokers, ROWS)
    assert values(brokers) == [b"topic-0 at %d" % offset for offset in (50, 51, *range(10))]


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.MESSAGE_TOO_LARGE]
)
@pytest.mark.parametrize("effect", ["before", "after"])
def test_error_fails_the_task_and_a_second_one_completes(
    brokers: TwoBrokers, code: ErrorCode, effect: str
) -> None:
    let_pass(brokers.destination, ApiKey.PRODUCE, 2)
    brokers.destination.faults.add(ApiKey.PRODUCE, error=code, effect=effect)  # type: ignore[arg-type]
    with pytest.raises(BrokerError, match=rf"5.*topic-0.*{code.name}"):
        write(brokers, ROWS)
    write(brokers, ROWS)
    assert values(brokers) == [b"topic-0 at %d" % offset for offset in range(10)]


@pytest.fixture
def writer(brokers: TwoBrokers) -> ProducerIdentity:
    return new_writer(brokers.settings.destination)


@pytest.fixture
def late(brokers: TwoBrokers, writer: ProducerIdentity, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A batch of a first attempt that failed, and is still on its way."""
    requests = Requests(monkeypatch)
    let_pass(brokers.destination, ApiKey.PRODUCE, 2)
    brokers.destination.faults.add(ApiKey.PRODUCE, drop="before")
    with pytest.raises(Disconnected):
        write(brokers, ROWS, writer=writer)
    return requests.sent[2]


ONCE = [b"topic-0 at %d" % offset for offset in range(10)]


def test_late_request_behind_the_second_attempt_is_not_written_again(
    brokers: TwoBrokers, writer: ProducerIdentity, late: bytes
) -> None:
    write(brokers, ROWS, writer=writer)
    arrive(brokers.destination, late)
    assert values(brokers) == ONCE


def test_late_request_after_the_log_was_read_is_not_written_again(
    brokers: TwoBrokers, writer: ProducerIdentity, late: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = module.bounds_of

    def then_it_arrives(cluster: Cluster, partition: TopicPartition) -> tuple[int, int]:
        found = bounds(cluster, partition)
        arrive(brokers.destination, late)
        return found

    monkeypatch.setattr(module, "bounds_of", then_it_arrives)
    write(brokers, ROWS, writer=writer)
    assert values(brokers) == ONCE


def test_late_request_before_the_log_is_read_fails_the_attempt_and_doubles_nothing(
    brokers: TwoBrokers, writer: ProducerIdentity, late: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = module.bounds_of

    def it_arrives_before(cluster: Cluster, partition: TopicPartition) -> tuple[int, int]:
        arrive(brokers.destination, late)
        return bounds(cluster, partition)

    monkeypatch.setattr(module, "bounds_of", it_arrives_before)
    with pytest.raises(ShoalError):
        write(brokers, ROWS, writer=writer)
    monkeypatch.undo()
    write(brokers, ROWS, writer=writer)
    assert values(brokers) == ONCE


def test_rows_without_authorization_to_read_are_written(brokers: TwoBrokers) -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    brokers.destination.faults.add(ApiKey.DESCRIBE_PRODUCERS, error=code)
    write(brokers, ROWS)
    assert values(brokers) == ONCE


def test_rows_behind_those_of_another_writer_follow_with_the_same_identity(
    brokers: TwoBrokers, writer: ProducerIdentity
) -> None:
    write(brokers, ROWS[:2], writer=writer)
    brokers.destination.log("topic").store(memoryview(batches.batch(1, base_offset=5)))
    write(brokers, ROWS[2:], writer=writer)
    assert [each.value for each in written(brokers) if each.value in ONCE] == ONCE


def test_rows_in_a_log_append_time_topic_are_recognized(brokers: TwoBrokers) -> None:
    brokers.destination.create_topic("append-time", config={"message.timestamp.type": "LogAppendTime"})
    rows = [row(0, topic="append-time"), row(2, topic="append-time")]
    write(brokers, rows)
    write(brokers, rows)
    assert len(written(brokers, "append-time")) == 4


def test_tail_not_replicated_yet_is_awaited(brokers: TwoBrokers) -> None:
    write(brokers, ROWS[:3])
    log = lagging(brokers.destination, "topic", high_watermark=2)
    asked = brokers.destination.faults.add(ApiKey.LIST_OFFSETS, times=None)
    running = InThread(lambda: write(brokers, ROWS))
    assert brokers.destination.faults.wait_for(asked, 4)
    assert log.log_end_offset == 6
    log.lag_ends()
    wait_until(lambda: not running.is_running)
    assert values(brokers) == [b"topic-0 at %d" % offset for offset in range(10)]


def test_foreign_record_during_a_write_fails_the_task(brokers: TwoBrokers) -> None:
    first = Held(brokers.destination, ApiKey.PRODUCE)
    running = InThread(lambda: write(brokers, ROWS))
    first.wait_for_one()
    brokers.destination.log("topic").store(memoryview(batches.batch(1)))
    first.release()
    with pytest.raises(ShoalError, match=r"1.*instead.*0"):
        running.result()


def test_leader_or_coordinator_not_ready_is_asked_again(brokers: TwoBrokers) -> None:
    for api, code in (
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ApiKey.LIST_OFFSETS, ErrorCode.LEADER_NOT_AVAILABLE),
        (ApiKey.INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ):
        brokers.destination.faults.add(api, error=code)
    write(brokers, ROWS)
    assert len(written(brokers)) == 10


def test_missing_topic_is_an_error(brokers: TwoBrokers) -> None:
    timing = Timing(write_patience_s=0.0)
    brokers = brokers.with_settings(destination=replace(brokers.settings.destination, timing=timing))
    with pytest.raises(BrokerError, match=r"missing-0.*UNKNOWN_TOPIC_OR_PARTITION"):
        write(brokers, [row(0, topic="missing")])

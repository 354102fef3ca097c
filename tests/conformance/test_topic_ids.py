"""Fetch and Produce list topics by id from v13 on (KIP-516); the errors are those of a recorded Kafka 4.1."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal.protocol.fetch import FetchedPartition
from tests.broker.new_topic import NewTopic, create_and_await
from tests.broker.wire import Wire
from tests.conformance.conftest import Connect
from tests.vectors import vector
from tests.world.batches import batch

#: The first version with Produce v13.
pytestmark = pytest.mark.not_before("4.1")

NOBODY = uuid.UUID("6e6f2074-6f70-6963-2068-617320746869")


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(2)


@pytest.fixture
def topic_id(wire: Wire, topic: str) -> uuid.UUID:
    return id_of(wire, topic)


def id_of(wire: Wire, topic: str) -> uuid.UUID:
    wanted = request_class(ApiKey.METADATA).MetadataRequestTopic(name=topic)
    (found,) = wire.call(ApiKey.METADATA, 12, topics=[wanted], allow_auto_topic_creation=False).topics
    assert isinstance(found.topic_id, uuid.UUID)
    return found.topic_id


def recreate(wire: Wire, topic: str) -> uuid.UUID:
    (deleted,) = wire.call(ApiKey.DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=10_000).responses
    assert deleted.error_code == ErrorCode.NONE
    create_and_await(wire, topic, 2)
    return id_of(wire, topic)


def errors(fetched: Iterable[FetchedPartition]) -> dict[tuple[uuid.UUID | None, int], int]:
    return {(each.topic_id, each.partition): each.error_code for each in fetched}


def recorded_error(name: str) -> int:
    """Return the one error that a real broker answered with."""
    responses = vector(f"{name}.response").fields["responses"]
    parts = [
        each
        for topic in responses
        for each in topic.get("partitions") or topic.get("partition_responses") or ()
    ]
    (code,) = {each["error_code"] for each in parts} - {0}
    return int(code)


def test_batch_produced_by_id_is_fetched_by_id(wire: Wire, topic: str, topic_id: uuid.UUID) -> None:
    sent = [(topic_id, 0, batch(2)), (topic_id, 1, batch(3))]
    response = wire.produce_all(sent, version=13)
    assert [(each.topic_id, each.name) for each in response.responses] == [(topic_id, "")]
    answers = [
        (each.index, each.error_code, each.base_offset)
        for found in response.responses
        for each in found.partition_responses
    ]
    assert sorted(answers) == [(0, 0, 0), (1, 0, 0)]
    by_id = wire.fetch_all([(topic_id, 0, 0), (topic_id, 1, 0)], version=13)
    by_name = wire.fetch_all([(topic, 0, 0), (topic, 1, 0)], version=12)
    assert [each.topic_id for each in by_id.partitions] == [topic_id] * 2
    assert [(each.partition, each.high_watermark, bytes(each.record_set)) for each in by_id.partitions] == [
        (each.partition, each.high_watermark, bytes(each.record_set)) for each in by_name.partitions
    ]


def test_id_of_no_topic_is_unknown(wire: Wire, topic_id: uuid.UUID) -> None:
    fetched = wire.fetch_all([(topic_id, 0, 0), (NOBODY, 0, 0)], version=13)
    assert errors(fetched.partitions) == {
        (topic_id, 0): ErrorCode.NONE,
        (NOBODY, 0): ErrorCode.UNKNOWN_TOPIC_ID,
    }
    assert wire.produce(NOBODY, batch(1), version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert recorded_error("produce-v13-unknown-topic-id") == ErrorCode.UNKNOWN_TOPIC_ID


def test_missing_partition_of_a_topic_is_unknown(wire: Wire, topic_id: uuid.UUID) -> None:
    fetched = wire.fetch(topic_id, partition=7, version=13)
    assert fetched.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    produced = wire.produce(topic_id, batch(1), partition=7, version=13)
    assert produced.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert recorded_error("produce-v13-unknown-partition") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_id_of_a_former_topic_is_unknown(wire: Wire, topic: str, topic_id: uuid.UUID) -> None:
    now = recreate(wire, topic)
    assert wire.fetch(topic_id, version=13).error_code == recorded_error("fetch-v13-recreated")
    assert wire.produce(topic_id, batch(1), version=13).error_code == recorded_error("produce-v13-recreated")
    assert wire.end_offset(topic) == 0
    assert wire.produce(now, batch(1), version=13).error_code == ErrorCode.NONE
    assert wire.fetch(now, version=13).high_watermark == 1


def test_session_keeps_the_topic_ids_of_its_start(wire: Wire, topic: str, topic_id: uuid.UUID) -> None:
    opening = wire.fetch_all([(topic_id, 0, 0), (topic_id, 1, 0)], version=13, session_epoch=0)
    session = {"session_id": opening.session_id, "version": 13}
    assert wire.produce(topic_id, batch(2), partition=1, version=13).error_code == ErrorCode.NONE
    (news,) = wire.fetch_all([], session_epoch=1, **session).partitions
    assert (news.topic_id, news.partition, news.high_watermark) == (topic_id, 1, 2)
    rest = wire.fetch_all([], session_epoch=2, forgotten=[(topic_id, 1)], **session)
    assert list(rest.partitions) == []
    recreate(wire, topic)
    (refused,) = wire.fetch_all([], session_epoch=3, **session).partitions
    assert (refused.topic_id, refused.error_code) == (topic_id, recorded_error("fetch-v13-session-recreated"))
    assert refused.error_code == ErrorCode.INCONSISTENT_TOPIC_ID


@pytest.mark.parametrize(("first", "second"), [(12, 13), (13, 12)])
def test_session_with_names_and_ids_is_refused(
    wire: Wire, topic: str, topic_id: uuid.UUID, first: int, second: int
) -> None:
    opening = wire.fetch_all([(topic_id if first == 13 else topic, 0, 0)], version=first, session_epoch=0)
    response = wire.fetch_all([], version=second, session_id=opening.session_id, session_epoch=1)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert vector("fetch-v12-session-by-name.response").fields["error_code"] == response.error_code


@pytest.mark.administrators
def test_waiting_fetch_does_not_read_a_recreated_topic(
    wire: Wire, connect: Connect, topic: str, topic_id: uuid.UUID
) -> None:
    wire.send_fetch([(topic_id, 0, 0)], version=13, min_bytes=1, max_wait_ms=300)
    recreate(connect(), topic)
    (fetched,) = wire.receive_fetch(13).partitions
    assert fetched.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

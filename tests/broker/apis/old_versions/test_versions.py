"""Which old versions are announced and served, and those that are neither Fetch nor Produce."""

from __future__ import annotations

import struct
import threading
import time
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal_broker import Broker
from shoal_broker.apis.table import APIS, APIS_WITH_OLD_VERSIONS
from tests.batches import (
    batch,
    message,
)
from tests.broker.apis.old_versions.frames import DAY, NOW, OLD_VERSIONS, offsets, position
from tests.broker.conftest import NewTopic
from tests.broker.wire import PATIENCE_S, Wire

# Whole frames


def served_versions(wire: Wire) -> dict[int, int]:
    answer = wire.call(ApiKey.API_VERSIONS, 0)
    return {each.api_key: each.min_version for each in answer.api_keys}


def test_old_versions_enabled_are_announced(wire: Wire) -> None:
    served = served_versions(wire)
    assert {key: served[key] for key in APIS_WITH_OLD_VERSIONS if key in served and served[key] > 0} == {}


def test_old_versions_disabled_are_neither_announced_nor_served() -> None:
    with Broker() as broker:
        broker.create_topic("topic")
        with Wire(broker.bootstrap) as wire:
            served = served_versions(wire)
            announced = {key: 0 if key == ApiKey.PRODUCE else api.oldest for key, api in APIS.items()}
            assert served == announced
            assert served[ApiKey.FETCH] == 4
            wire.send_fetch([("topic", 0, 0)], version=3)
            assert wire.receive_frame() is None


HEADER = b"\0\0\0\x07" + b"\0\x12kafka-python-2.0.2"
MESSAGE_0 = b"\0\0\0\x10" + b"\x1f\xec\xd7\x0a\0\0" + b"\0\0\0\1k\0\0\0\1v"
MESSAGE_1 = b"\0\0\0\x18" + b"\xbf\x07\x0c\x1c\1\0" + b"\0\0\1\x5d\x3e\xf7\x98\0" + b"\0\0\0\1k\0\0\0\1v"
MESSAGE_1_WITHOUT_TIME = bytes(message(1, b"v", key=b"k", timestamp=-1))[8:]

TOPIC = b"\0\0\0\1\0\7literal" + b"\0\0\0\1\0\0\0\0"
"""One topic with one partition, 0, as most requests and all responses begin."""


def padding(size: int) -> bytes:
    """The cut batch that fills a record set up to its announced length."""
    return b"\xff" * 8 + max(size + 1, 61).to_bytes(4) + bytes(size - 12)


#: Requests as kafka-python 2.0.2 wrote them, and their answers; each is v2 of 70 bytes in the log.
CONVERSATION: list[tuple[str, bytes, bytes]] = [
    (
        "CreateTopics v0",
        b"\0\x13\0\0" + HEADER + b"\0\0\0\1\0\4made\0\0\0\2\0\1\0\0\0\0"
        b"\0\0\0\1\0\x0cretention.ms\0\2-1" + b"\0\0\x13\x88",
        b"\0\0\0\1\0\4made\0\0",
    ),
    (
        "Produce v0",
        b"\0\0\0\0" + HEADER + b"\0\1\0\0\x75\x30" + TOPIC + b"\0\0\0\x1c" + bytes(8) + MESSAGE_0,
        TOPIC + b"\0\0" + b"\0\0\0\0\0\0\0\0",
    ),
    (
        "Produce v1",
        b"\0\0\0\1" + HEADER + b"\0\1\0\0\x75\x30" + TOPIC + b"\0\0\0\x1c" + bytes(8) + MESSAGE_0,
        TOPIC + b"\0\0" + b"\0\0\0\0\0\0\0\1" + b"\0\0\0\0",
    ),
    (
        "Produce v2",
        b"\0\0\0\2" + HEADER + b"\0\1\0\0\x75\x30" + TOPIC + b"\0\0\0\x24" + bytes(8) + MESSAGE_1,
        TOPIC + b"\0\0" + b"\0\0\0\0\0\0\0\2" + b"\xff" * 8 + b"\0\0\0\0",
    ),
    (
        "Fetch v0",
        b"\0\1\0\0" + HEADER + b"\xff\xff\xff\xff\0\0\0\0\0\0\0\1" + TOPIC + bytes(8) + b"\0\x10\0\0",
        TOPIC + b"\0\0" + b"\0\0\0\0\0\0\0\3" + b"\0\0\0\xd2"
        b"\0\0\0\0\0\0\0\0" + MESSAGE_0 + b"\0\0\0\0\0\0\0\1" + MESSAGE_0 + b"\0\0\0\0\0\0\0\2" + MESSAGE_0
        + padding(126),
    ),
    (
        "Fetch v1",
        b"\0\1\0\1" + HEADER + b"\xff\xff\xff\xff\0\0\0\0\0\0\0\1" + TOPIC + b"\0\0\0\0\0\0\0\1\0\x10\0\0",
        b"\0\0\0\0" + TOPIC + b"\0\0" + b"\0\0\0\0\0\0\0\3" + b"\0\0\0\x8c"
        b"\0\0\0\0\0\0\0\1" + MESSAGE_0 + b"\0\0\0\0\0\0\0\2" + MESSAGE_0 + padding(84),
    ),
    (
        "Fetch v2",
        b"\0\1\0\2" + HEADER + b"\xff\xff\xff\xff\0\0\0\0\0\0\0\1" + TOPIC + b"\0\0\0\0\0\0\0\1\0\x10\0\0",
        b"\0\0\0\0" + TOPIC + b"\0\0" + b"\0\0\0\0\0\0\0\3" + b"\0\0\0\x8c"
        b"\0\0\0\0\0\0\0\1" + MESSAGE_1_WITHOUT_TIME + b"\0\0\0\0\0\0\0\2" + MESSAGE_1 + padding(68),
    ),
    (
        "Fetch v3",
        b"\0\1\0\3" + HEADER + b"\xff\xff\xff\xff\0\0\0\0\0\0\0\1\3\x20\0\0"
        + TOPIC + b"\0\0\0\0\0\0\0\2\0\x10\0\0",
        b"\0\0\0\0" + TOPIC + b"\0\0" + b"\0\0\0\0\0\0\0\3" + b"\0\0\0\x46"
        b"\0\0\0\0\0\0\0\2" + MESSAGE_1 + padding(34),
    ),
    (
        "ListOffsets v0, two before the end",
        b"\0\2\0\0" + HEADER + b"\xff\xff\xff\xff" + TOPIC + b"\xff" * 8 + b"\0\0\0\2",
        TOPIC + b"\0\0" + b"\0\0\0\2" + b"\0\0\0\0\0\0\0\3" + b"\0\0\0\0\0\0\0\0",
    ),
    (
        "ListOffsets v0, of the beginning",
        b"\0\2\0\0" + HEADER + b"\xff\xff\xff\xff" + TOPIC + b"\xff" * 7 + b"\xfe" + b"\0\0\0\2",
        TOPIC + b"\0\0" + b"\0\0\0\1" + b"\0\0\0\0\0\0\0\0",
    ),
    (
        "OffsetFetch v0, of no position",
        b"\0\x09\0\0" + HEADER + b"\0\5group" + TOPIC,
        TOPIC + b"\xff" * 8 + b"\0\0" + b"\0\3",
    ),
    (
        "OffsetCommit v0",
        b"\0\x08\0\0" + HEADER + b"\0\5group" + TOPIC + b"\0\0\0\0\0\0\0\2" + b"\0\1m",
        TOPIC + b"\0\0",
    ),
    (
        "OffsetFetch v0",
        b"\0\x09\0\0" + HEADER + b"\0\5group" + TOPIC,
        TOPIC + b"\0\0\0\0\0\0\0\2" + b"\0\1m" + b"\0\0",
    ),
    (
        "OffsetCommit v1",
        b"\0\x08\0\1" + HEADER + b"\0\5group" + b"\xff\xff\xff\xff\0\0" + TOPIC + b"\0\0\0\0\0\0\0\1"
        b"\0\0\1\x5d\x3e\xf7\x98\0" + b"\0\1n",
        TOPIC + b"\0\0",
    ),
    (
        "OffsetFetch v0, of what v1 committed",
        b"\0\x09\0\0" + HEADER + b"\0\5group" + TOPIC,
        TOPIC + b"\0\0\0\0\0\0\0\1" + b"\0\1n" + b"\0\0",
    ),
]  # fmt: skip


def test_old_client_frames_are_answered_with_literal_bytes() -> None:
    with Broker(config=OLD_VERSIONS) as broker:
        broker.create_topic("literal")
        with Wire(broker.bootstrap) as wire:
            for name, request, response in CONVERSATION:
                wire.send_bytes(len(request).to_bytes(4) + request)
                assert wire.receive_frame() == b"\0\0\0\7" + response, name


def test_metadata_v0_without_topics_returns_all_topics() -> None:
    with Broker(config=OLD_VERSIONS) as broker:
        broker.create_topic("literal")
        with Wire(broker.bootstrap) as wire:
            described = (
                b"\0\0\0\7" + b"\0\0\0\1" + b"\0\0\0\1" + b"\0\x09127.0.0.1" + broker.port.to_bytes(4)
                + b"\0\0\0\1" + b"\0\0" + b"\0\7literal" + b"\0\0\0\1" + b"\0\0" + b"\0\0\0\0"
                b"\0\0\0\1" + b"\0\0\0\1\0\0\0\1" + b"\0\0\0\1\0\0\0\1"
            )  # fmt: skip
            for wanted in (b"\0\0\0\0", b"\0\0\0\1\0\7literal"):
                request = b"\0\3\0\0" + HEADER + wanted
                wire.send_bytes(len(request).to_bytes(4) + request)
                assert wire.receive_frame() == described


# Offsets


def old_offsets(wire: Wire, topic: str, timestamp: int, count: int = 10) -> list[int]:
    answer = wire.list_offset(topic, timestamp, version=0, max_num_offsets=count)
    assert answer.error_code == ErrorCode.NONE
    return list(answer.old_style_offsets)


def test_list_offsets_v0_returns_the_ends_of_a_log(wire: Wire, topic: str) -> None:
    assert old_offsets(wire, topic, -1) == [0]
    assert old_offsets(wire, topic, -2) == [0]
    assert wire.produce(topic, batch(5)).error_code == ErrorCode.NONE
    assert old_offsets(wire, topic, -1) == [5, 0]
    assert old_offsets(wire, topic, -1, 1) == [5]
    assert old_offsets(wire, topic, -1, 0) == []
    assert old_offsets(wire, topic, -2) == [0]


def test_list_offsets_v0_finds_segments_by_last_write(
    broker: Broker, wire: Wire, new_topic: NewTopic
) -> None:
    topic = new_topic(segment_bytes=str(1 << 20))
    before = time.time_ns() // 1_000_000
    for _ in range(40):
        assert wire.produce(topic, batch([b"x" * 100_000])).error_code == ErrorCode.NONE
    starts = [each.offset for each in broker.log(topic).segment_starts()]
    assert len(starts) > 3
    assert old_offsets(wire, topic, -1, 100) == starts[::-1]
    assert old_offsets(wire, topic, -1, 2) == starts[-1:-3:-1]
    assert old_offsets(wire, topic, time.time_ns() // 1_000_000 + DAY, 2) == starts[-1:-3:-1]
    assert old_offsets(wire, topic, before - DAY) == []
    broker.log(topic).delete_records(3)
    assert old_offsets(wire, topic, -2) == [3]


@pytest.mark.parametrize(
    ("timestamp", "count", "code"),
    [(-3, 1, ErrorCode.UNSUPPORTED_VERSION), (-1, -1, ErrorCode.UNKNOWN_SERVER_ERROR)],
)
def test_list_offsets_v0_refuses_newer_timestamps(
    wire: Wire, topic: str, timestamp: int, count: int, code: ErrorCode
) -> None:
    answer = wire.list_offset(topic, timestamp, version=0, max_num_offsets=count)
    assert (ErrorCode(answer.error_code), list(answer.old_style_offsets)) == (code, [])


def test_missing_partition_has_no_offsets(wire: Wire, topic: str) -> None:
    answer = wire.list_offset(topic, -1, partition=9, version=0)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def commit(wire: Wire, version: int, group: str, topic: str, offset: int, **fields: Any) -> int:
    wanted = request_class(ApiKey.OFFSET_COMMIT).OffsetCommitRequestTopic
    partition = wanted.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="m", **fields
    )
    answer = wire.call(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[wanted(name=topic, partitions=[partition])],
    )
    code: int = answer.topics[0].partitions[0].error_code
    return code


def test_offset_committed_in_version_1_is_read_by_later_versions(wire: Wire, topic: str, unique: str) -> None:
    wire.call_coordinator(ApiKey.FIND_COORDINATOR, 0, key=unique)
    assert position(wire, 1, unique, topic) == (-1, "", ErrorCode.NONE)
    assert commit(wire, 1, unique, topic, 7, commit_timestamp=-1) == ErrorCode.NONE
    assert position(wire, 1, unique, topic) == (7, "m", ErrorCode.NONE)
    assert position(wire, 7, unique, topic) == (7, "m", ErrorCode.NONE)


def test_offset_committed_in_version_0_is_the_group_s(
    broker: Broker, wire: Wire, topic: str, unique: str
) -> None:
    """Kafka had them in ZooKeeper, up to 3.9."""
    assert position(wire, 0, unique, topic) == (-1, "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert commit(wire, 0, unique, topic, 7) == ErrorCode.NONE
    assert position(wire, 0, unique, topic) == (7, "m", ErrorCode.NONE)
    assert position(wire, 0, unique, topic, partition=1)[2] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert position(wire, 7, unique, topic) == (7, "m", ErrorCode.NONE)
    assert commit(wire, 0, unique, "no such topic", 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_offset_commit_v1_with_old_timestamp_expires(
    broker: Broker, wire: Wire, topic: str, unique: str
) -> None:
    assert commit(wire, 1, unique, topic, 7, commit_timestamp=NOW - 365 * DAY) == ErrorCode.NONE
    broker.groups.forget_old_offsets()
    assert position(wire, 1, unique, topic) == (-1, "", ErrorCode.NONE)
    assert commit(wire, 1, unique, topic, 8, commit_timestamp=NOW) == ErrorCode.NONE
    broker.groups.forget_old_offsets()
    assert position(wire, 1, unique, topic) == (8, "m", ErrorCode.NONE)


@pytest.mark.parametrize("version", [0, 1])
def test_group_error_is_set_on_each_partition(broker: Broker, wire: Wire, topic: str, version: int) -> None:
    broker.faults.add(ApiKey.OFFSET_FETCH, error=ErrorCode.NOT_COORDINATOR)
    assert position(wire, version, "group", topic) == (-1, "", ErrorCode.NOT_COORDINATOR)


@pytest.mark.parametrize("version", [0, 1])
def test_commit_by_a_non_member_of_an_active_group_is_refused(
    broker: Broker, wire: Wire, topic: str, unique: str, version: int
) -> None:
    protocol = request_class(ApiKey.JOIN_GROUP).JoinGroupRequestProtocol(name="range", metadata=b"")
    joined = wire.call(
        ApiKey.JOIN_GROUP,
        0,
        group_id=unique,
        session_timeout_ms=6000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    assert joined.error_code == ErrorCode.NONE
    assert commit(wire, version, unique, topic, 7) == ErrorCode.UNKNOWN_MEMBER_ID


# Topics


@pytest.mark.parametrize("version", [0, 1])
def test_topics_are_created_deleted_and_described_in_old_versions(
    wire: Wire, unique: str, version: int
) -> None:
    topic = request_class(ApiKey.CREATE_TOPICS).CreatableTopic
    wanted = topic(
        name=unique,
        num_partitions=2,
        replication_factor=1,
        assignments=[],
        configs=[topic.CreatableTopicConfig(name="retention.ms", value="-1")],
    )
    created = wire.call(ApiKey.CREATE_TOPICS, version, topics=[wanted], timeout_ms=5000)
    assert [(each.name, each.error_code) for each in created.topics] == [(unique, ErrorCode.NONE)]
    again = wire.call(ApiKey.CREATE_TOPICS, version, topics=[wanted], timeout_ms=5000)
    assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    deadline = time.monotonic() + PATIENCE_S
    while wire.list_offset(unique, -1, partition=1).error_code and time.monotonic() < deadline:
        pass
    resource = request_class(ApiKey.DESCRIBE_CONFIGS).DescribeConfigsResource(
        resource_type=2, resource_name=unique, configuration_keys=["retention.ms", "cleanup.policy"]
    )
    (described,) = wire.call(ApiKey.DESCRIBE_CONFIGS, 0, resources=[resource]).results
    assert {each.name: each.value for each in described.configs} == {
        "retention.ms": "-1",
        "cleanup.policy": "delete",
    }
    deleted = wire.call(ApiKey.DELETE_TOPICS, 0, topic_names=[unique], timeout_ms=5000)
    assert [each.error_code for each in deleted.responses] == [ErrorCode.NONE]


def test_describe_configs_v0_marks_defaults(broker: Broker, wire: Wire, topic: str) -> None:
    """In v0, Kafka 2.8.2 and 3.9.1 always return false."""
    resource = request_class(ApiKey.DESCRIBE_CONFIGS).DescribeConfigsResource(
        resource_type=2, resource_name=topic, configuration_keys=["retention.ms", "cleanup.policy"]
    )
    (described,) = wire.call(ApiKey.DESCRIBE_CONFIGS, 0, resources=[resource]).results
    assert {each.name: each.is_default for each in described.configs} == {
        "retention.ms": False,
        "cleanup.policy": True,
    }


@pytest.mark.parametrize("version", [0, 1])
def test_old_versions_return_the_end_of_a_leader_epoch(wire: Wire, topic: str, version: int) -> None:
    assert wire.produce(topic, batch(3)).error_code == ErrorCode.NONE
    epoch_topic = request_class(ApiKey.OFFSET_FOR_LEADER_EPOCH).OffsetForLeaderTopic
    partition = epoch_topic.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    answer = wire.call(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=[epoch_topic(topic=topic, partitions=[partition])]
    )
    found = answer.topics[0].partitions[0]
    assert (found.error_code, found.end_offset) == (ErrorCode.NONE, 3)


# Strangers


@pytest.mark.parametrize("api", sorted(APIS_WITH_OLD_VERSIONS))
def test_cut_old_request_closes_the_connection(broker: Broker, api: ApiKey) -> None:
    with Wire(broker.bootstrap) as wire:
        body = struct.pack(">hhih", api, 0, 7, 1) + b"x" + b"\0\1"
        wire.send_bytes(len(body).to_bytes(4) + body)
        frame = wire.receive_frame()
        # Those that need no more than this are answered.
        assert frame is None or api in (ApiKey.API_VERSIONS, ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_CLUSTER)


def test_slow_readers_do_not_delay_others(broker: Broker, wire: Wire, topic: str) -> None:
    for _ in range(4):
        assert wire.produce(topic, batch([b"x" * 900_000])).error_code == ErrorCode.NONE
    slow = [Wire(broker.bootstrap) for _ in range(20)]
    for each in slow:
        each.send_fetch([(topic, 0, 0)], version=2, partition_max_bytes=1 << 24)
    assert offsets(wire.fetch(topic, version=2).record_set, 1)[:1] == [0]
    for each in slow:
        each.close()
    deadline = time.monotonic() + PATIENCE_S
    while sum(f"shoal-broker-{broker.port}" in each.name for each in threading.enumerate()) > 3:
        assert time.monotonic() < deadline, "their threads are still there"

"""Which old versions are announced and served, and those that are neither Fetch nor Produce."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from shoal.broker import Broker
from shoal.broker.apis.table import APIS, APIS_WITH_OLD_VERSIONS
from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from tests.batches import batch
from tests.broker.apis.old_versions.frames import DAY, NOW, OLD_VERSIONS, position
from tests.broker.conftest import NewTopic
from tests.broker.wire import PATIENCE_S, Wire

# Whole frames


def served_versions(wire: Wire) -> dict[int, int]:
    answer = wire.call(ApiKey.API_VERSIONS, 0)
    return {each.api_key: each.min_version for each in answer.api_keys}


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
                request = b"\0\3\0\0" + b"\0\0\0\7" + b"\0\4test" + wanted
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

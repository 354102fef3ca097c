"""Topics: create, describe, grow, delete; and their settings."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from tests.broker.new_topic import NewTopic
from tests.broker.wire import PATIENCE_S, Wire

TOPIC, BROKER = 2, 4
SET, DELETE = range(2)
DYNAMIC_TOPIC, DEFAULT = 1, 5


def metadata(wire: Wire, *names: str | None, version: int = 12, **fields: Any) -> Any:
    wanted = request_class(ApiKey.METADATA).MetadataRequestTopic
    return wire.call(
        ApiKey.METADATA,
        version,
        topics=[wanted(name=name) for name in names] if names else None,
        allow_auto_topic_creation=True,
        **fields,
    )


def create(wire: Wire, name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> Any:
    wanted = request_class(ApiKey.CREATE_TOPICS).CreatableTopic
    topic = wanted(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[],
        configs=[],
    )
    response = wire.call(
        ApiKey.CREATE_TOPICS,
        7,
        topics=[topic] * fields.get("times", 1),
        timeout_ms=10_000,
        validate_only=fields.get("validate_only", False),
    )
    (answer,) = response.topics
    return answer


def describe(wire: Wire, kind: int, name: str, *keys: str) -> Any:
    wanted = request_class(ApiKey.DESCRIBE_CONFIGS).DescribeConfigsResource
    response = wire.call(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        resources=[wanted(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)],
        include_synonyms=False,
        include_documentation=False,
    )
    return response.results[0]


def value_of(wire: Wire, topic: str, key: str) -> tuple[str, int]:
    (found,) = describe(wire, TOPIC, topic, key).configs
    return found.value, found.config_source


def alter(
    wire: Wire,
    name: str,
    key: str,
    operation: int,
    value: str | None,
    *,
    dry: bool = False,
) -> ErrorCode:
    wanted = request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS).AlterConfigsResource
    change = wanted.AlterableConfig(name=key, config_operation=operation, value=value)
    response = wire.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[wanted(resource_type=TOPIC, resource_name=name, configs=[change])],
        validate_only=dry,
    )
    return ErrorCode(response.responses[0].error_code)


def wait_for_value(wire: Wire, topic: str, key: str, value: str) -> None:
    """A real broker learns of a new value a moment after the controller's answer."""
    deadline = time.monotonic() + PATIENCE_S
    while value_of(wire, topic, key)[0] != value:
        assert time.monotonic() < deadline


# Metadata


@pytest.mark.parametrize("version", range(1, 13))
def test_partitions_of_a_topic_have_a_leader(wire: Wire, new_topic: NewTopic, version: int) -> None:
    name = new_topic(3)
    answer = metadata(wire, name, version=version)
    (topic,) = answer.topics
    (node,) = answer.brokers
    assert (topic.error_code, topic.name) == (ErrorCode.NONE, name)
    assert [each.partition_index for each in sorted(topic.partitions, key=lambda p: p.partition_index)] == [
        0,
        1,
        2,
    ]
    for partition in topic.partitions:
        assert partition.leader_id == node.node_id
        assert list(partition.replica_nodes) == list(partition.isr_nodes) == [node.node_id]
        assert partition.leader_epoch == (0 if version >= 7 else -1)
    assert (topic.topic_id is not None) == (version >= 10)


def test_metadata_without_topics_returns_all(wire: Wire, topic: str) -> None:
    assert topic in {found.name for found in metadata(wire).topics}
    empty = wire.call(ApiKey.METADATA, 12, topics=[], allow_auto_topic_creation=False)
    assert list(empty.topics) == []
    assert len(empty.brokers) == 1


def test_metadata_v0_with_an_empty_list_returns_all(wire: Wire, topic: str) -> None:
    found = wire.call(ApiKey.METADATA, 0, topics=[])
    assert topic in {each.name for each in found.topics}


def test_missing_topic_is_unknown_and_not_created(wire: Wire, unique: str) -> None:
    for _ in range(2):
        (topic,) = metadata(wire, unique).topics
        assert (topic.error_code, topic.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unique)
        assert list(topic.partitions) == []


@pytest.mark.not_before("3.1")
def test_topic_is_found_by_its_id(wire: Wire, topic: str) -> None:
    topic_id = metadata(wire, topic).topics[0].topic_id
    wanted = request_class(ApiKey.METADATA).MetadataRequestTopic(name=None, topic_id=topic_id)
    (found,) = wire.call(ApiKey.METADATA, 12, topics=[wanted], allow_auto_topic_creation=False).topics
    assert (found.error_code, found.name, found.topic_id) == (ErrorCode.NONE, topic, topic_id)


@pytest.mark.not_before("3.1")
def test_missing_topic_id_is_unknown(wire: Wire) -> None:
    wanted = request_class(ApiKey.METADATA).MetadataRequestTopic(name=None, topic_id=uuid.uuid4())
    (found,) = wire.call(ApiKey.METADATA, 12, topics=[wanted], allow_auto_topic_creation=False).topics
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_metadata_and_describe_cluster_have_the_same_cluster_id(wire: Wire) -> None:
    answer = metadata(wire)
    cluster = wire.call(ApiKey.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
    assert answer.cluster_id == cluster.cluster_id
    assert len(answer.cluster_id) == 22
    assert [each.broker_id for each in cluster.brokers] == [each.node_id for each in answer.brokers]


# Creating


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "a/b"])
def test_invalid_topic_name_is_refused(wire: Wire, name: str) -> None:
    assert create(wire, name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_existing_topic_is_not_created_again(wire: Wire, topic: str) -> None:
    assert create(wire, topic).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_topic_names_colliding_in_dot_and_underscore_are_refused(wire: Wire, unique: str) -> None:
    assert create(wire, f"{unique}.a").error_code == ErrorCode.NONE
    assert create(wire, f"{unique}_a").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("partitions", [0, -2])
def test_topic_without_partitions_is_refused(wire: Wire, unique: str, partitions: int) -> None:
    assert create(wire, unique, partitions).error_code == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("replicas", [0, -2, 2])
def test_replication_factor_beyond_the_cluster_is_refused(wire: Wire, unique: str, replicas: int) -> None:
    assert create(wire, unique, replicas=replicas).error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_minus_1_selects_the_broker_s_default(wire: Wire, unique: str) -> None:
    created = create(wire, unique, -1, -1)
    assert (created.error_code, created.num_partitions, created.replication_factor) == (0, 1, 1)


def test_topic_repeated_in_a_request_is_not_created(wire: Wire, unique: str) -> None:
    assert create(wire, unique, times=2).error_code == ErrorCode.INVALID_REQUEST


def test_validate_only_creates_nothing(wire: Wire, unique: str) -> None:
    assert create(wire, unique, validate_only=True).error_code == ErrorCode.NONE
    assert metadata(wire, unique).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.administrators
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("no.such.setting", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("compression.type", "rar"),
        ("cleanup.policy", "burn"),
        ("message.timestamp.type", "Later"),
        ("segment.bytes", "1024"),
        ("max.message.bytes", "99999999999"),
        ("min.cleanable.dirty.ratio", "1.5"),
    ],
)
def test_unknown_setting_or_invalid_value_is_refused(
    wire: Wire, topic: str, unique: str, key: str, value: str
) -> None:
    created = wire.create_topic(unique, 1, **{key.replace(".", "_"): value})
    assert created.error_code == ErrorCode.INVALID_CONFIG
    assert alter(wire, topic, key, SET, value) == ErrorCode.INVALID_CONFIG


def test_create_response_has_the_topic_s_settings(wire: Wire, unique: str) -> None:
    created = wire.create_topic(unique, 2, retention_ms="5000")
    settings = {each.name: (each.value, each.config_source) for each in created.configs}
    assert settings["retention.ms"] == ("5000", DYNAMIC_TOPIC)
    assert settings["compression.type"] == ("producer", DEFAULT)


# Growing and deleting


def grow(wire: Wire, topic: str, count: int) -> ErrorCode:
    wanted = request_class(ApiKey.CREATE_PARTITIONS).CreatePartitionsTopic
    response = wire.call(
        ApiKey.CREATE_PARTITIONS,
        3,
        topics=[wanted(name=topic, count=count, assignments=None)],
        timeout_ms=10_000,
        validate_only=False,
    )
    return ErrorCode(response.results[0].error_code)


@pytest.mark.administrators
def test_partitions_are_added_but_not_removed(wire: Wire, new_topic: NewTopic, unique: str) -> None:
    topic = new_topic(2)
    assert grow(wire, topic, 2) == ErrorCode.INVALID_PARTITIONS
    assert grow(wire, topic, 1) == ErrorCode.INVALID_PARTITIONS
    assert grow(wire, topic, 4) == ErrorCode.NONE
    assert grow(wire, unique, 4) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def delete(wire: Wire, name: str, version: int = 5) -> ErrorCode:
    response = wire.call(ApiKey.DELETE_TOPICS, version, topic_names=[name], timeout_ms=10_000)
    return ErrorCode(response.responses[0].error_code)


@pytest.mark.administrators
@pytest.mark.parametrize("version", range(1, 6))
def test_topic_is_deleted_by_name(wire: Wire, topic: str, version: int) -> None:
    assert delete(wire, topic, version) == ErrorCode.NONE
    assert delete(wire, topic, version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.administrators
def test_recreated_topic_has_another_id(wire: Wire, topic: str) -> None:
    before = metadata(wire, topic).topics[0].topic_id
    delete(wire, topic)
    assert create(wire, topic).topic_id not in (before, None)


# Settings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cleanup.policy", "delete"),
        ("compression.type", "producer"),
        ("max.message.bytes", "1048588"),
        ("message.timestamp.after.max.ms", "3600000"),
        ("message.timestamp.before.max.ms", "9223372036854775807"),
        ("message.timestamp.type", "CreateTime"),
        ("min.insync.replicas", "1"),
        ("retention.bytes", "-1"),
        ("segment.bytes", "1073741824"),
    ],
)
def test_defaults_are_kafka_s(wire: Wire, topic: str, key: str, value: str) -> None:
    assert value_of(wire, topic, key)[0] == value


@pytest.mark.administrators
def test_setting_can_be_set_and_deleted(wire: Wire, topic: str) -> None:
    assert alter(wire, topic, "max.message.bytes", SET, "2000000") == ErrorCode.NONE
    wait_for_value(wire, topic, "max.message.bytes", "2000000")
    assert value_of(wire, topic, "max.message.bytes") == ("2000000", DYNAMIC_TOPIC)
    assert alter(wire, topic, "max.message.bytes", DELETE, None) == ErrorCode.NONE
    wait_for_value(wire, topic, "max.message.bytes", "1048588")


@pytest.mark.administrators
def test_validate_only_alters_nothing(wire: Wire, topic: str) -> None:
    assert alter(wire, topic, "max.message.bytes", SET, "2000000", dry=True) == ErrorCode.NONE
    assert value_of(wire, topic, "max.message.bytes")[0] == "1048588"


@pytest.mark.administrators
def test_missing_topic_has_no_settings(wire: Wire, unique: str) -> None:
    assert describe(wire, TOPIC, unique).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(wire, unique, "retention.ms", SET, "1") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_broker_s_settings_are_described(wire: Wire) -> None:
    node = metadata(wire).brokers[0].node_id
    (found,) = describe(wire, BROKER, str(node), "producer.id.expiration.ms").configs
    assert found.value == "86400000"
    assert describe(wire, BROKER, "99").error_code != ErrorCode.NONE


@pytest.mark.administrators
def test_alter_configs_drops_unnamed_settings(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes="2000", retention_bytes="5")
    resource = request_class(ApiKey.ALTER_CONFIGS).AlterConfigsResource
    response = wire.call(
        ApiKey.ALTER_CONFIGS,
        2,
        resources=[
            resource(
                resource_type=TOPIC,
                resource_name=topic,
                configs=[resource.AlterableConfig(name="max.message.bytes", value="3000")],
            )
        ],
        validate_only=False,
    )
    assert response.responses[0].error_code == ErrorCode.NONE
    wait_for_value(wire, topic, "max.message.bytes", "3000")
    assert value_of(wire, topic, "retention.bytes")[0] == "-1"

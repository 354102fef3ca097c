"""
Topics and their partitions: CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords.

The order of the checks is the controller's (``ReplicationControlManager``): name, existence, settings,
replication factor, partitions. Every node is a replica, whatever the factor is, which may be at most the
number of nodes. So a client cannot assign replicas, as it can in Kafka.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState
from ..topics import check_partitions
from .configs import describe_topic_settings

__all__ = ["create_partitions", "create_topics", "delete_records", "delete_topics"]

_CreateTopics = response_class(ApiKey.CREATE_TOPICS)
_Created = _CreateTopics.CreatableTopicResult
_DeleteTopics = response_class(ApiKey.DELETE_TOPICS)
_CreatePartitions = response_class(ApiKey.CREATE_PARTITIONS)
_DeleteRecords = response_class(ApiKey.DELETE_RECORDS)
_DeleteRecordsTopic = _DeleteRecords.DeleteRecordsTopicResult

_BROKERS_DEFAULT = -1


def create_topics(state: BrokerState, call: Call, request: Any) -> Any:
    """Create topics, or only check whether that is possible."""
    counts = Counter(wanted.name for wanted in request.topics)
    unique = {wanted.name: wanted for wanted in request.topics}.values()
    return _CreateTopics(
        topics=[_create(state, call, wanted, counts[wanted.name], request.validate_only) for wanted in unique]
    )


def _create(state: BrokerState, call: Call, wanted: Any, count: int, validate_only: bool) -> Any:
    name = wanted.name
    answer = _Created(name=name, topic_id=None, configs=[])
    with call.part(answer), call.faults_at(name):
        overrides = {config.name: config.value for config in wanted.configs}
        if count > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        state.topics.check_new(name, overrides)
        answer.num_partitions = _check_placement(state, wanted)
        answer.replication_factor = len(state.leaders.nodes)
        answer.configs = [
            _Created.CreatableTopicConfigs(name=setting.name, value=value, config_source=source)
            for setting, value, source in describe_topic_settings(overrides)
        ]
        if not validate_only:
            answer.topic_id = state.topics.create(name, answer.num_partitions, overrides).topic_id
    return answer


def _check_placement(state: BrokerState, wanted: Any) -> int:
    """Check replication factor and partitions; return the number of partitions."""
    _check_unassigned(wanted)
    partitions: int = wanted.num_partitions
    factor = wanted.replication_factor
    if factor != _BROKERS_DEFAULT and not 1 <= factor <= len(state.leaders.nodes):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor of {factor} with {len(state.leaders.nodes)} brokers",
        )
    if partitions == _BROKERS_DEFAULT:
        partitions = int(state.config["num.partitions"])
    check_partitions(partitions)
    return partitions


def _check_unassigned(wanted: Any) -> None:
    if wanted.assignments:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "every node is a replica, so none is assigned")


def create_partitions(state: BrokerState, call: Call, request: Any) -> Any:
    """Give topics more partitions."""
    return _CreatePartitions(
        results=[_grow(state, call, wanted, request.validate_only) for wanted in request.topics]
    )


def _grow(state: BrokerState, call: Call, wanted: Any, validate_only: bool) -> Any:
    answer = _CreatePartitions.CreatePartitionsTopicResult(name=wanted.name)
    with call.part(answer), call.faults_at(wanted.name):
        topic = state.topics.topic(wanted.name)
        added = wanted.count - len(topic.logs)
        if added <= 0:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, f"topic {topic.name!r} has {len(topic.logs)} partitions"
            )
        check_partitions(added)
        _check_unassigned(wanted)
        if not validate_only:
            state.topics.grow(topic, wanted.count)
    return answer


def delete_topics(state: BrokerState, call: Call, request: Any) -> Any:
    """Delete topics, with their groups' offsets."""
    return _DeleteTopics(responses=[_delete(state, call, name) for name in request.topic_names])


def _delete(state: BrokerState, call: Call, name: str) -> Any:
    answer = _DeleteTopics.DeletableTopicResult(name=name)
    with call.part(answer), call.faults_at(name):
        topic = state.topics.topic(name)
        state.topics.delete(topic)
        state.groups.forget_topic(name)
        state.leaders.forget(name)
    return answer


def delete_records(state: BrokerState, call: Call, request: Any) -> Any:
    """Move partitions' start offsets; -1 deletes all records."""
    return _DeleteRecords(
        topics=[
            _DeleteRecordsTopic(
                name=topic.name,
                partitions=[_delete_records(state, call, topic.name, each) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete_records(state: BrokerState, call: Call, topic: str, wanted: Any) -> Any:
    partition = wanted.partition_index
    answer = _DeleteRecordsTopic.DeleteRecordsPartitionResult(partition_index=partition, low_watermark=-1)
    with call.part(answer), call.faults_at(topic, partition):
        answer.low_watermark = state.led_log(topic, partition).delete_records(wanted.offset)
    return answer

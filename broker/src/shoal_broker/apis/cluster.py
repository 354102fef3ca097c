"""
The brokers and what they serve: ApiVersions, Metadata, DescribeCluster, FindCoordinator.

Every node that runs is a replica of every partition, and the first one is the controller.
"""

from __future__ import annotations

import re
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState
from ..storage.log import Log
from ..topics import Topic, check_topic_name

__all__ = ["api_versions", "describe_cluster", "find_coordinator", "metadata", "unsupported_version"]

_ApiVersions = response_class(ApiKey.API_VERSIONS)
_Metadata = response_class(ApiKey.METADATA)
_MetadataTopic = _Metadata.MetadataResponseTopic
_DescribeCluster = response_class(ApiKey.DESCRIBE_CLUSTER)
_FindCoordinator = response_class(ApiKey.FIND_COORDINATOR)

#: Otherwise librdkafka assumes that the broker supports no compression (KAFKA-18659, as in Kafka 4).
_ANNOUNCED_OLDEST = {ApiKey.PRODUCE: 0}

#: Names and versions of client software (KIP-511).
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

#: The endpoint type of DescribeCluster, and the key types of FindCoordinator.
_BROKERS = 1
_GROUP, _TRANSACTION = 0, 1

#: From this version of FindCoordinator on, a request may name several keys (KIP-699).
_SEVERAL_KEYS_FROM = 4


def api_versions(state: BrokerState, call: Call, request: Any) -> Any:
    """Return the APIs that the broker serves, with their versions."""
    if call.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return _ApiVersions(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return _ApiVersions(
        api_keys=[
            _ApiVersions.ApiVersion(
                api_key=api.key,
                min_version=_ANNOUNCED_OLDEST.get(api.key, api.oldest),
                max_version=api.newest,
            )
            for api in state.apis.values()
        ],
    )


def unsupported_version(state: BrokerState) -> Any:
    """Return the answer, of v0, to an ApiVersions that is too new; the client asks again (KIP-511)."""
    api = state.apis[ApiKey.API_VERSIONS]
    version = _ApiVersions.ApiVersion(api_key=api.key, min_version=api.oldest, max_version=api.newest)
    return _ApiVersions(version=0, error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[version])


def metadata(state: BrokerState, call: Call, request: Any) -> Any:
    """
    Describe the nodes, the topics and their partitions.

    A client gets all topics with an empty list in v0, with null in later versions; from v10 it may name
    topics by id. A topic that does not exist is created if ``auto.create.topics.enable`` is true and the
    client allows it.

    """
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = [_described(state, topic) for topic in state.topics]
    else:
        # A set in Kafka too: ten bytes of a request may name ten thousand partitions, but only once.
        unique = {(wanted.name, wanted.topic_id): wanted for wanted in request.topics}.values()
        topics = [_topic(state, call, wanted, request) for wanted in unique]
    return _Metadata(
        brokers=[
            _Metadata.MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=None)
            for node in state.leaders.nodes
        ],
        cluster_id=state.cluster_id,
        controller_id=state.leaders.nodes[0].node_id,
        topics=topics,
    )


def _topic(state: BrokerState, call: Call, wanted: Any, request: Any) -> Any:
    answer = _MetadataTopic(name=wanted.name, topic_id=wanted.topic_id, partitions=[])
    with call.part(answer), call.faults_at(wanted.name or ""):
        if wanted.name is None:
            return _described(state, state.topics.with_id(wanted.topic_id))
        return _described(state, state.topics.get(wanted.name) or _created(state, request, wanted.name))
    return answer


def _created(state: BrokerState, request: Any, name: str) -> Topic:
    check_topic_name(name)
    if not (
        request.allow_auto_topic_creation and state.config["auto.create.topics.enable"].lower() == "true"
    ):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    try:
        return state.topics.create(name, int(state.config["num.partitions"]), {})
    except ApiError as error:
        # Another connection may have created it meanwhile.
        topic = state.topics.get(name)
        if topic is None:
            raise error
        return topic


def _described(state: BrokerState, topic: Topic) -> Any:
    return _MetadataTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_partition(state, topic, number, log) for number, log in enumerate(topic.logs)],
    )


def _partition(state: BrokerState, topic: Topic, number: int, log: Log) -> Any:
    leader_id = state.leaders.of(topic.name, number)
    replicas = [node.node_id for node in state.leaders.nodes]
    return _MetadataTopic.MetadataResponsePartition(
        error_code=ErrorCode.NONE if leader_id >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=leader_id,
        leader_epoch=log.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
        offline_replicas=[],
    )


def describe_cluster(state: BrokerState, call: Call, request: Any) -> Any:
    """Return the cluster's id and its nodes, also beside an error."""
    answer = _DescribeCluster(
        cluster_id=state.cluster_id,
        controller_id=state.leaders.nodes[0].node_id,
        brokers=[
            _DescribeCluster.DescribeClusterBroker(
                broker_id=node.node_id, host=node.host, port=node.port, rack=None
            )
            for node in state.leaders.nodes
        ],
    )
    with call.part(answer), call.faults_at():
        if request.endpoint_type != _BROKERS:
            raise ApiError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this endpoint is a broker's")
    return answer


def find_coordinator(state: BrokerState, call: Call, request: Any) -> Any:
    """Return the coordinators of groups or transactional ids."""
    if call.version < _SEVERAL_KEYS_FROM:
        return _coordinator(state, call, request.key_type, request.key, _FindCoordinator())
    return _FindCoordinator(
        coordinators=[
            _coordinator(state, call, request.key_type, key, _FindCoordinator.Coordinator(key=key))
            for key in request.coordinator_keys
        ]
    )


def _coordinator(state: BrokerState, call: Call, key_type: int, key: str, answer: Any) -> Any:
    answer.node_id, answer.host, answer.port = -1, "", -1
    with call.part(answer), call.faults_at():
        if key_type not in (_GROUP, _TRANSACTION):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {key_type}")
        node = state.leaders.coordinator_of(key)
        answer.node_id, answer.host, answer.port = node.node_id, node.host, node.port
    return answer

"""
Metadata (API key 3), v0 to v12.

Every node that runs is a replica of every partition, and the first one is the controller. A client gets all
topics with an empty list in v0, with null in later versions; from v10 it may name topics by id. A topic that
does not exist is created if ``auto.create.topics.enable`` is true and the client allows it.
"""

from __future__ import annotations

from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState
from ..storage.log import Log
from ..topics import Topic, check_topic_name
from .answering import answer_errors, of_topic

__all__ = ["handle"]

_Response = response_class(ApiKey.METADATA)
_Broker = _Response.MetadataResponseBroker
_Topic = _Response.MetadataResponseTopic
_Partition = _Topic.MetadataResponsePartition


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Describe the nodes, the topics and their partitions."""
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = [_described(state, topic) for topic in state.topics]
    else:
        # A set in Kafka too: ten bytes of a request may name ten thousand partitions, but only once.
        unique = {(wanted.name, wanted.topic_id): wanted for wanted in request.topics}.values()
        topics = [_answer(state, call, wanted.name or "", wanted, request) for wanted in unique]
    return _Response(
        brokers=[
            _Broker(node_id=node.node_id, host=node.host, port=node.port, rack=None)
            for node in state.leaders.nodes
        ],
        cluster_id=state.cluster_id,
        controller_id=state.leaders.nodes[0].node_id,
        topics=topics,
    )


def _refused(error: ApiError, call: Call, name: str, wanted: Any, *_: object) -> Any:
    return _Topic(error_code=error.code, name=wanted.name, topic_id=wanted.topic_id, partitions=[])


@answer_errors(_refused, place=of_topic)
def _answer(state: BrokerState, call: Call, name: str, wanted: Any, request: Any) -> Any:
    if wanted.name is not None:
        topic = state.topics.get(name) or _created(state, request, name)
    else:
        found = state.topics.with_id(wanted.topic_id) if wanted.topic_id is not None else None
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {wanted.topic_id}")
        topic = found
    return _described(state, topic)


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
    replicas = [node.node_id for node in state.leaders.nodes]
    return _Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            _partition(state.leaders.of(topic.name, number), number, log, replicas)
            for number, log in enumerate(topic.logs)
        ],
    )


def _partition(leader_id: int, number: int, log: Log, replicas: list[int]) -> Any:
    return _Partition(
        error_code=ErrorCode.NONE if leader_id >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=leader_id,
        leader_epoch=log.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
        offline_replicas=[],
    )

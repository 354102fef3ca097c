"""
CreateTopics (API key 19), v2 to v7.

The order of the checks is the controller's (``ReplicationControlManager``): name, existence, settings,
replication factor, partitions. Every node is a replica, whatever the factor is, which may be at most the
number of nodes.
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
from .answering import answer_errors, of_topic
from .describe_configs import describe_topic_settings

__all__ = ["check_assignment", "handle"]

_Response = response_class(ApiKey.CREATE_TOPICS)
_Result = _Response.CreatableTopicResult
_Config = _Result.CreatableTopicConfigs

_BROKERS_DEFAULT = -1


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Create topics, or only check whether that is possible."""
    counts = Counter(wanted.name for wanted in request.topics)
    unique = {wanted.name: wanted for wanted in request.topics}.values()
    return _Response(
        topics=[
            _create(state, call, wanted.name, wanted, counts[wanted.name], request.validate_only)
            for wanted in unique
        ]
    )


def _refused(error: ApiError, call: Call, name: str, *_: object) -> Any:
    return _Result(name=name, topic_id=None, error_code=error.code, error_message=error.message, configs=[])


@answer_errors(_refused, place=of_topic)
def _create(state: BrokerState, call: Call, name: str, wanted: Any, count: int, validate_only: bool) -> Any:
    overrides = {config.name: config.value for config in wanted.configs}
    if count > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    state.topics.check_new(name, overrides)
    partitions = _check_placement(state, wanted)
    topic_id = None
    if not validate_only:
        topic_id = state.topics.create(name, partitions, overrides).topic_id
        for assignment in wanted.assignments:
            state.leaders.assign(name, assignment.partition_index, assignment.broker_ids[0])
    return _Result(
        name=name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=partitions,
        replication_factor=len(state.leaders.nodes),
        configs=[
            _Config(
                name=described.name,
                value=described.value,
                read_only=False,
                config_source=described.source,
                is_sensitive=False,
            )
            for described in describe_topic_settings(overrides)
        ],
    )


def _check_placement(state: BrokerState, wanted: Any) -> int:
    """Check replication factor, partitions and assignment; return the number of partitions."""
    if wanted.assignments:
        if wanted.replication_factor != _BROKERS_DEFAULT or wanted.num_partitions != _BROKERS_DEFAULT:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "with a manual partition assignment, replication factor and partitions must be -1",
            )
        numbers = sorted(assignment.partition_index for assignment in wanted.assignments)
        if numbers != list(range(len(numbers))):
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partitions {numbers} have gaps")
        for assignment in wanted.assignments:
            check_assignment(state, assignment.broker_ids)
        partitions = len(numbers)
    else:
        nodes = len(state.leaders.nodes)
        if wanted.replication_factor != _BROKERS_DEFAULT and not 1 <= wanted.replication_factor <= nodes:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"a replication factor of {wanted.replication_factor} with {nodes} brokers",
            )
        partitions = wanted.num_partitions
        if partitions == _BROKERS_DEFAULT:
            partitions = int(state.config["num.partitions"])
    check_partitions(partitions)
    return partitions


def check_assignment(state: BrokerState, broker_ids: list[int]) -> None:
    """
    Check the replicas that a client assigned to a partition.

    Raises:
        ApiError: With INVALID_REPLICA_ASSIGNMENT.

    """
    known = [node.node_id for node in state.leaders.nodes]
    if not broker_ids or len(set(broker_ids)) < len(broker_ids) or not set(broker_ids) <= set(known):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"replicas {broker_ids}, and the brokers are {known}",
        )

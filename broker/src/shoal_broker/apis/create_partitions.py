"""CreatePartitions (API key 37), v0 to v3."""

from __future__ import annotations

from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState
from ..topics import check_partitions
from .answering import answer_errors, of_topic
from .create_topics import check_assignment

__all__ = ["handle"]

_Response = response_class(ApiKey.CREATE_PARTITIONS)
_Result = _Response.CreatePartitionsTopicResult


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Give topics more partitions."""
    return _Response(
        results=[_grow(state, call, wanted.name, wanted, request.validate_only) for wanted in request.topics]
    )


def _refused(error: ApiError, call: Call, name: str, *_: object) -> Any:
    return _Result(name=name, error_code=error.code, error_message=error.message)


@answer_errors(_refused, place=of_topic)
def _grow(state: BrokerState, call: Call, name: str, wanted: Any, validate_only: bool) -> Any:
    topic = state.topics.topic(name)
    added = wanted.count - len(topic.logs)
    if added <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"topic {name!r} has {len(topic.logs)} partitions")
    check_partitions(added)
    if wanted.assignments is not None:
        if len(wanted.assignments) != added:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{len(wanted.assignments)} assignments for {added} new partitions",
            )
        for assignment in wanted.assignments:
            check_assignment(state, assignment.broker_ids)
    if not validate_only:
        state.topics.grow(topic, wanted.count)
    return _Result(name=name, error_message=None)

"""CreatePartitions (API key 37), v0 to v3: give topics more partitions."""

from __future__ import annotations

from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState
from ..topics import check_partitions
from .create_topics import check_assignment

__all__ = ["handle"]

_Response = response_class(ApiKey.CREATE_PARTITIONS)
_Result = _Response.CreatePartitionsTopicResult


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    results = [_grow(state, call, wanted, request.validate_only) for wanted in request.topics]
    return _Response(version=call.version, results=results)


def _grow(state: BrokerState, call: Call, wanted: Any, validate_only: bool) -> Any:
    try:
        call.check_before(wanted.name)
        topic = state.topics.topic(wanted.name)
        added = wanted.count - len(topic.logs)
        if added <= 0:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, f"topic {wanted.name!r} has {len(topic.logs)} partitions"
            )
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
        call.check_after(wanted.name)
    except ApiError as refused:
        return _Result(name=wanted.name, error_code=refused.code, error_message=refused.message)
    return _Result(name=wanted.name, error_code=ErrorCode.NONE, error_message=None)

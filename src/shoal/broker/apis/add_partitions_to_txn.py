"""
AddPartitionsToTxn (API key 24), v0 to v3: make partitions part of a transaction, before writing to them.

All or nothing: where one partition is not there, the others are
OPERATION_NOT_ATTEMPTED. v4 and later are between brokers (KIP-890).
"""

from __future__ import annotations

from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState

__all__ = ["handle"]

_Response = response_class(ApiKey.ADD_PARTITIONS_TO_TXN)
_Topic = _Response.AddPartitionsToTxnTopicResult
_Partition = _Topic.AddPartitionsToTxnPartitionResult

_FENCED_FROM = 2


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    partitions = [
        (topic.name, partition) for topic in request.v3_and_below_topics for partition in topic.partitions
    ]
    errors = {each: _error(state, call, *each) for each in partitions}
    if any(errors.values()):
        errors = {each: error or ErrorCode.OPERATION_NOT_ATTEMPTED for each, error in errors.items()}
    else:
        errors = dict.fromkeys(partitions, _add(state, call, request, partitions))
    return _response(call, errors)


def _error(state: BrokerState, call: Call, topic: str, partition: int) -> ErrorCode:
    try:
        call.check_before(topic, partition)
        state.topics.log(topic, partition)
    except ApiError as refused:
        return refused.code
    return ErrorCode.NONE


def _add(state: BrokerState, call: Call, request: Any, partitions: list[tuple[str, int]]) -> ErrorCode:
    try:
        state.transactions.add_partitions(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            partitions,
        )
        call.check_after()
    except ApiError as refused:
        return call.code_of(refused, fenced_from=_FENCED_FROM)
    return ErrorCode.NONE


def _response(call: Call, errors: dict[tuple[str, int], ErrorCode]) -> Any:
    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), error in errors.items():
        result = _Partition(partition_index=partition, partition_error_code=error)
        by_topic.setdefault(topic, []).append(result)
    return _Response(
        version=call.version,
        results_by_topic_v3_and_below=[
            _Topic(name=topic, results_by_partition=results) for topic, results in by_topic.items()
        ],
    )

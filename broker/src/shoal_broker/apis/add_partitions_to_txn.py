"""
AddPartitionsToTxn (API key 24), v0 to v3.

If one partition does not exist, the others get OPERATION_NOT_ATTEMPTED, and none is added.
v4 and later are between brokers (KIP-890).
"""

from __future__ import annotations

from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..call import Call
from ..state import BrokerState
from .answering import answer_errors, error_code, of_partition

__all__ = ["handle"]

_Response = response_class(ApiKey.ADD_PARTITIONS_TO_TXN)
_Topic = _Response.AddPartitionsToTxnTopicResult
_Partition = _Topic.AddPartitionsToTxnPartitionResult


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Make partitions part of a transaction, before the producer writes to them."""
    partitions = [
        (topic.name, partition) for topic in request.v3_and_below_topics for partition in topic.partitions
    ]
    errors = {each: _check(state, call, *each) for each in partitions}
    if any(errors.values()):
        errors = {each: error or ErrorCode.OPERATION_NOT_ATTEMPTED for each, error in errors.items()}
    else:
        errors = dict.fromkeys(partitions, _add(state, call, request, partitions))
    return _response(errors)


@answer_errors(error_code, place=of_partition, effects=["before"])
def _check(state: BrokerState, call: Call, topic: str, partition: int) -> ErrorCode:
    state.topics.log(topic, partition)
    return ErrorCode.NONE


@answer_errors(error_code, effects=["after"])
def _add(state: BrokerState, call: Call, request: Any, partitions: list[tuple[str, int]]) -> ErrorCode:
    state.transactions.add_partitions(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        partitions,
    )
    return ErrorCode.NONE


def _response(errors: dict[tuple[str, int], ErrorCode]) -> Any:
    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), error in errors.items():
        result = _Partition(partition_index=partition, partition_error_code=error)
        by_topic.setdefault(topic, []).append(result)
    return _Response(
        results_by_topic_v3_and_below=[
            _Topic(name=topic, results_by_partition=results) for topic, results in by_topic.items()
        ]
    )

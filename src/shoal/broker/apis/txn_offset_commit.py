"""
TxnOffsetCommit (API key 28), v0 to v4: commit a group's offsets when the transaction does.

From v3 on a producer may name the group's member and generation, which fences
it as OffsetCommit would (KIP-447).
"""

from __future__ import annotations

from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..coordination.group import CommittedOffset
from ..state import BrokerState
from .offset_commit import committed_offset

__all__ = ["handle"]

_Response = response_class(ApiKey.TXN_OFFSET_COMMIT)
_Topic = _Response.TxnOffsetCommitResponseTopic
_Partition = _Topic.TxnOffsetCommitResponsePartition


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    errors: dict[tuple[str, int], ErrorCode] = {}
    offsets: dict[tuple[str, int], CommittedOffset] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            errors[key] = ErrorCode.NONE
            try:
                call.check_before(*key)
                state.topics.log(*key)
                offsets[key] = committed_offset(state, partition)
            except ApiError as refused:
                errors[key] = refused.code
    try:
        _commit(state, request, offsets)
        call.check_after()
    except ApiError as refused:
        errors |= dict.fromkeys(offsets, _as_told(refused))
    return _response(call, request, errors)


def _commit(state: BrokerState, request: Any, offsets: dict[tuple[str, int], CommittedOffset]) -> None:
    state.transactions.check_group(
        request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
    )
    state.groups.check_transactional_commit(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    state.groups.commit(request.group_id, offsets, request.producer_id)


def _as_told(refused: ApiError) -> ErrorCode:
    # The group coordinator does not know PRODUCER_FENCED, in any version.
    if refused.code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return refused.code


def _response(call: Call, request: Any, errors: dict[tuple[str, int], ErrorCode]) -> Any:
    return _Response(
        version=call.version,
        topics=[
            _Topic(
                name=topic.name,
                partitions=[
                    _Partition(
                        partition_index=partition.partition_index,
                        error_code=errors[topic.name, partition.partition_index],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )

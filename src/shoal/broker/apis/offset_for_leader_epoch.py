"""
OffsetForLeaderEpoch (API key 23), v0 to v4: where a leader epoch ends.

The current epoch ends at the log's end, not at the high watermark: who asks
with it learns what the leader has, acknowledged or not.
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

_Response = response_class(ApiKey.OFFSET_FOR_LEADER_EPOCH)
_Topic = _Response.OffsetForLeaderTopicResult
_Partition = _Topic.EpochEndOffset


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    return _Response(
        version=call.version,
        topics=[
            _Topic(
                topic=topic.topic,
                partitions=[_answer(state, call, topic.topic, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _answer(state: BrokerState, call: Call, topic: str, wanted: Any) -> Any:
    try:
        call.check_before(topic, wanted.partition)
        log = state.led_log(topic, wanted.partition)
        log.check_leader_epoch(wanted.current_leader_epoch)
        leader_epoch, end_offset = log.end_of_leader_epoch(wanted.leader_epoch)
    except ApiError as refused:
        return _Partition(error_code=refused.code, partition=wanted.partition, leader_epoch=-1, end_offset=-1)
    return _Partition(
        error_code=ErrorCode.NONE,
        partition=wanted.partition,
        leader_epoch=leader_epoch,
        end_offset=end_offset,
    )

"""
OffsetForLeaderEpoch (API key 23), v2 to v4: the end offsets of leader epochs.

The current epoch ends at the log's end, not at the high watermark: the leader has those records, whether they
are acknowledged or not.
"""

from __future__ import annotations

from typing import Any

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState
from .answering import answer_errors, of_partition

__all__ = ["handle"]

_Response = response_class(ApiKey.OFFSET_FOR_LEADER_EPOCH)
_Topic = _Response.OffsetForLeaderTopicResult
_Partition = _Topic.EpochEndOffset


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Return the end offset of each partition's leader epoch."""
    return _Response(
        topics=[
            _Topic(
                topic=topic.topic,
                partitions=[
                    _answer(state, call, topic.topic, each.partition, each) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _refused(error: ApiError, call: Call, topic: str, partition: int, *_: object) -> Any:
    return _Partition(error_code=error.code, partition=partition, leader_epoch=-1, end_offset=-1)


@answer_errors(_refused, place=of_partition)
def _answer(state: BrokerState, call: Call, topic: str, partition: int, wanted: Any) -> Any:
    log = state.led_log(topic, partition)
    log.check_leader_epoch(wanted.current_leader_epoch)
    leader_epoch, end_offset = log.end_of_leader_epoch(wanted.leader_epoch)
    return _Partition(partition=partition, leader_epoch=leader_epoch, end_offset=end_offset)

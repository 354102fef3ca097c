"""DeleteRecords (API key 21), v0 to v2: move a partition's start, with -1 to its end."""

from __future__ import annotations

from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState

__all__ = ["handle"]

_Response = response_class(ApiKey.DELETE_RECORDS)
_Topic = _Response.DeleteRecordsTopicResult
_Partition = _Topic.DeleteRecordsPartitionResult


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    return _Response(
        version=call.version,
        topics=[
            _Topic(
                name=topic.name,
                partitions=[
                    _delete(state, call, topic.name, each.partition_index, each.offset)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _delete(state: BrokerState, call: Call, topic: str, partition: int, offset: int) -> Any:
    try:
        call.check_before(topic, partition)
        state.led_log(topic, partition)
        low_watermark = state.topics.delete_records(topic, partition, offset)
        call.check_after(topic, partition)
    except ApiError as refused:
        return _Partition(partition_index=partition, low_watermark=-1, error_code=refused.code)
    return _Partition(partition_index=partition, low_watermark=low_watermark, error_code=ErrorCode.NONE)

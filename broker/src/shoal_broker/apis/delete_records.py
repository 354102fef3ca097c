"""DeleteRecords (API key 21), v0 to v2."""

from __future__ import annotations

from typing import Any

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState
from .answering import answer_errors, of_partition

__all__ = ["handle"]

_Response = response_class(ApiKey.DELETE_RECORDS)
_Topic = _Response.DeleteRecordsTopicResult
_Partition = _Topic.DeleteRecordsPartitionResult


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Move partitions' start offsets; -1 deletes all records."""
    return _Response(
        topics=[
            _Topic(
                name=topic.name,
                partitions=[
                    _delete(state, call, topic.name, each.partition_index, each.offset)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _refused(error: ApiError, call: Call, topic: str, partition: int, *_: object) -> Any:
    return _Partition(partition_index=partition, low_watermark=-1, error_code=error.code)


@answer_errors(_refused, place=of_partition)
def _delete(state: BrokerState, call: Call, topic: str, partition: int, offset: int) -> Any:
    low_watermark = state.led_log(topic, partition).delete_records(offset)
    return _Partition(partition_index=partition, low_watermark=low_watermark)

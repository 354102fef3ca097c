"""
ListOffsets (API key 2), v1 to v8.

Special timestamps: -1 is the end (with ``read_committed`` the last stable offset), and -2 the start. -3 is
the record with the largest timestamp (v7, KIP-734). -4 is the local log's start (v8, KIP-405), here the same
as -2.

The answer has the leader epoch of the record's batch, or of the log's start; for -1 it is the current one.
"""

from __future__ import annotations

from typing import Any

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState
from ..storage.batches import TimestampAndOffset
from ..storage.log import Log
from .answering import answer_errors, of_partition

__all__ = ["handle"]

_Response = response_class(ApiKey.LIST_OFFSETS)
_Topic = _Response.ListOffsetsTopicResponse
_Partition = _Topic.ListOffsetsPartitionResponse

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_READ_COMMITTED = 1


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Return the offsets at given times, the start or the end of partitions."""
    committed = request.isolation_level == _READ_COMMITTED
    return _Response(
        topics=[
            _Topic(
                name=topic.name,
                partitions=[
                    _answer(state, call, topic.name, each.partition_index, each, committed=committed)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _refused(error: ApiError, call: Call, topic: str, partition: int, *_: object, **options: object) -> Any:
    return _Partition(partition_index=partition, error_code=error.code, timestamp=-1, offset=-1)


@answer_errors(_refused, place=of_partition)
def _answer(
    state: BrokerState, call: Call, topic: str, partition: int, wanted: Any, *, committed: bool
) -> Any:
    log = state.led_log(topic, partition)
    log.check_leader_epoch(wanted.current_leader_epoch)
    found = _find(log, wanted.timestamp, committed)
    return _Partition(
        partition_index=partition,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _find(log: Log, timestamp: int, committed: bool) -> TimestampAndOffset:
    end = log.last_stable_offset if committed else log.high_watermark
    if timestamp == _LATEST:
        return TimestampAndOffset(-1, end, log.leader_epoch)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return log.start()
    if timestamp == _MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp()
    else:
        found = log.offset_for_timestamp(timestamp)
    return found if found.offset < end else TimestampAndOffset(-1, -1)

"""
ListOffsets (API key 2), v1 to v8: where a log begins and ends, and which offset a time has.

Special timestamps: -1 the end (with ``read_committed`` the last stable
offset), -2 the start, -3 the record with the largest timestamp (v7, KIP-734),
-4 the local log's start (v8, KIP-405), which is the start here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..call import Call
from ..log import Log, TimestampAndOffset
from ..refusal import Refused

if TYPE_CHECKING:
    from ..broker import Broker

__all__ = ["handle"]

_Response = response_class(ApiKey.LIST_OFFSETS)
_Topic = _Response.ListOffsetsTopicResponse
_Partition = _Topic.ListOffsetsPartitionResponse

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_READ_COMMITTED = 1


def handle(broker: Broker, call: Call, request: Any) -> Any:
    committed = request.isolation_level == _READ_COMMITTED
    return _Response(
        version=call.version,
        topics=[
            _Topic(
                name=topic.name,
                partitions=[_answer(broker, call, topic.name, each, committed) for each in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _answer(broker: Broker, call: Call, topic: str, wanted: Any, committed: bool) -> Any:
    partition = wanted.partition_index
    try:
        call.check_before(topic, partition)
        log = broker.led_log(topic, partition)
        log.check_leader_epoch(wanted.current_leader_epoch)
        found = _find(log, wanted.timestamp, committed)
    except Refused as refused:
        return _Partition(partition_index=partition, error_code=refused.code, timestamp=-1, offset=-1)
    return _Partition(
        partition_index=partition,
        error_code=ErrorCode.NONE,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=log.leader_epoch if found.offset >= 0 else -1,
    )


def _find(log: Log, timestamp: int, committed: bool) -> TimestampAndOffset:
    end = log.last_stable_offset if committed else log.high_watermark
    if timestamp == _LATEST:
        return TimestampAndOffset(-1, end)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return TimestampAndOffset(-1, log.log_start_offset)
    if timestamp == _MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp()
    else:
        found = log.offset_for_timestamp(timestamp)
    return found if found.offset < end else TimestampAndOffset(-1, -1)

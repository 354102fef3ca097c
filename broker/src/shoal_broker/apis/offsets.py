"""
Offsets of partitions by time, the start or the end (ListOffsets), and by leader epoch (OffsetForLeaderEpoch).

Special timestamps: -1 is the end (with ``read_committed`` the last stable offset), and -2 the start. -3 is
the record with the largest timestamp (v7, KIP-734). -4 is the local log's start (v8, KIP-405), here the same
as -2. In a version before, and for any other negative timestamp, the error is UNSUPPORTED_VERSION.

The answer has the leader epoch of the record's batch, or of the log's start; for -1 it is the current one.
"""

from __future__ import annotations

from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState
from ..storage.batches import TimestampAndOffset
from ..storage.log import Log

__all__ = ["list_offsets", "offset_for_leader_epoch"]

_ListOffsets = response_class(ApiKey.LIST_OFFSETS)
_ListOffsetsTopic = _ListOffsets.ListOffsetsTopicResponse
_LeaderEpochs = response_class(ApiKey.OFFSET_FOR_LEADER_EPOCH)
_LeaderEpochsTopic = _LeaderEpochs.OffsetForLeaderTopicResult

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_FIRST_VERSIONS = {_LATEST: 0, _EARLIEST: 0, _MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8}
_READ_COMMITTED = 1


def list_offsets(state: BrokerState, call: Call, request: Any) -> Any:
    """Return the offsets at given times, the start or the end of partitions."""
    committed = request.isolation_level == _READ_COMMITTED
    return _ListOffsets(
        topics=[
            _ListOffsetsTopic(
                name=topic.name,
                partitions=[_at_time(state, call, topic.name, each, committed) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _at_time(state: BrokerState, call: Call, topic: str, wanted: Any, committed: bool) -> Any:
    partition = wanted.partition_index
    answer = _ListOffsetsTopic.ListOffsetsPartitionResponse(partition_index=partition)
    with call.part(answer), call.faults_at(topic, partition):
        if wanted.timestamp < 0 and call.version < _FIRST_VERSIONS.get(wanted.timestamp, 1 << 15):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"v{call.version} lacks {wanted.timestamp}")
        log = state.led_log(topic, partition)
        log.epochs.check(wanted.current_leader_epoch)
        found = _find(log, wanted.timestamp, committed)
        answer.timestamp, answer.offset, answer.leader_epoch = found
    return answer


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


def offset_for_leader_epoch(state: BrokerState, call: Call, request: Any) -> Any:
    """Return the end offset of each partition's leader epoch; the current one ends at the log's end."""
    return _LeaderEpochs(
        topics=[
            _LeaderEpochsTopic(
                topic=topic.topic,
                partitions=[_end_of_epoch(state, call, topic.topic, each) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end_of_epoch(state: BrokerState, call: Call, topic: str, wanted: Any) -> Any:
    answer = _LeaderEpochsTopic.EpochEndOffset(partition=wanted.partition)
    with call.part(answer), call.faults_at(topic, wanted.partition):
        log = state.led_log(topic, wanted.partition)
        log.epochs.check(wanted.current_leader_epoch)
        answer.leader_epoch, answer.end_offset = log.end_of_leader_epoch(wanted.leader_epoch)
    return answer

"""
ListOffsets v0: a list of offsets before a time, where v1 has the first offset at or after it.

Kafka returned the base offsets of segments that were last written before the time, the newest first. With
``LATEST`` the log's end came before them (``fetchOffsetsBefore``). Clients of a cluster cannot see segments.
So the gateway returns the offset of the time itself, which is at least as exact. If the client asks for more
than one, the log's start follows. For a time after all records, the offset is the log's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...error_codes import ErrorCode
from ...protocol import codec
from ...protocol.apis import ApiKey
from ...topic_partition import TopicPartition
from .request import Part, TranslatedRequest, old_code

__all__ = ["translate"]

_LATEST, _EARLIEST = -1, -2
_UNKNOWN = -1

_Request = codec.request_class(ApiKey.LIST_OFFSETS)
_Topic = _Request.ListOffsetsTopic
_Partition = _Topic.ListOffsetsPartition


_Response = codec.response_class(ApiKey.LIST_OFFSETS)
_TopicAnswer = _Response.ListOffsetsTopicResponse
_PartitionAnswer = _TopicAnswer.ListOffsetsPartitionResponse


class _Wanted(NamedTuple):
    timestamp: int
    most_offsets: int


class _ListedOffset(NamedTuple):
    error_code: int
    offset: int


def translate(request: TranslatedRequest) -> Sequence[Part]:
    """Look the times up, and return the offsets in lists."""
    wanted = {
        TopicPartition(topic.name, each.partition_index): _Wanted(each.timestamp, each.max_num_offsets)
        for topic in request.body.topics
        for each in topic.partitions
    }
    found = _look_up(request, {key: each.timestamp for key, each in wanted.items()})
    late = [key for key, each in found.items() if each == _ListedOffset(ErrorCode.NONE, _UNKNOWN)]
    found |= _look_up(request, dict.fromkeys(late, _LATEST))
    several = [key for key, each in wanted.items() if each.most_offsets > 1 and each.timestamp != _EARLIEST]
    starts = _look_up(request, dict.fromkeys(several, _EARLIEST))

    topics: dict[str, list[Any]] = {}
    for key, each in wanted.items():
        first = found.get(key, _ListedOffset(ErrorCode.UNKNOWN_SERVER_ERROR, _UNKNOWN))
        entry = _PartitionAnswer(
            partition_index=key.partition,
            error_code=old_code(first.error_code),
            old_style_offsets=_offsets(first, starts.get(key))[: max(each.most_offsets, 0)],
        )
        topics.setdefault(key.topic, []).append(entry)
    answer = _Response(
        version=request.header.api_version,
        topics=[_TopicAnswer(name=name, partitions=entries) for name, entries in topics.items()],
    )
    return [codec.encode_response(answer, request.header.correlation_id)]


def _offsets(first: _ListedOffset, start: _ListedOffset | None) -> list[int]:
    """List the offset of a time, and then the log's start if it is another offset."""
    if first.error_code != ErrorCode.NONE:
        return []
    if start is None or start.error_code != ErrorCode.NONE or start.offset >= first.offset:
        return [first.offset]
    return [first.offset, start.offset]


def _look_up(
    request: TranslatedRequest, timestamps: Mapping[TopicPartition, int]
) -> dict[TopicPartition, _ListedOffset]:
    if not timestamps:
        return {}
    topics: dict[str, list[Any]] = {}
    for key, timestamp in timestamps.items():
        entry = _Partition(partition_index=key.partition, timestamp=timestamp)
        topics.setdefault(key.topic, []).append(entry)
    answer = request.ask(
        ApiKey.LIST_OFFSETS,
        request.upstream.oldest(ApiKey.LIST_OFFSETS),
        replica_id=-1,
        isolation_level=request.isolation_level.value,
        topics=[_Topic(name=name, partitions=entries) for name, entries in topics.items()],
    )
    return {
        TopicPartition(topic.name, each.partition_index): _ListedOffset(each.error_code, each.offset)
        for topic in answer.topics
        for each in topic.partitions
    }

"""
ListOffsets v0: a list of offsets before a time, where v1 has the first offset at or after it.

Kafka gave the base offsets of the segments that were last written to by then, the newest first, and
before them the log's end if the time was ``LATEST`` (``fetchOffsetsBefore``). Segments are not to be seen
from outside: so there is the offset of the time itself, which is at least as good, and the log's start
where more than one is asked for. For a time that is later than all records that is the log's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import ErrorCode
from ...protocol import codec
from ...protocol.apis import ApiKey
from .asking import Asking, Part, old_code

__all__ = ["translate"]

_LATEST, _EARLIEST = -1, -2
_UNKNOWN = -1

#: The first with an isolation level.
_VERSION = 2

_Request = codec.request_class(ApiKey.LIST_OFFSETS)
_Topic = _Request.ListOffsetsTopic
_Partition = _Topic.ListOffsetsPartition


class _Found(NamedTuple):
    error_code: int
    offset: int


_Key = tuple[str, int]


def translate(asking: Asking) -> Sequence[Part]:
    """Look the times up, and return the offsets in lists."""
    request = asking.request
    wanted = {
        (topic.name, each.partition_index): (each.timestamp, each.max_num_offsets)
        for topic in request.topics
        for each in topic.partitions
    }
    found = _look_up(asking, {key: timestamp for key, (timestamp, _) in wanted.items()})
    late = [key for key, each in found.items() if each == _Found(ErrorCode.NONE, _UNKNOWN)]
    found |= _look_up(asking, dict.fromkeys(late, _LATEST))
    several = [key for key, (timestamp, most) in wanted.items() if most > 1 and timestamp != _EARLIEST]
    starts = _look_up(asking, dict.fromkeys(several, _EARLIEST))

    response = codec.response_class(ApiKey.LIST_OFFSETS)
    topics: dict[str, list[Any]] = {}
    for (name, partition), (_, most) in wanted.items():
        first = found.get((name, partition), _Found(ErrorCode.UNKNOWN_SERVER_ERROR, _UNKNOWN))
        offsets = [first.offset] if first.error_code == ErrorCode.NONE else []
        start = starts.get((name, partition))
        if offsets and start and start.error_code == ErrorCode.NONE and start.offset < first.offset:
            offsets.append(start.offset)
        entry = response.ListOffsetsTopicResponse.ListOffsetsPartitionResponse(
            partition_index=partition,
            error_code=old_code(first.error_code),
            old_style_offsets=offsets[: max(most, 0)],
        )
        topics.setdefault(name, []).append(entry)
    answer = response(
        version=asking.header.api_version,
        topics=[
            response.ListOffsetsTopicResponse(name=name, partitions=entries)
            for name, entries in topics.items()
        ],
    )
    return [codec.encode_response(answer, asking.header.correlation_id)]


def _look_up(asking: Asking, timestamps: Mapping[_Key, int]) -> dict[_Key, _Found]:
    if not timestamps:
        return {}
    topics: dict[str, list[Any]] = {}
    for (name, partition), timestamp in timestamps.items():
        topics.setdefault(name, []).append(_Partition(partition_index=partition, timestamp=timestamp))
    answer = asking.ask(
        ApiKey.LIST_OFFSETS,
        asking.upstream.oldest(ApiKey.LIST_OFFSETS, _VERSION),
        replica_id=-1,
        isolation_level=asking.isolation_level.value,
        topics=[_Topic(name=name, partitions=entries) for name, entries in topics.items()],
    )
    return {
        (topic.name, each.partition_index): _Found(each.error_code, each.offset)
        for topic in answer.topics
        for each in topic.partitions
    }

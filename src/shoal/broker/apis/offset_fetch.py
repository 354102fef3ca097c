"""
OffsetFetch (API key 9), v0 to v9: read a group's positions.

No position is offset -1, and no error; in v0, which Kafka up to 3.9 answered
from ZooKeeper, it is UNKNOWN_TOPIC_OR_PARTITION. Here v0 reads the positions
of later versions too. With ``require_stable`` (v7, KIP-447) a
position that an open transaction would move is UNSTABLE_OFFSET_COMMIT. An error of
the whole group stands at each partition before v2. From v8 on a request names
several groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..coordination.group import CommittedOffset, Group
from ..state import BrokerState

__all__ = ["handle"]

_Response = response_class(ApiKey.OFFSET_FETCH)
_Topic = _Response.OffsetFetchResponseTopic
_Partition = _Topic.OffsetFetchResponsePartition
_Group = _Response.OffsetFetchResponseGroup
_GroupTopic = _Group.OffsetFetchResponseTopics
_GroupPartition = _GroupTopic.OffsetFetchResponsePartitions

_NO_POSITION_FROM, _GROUP_ERROR_FROM, _SEVERAL_GROUPS_FROM = 1, 2, 8

_NONE = CommittedOffset(-1, -1, "", -1)

_Wanted = Sequence[tuple[str, Sequence[int]]]
_Answer = tuple[int, ErrorCode, CommittedOffset]
_Found = Mapping[str, Sequence[_Answer]]


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    if call.version >= _SEVERAL_GROUPS_FROM:
        groups = [_group_response(state, call, request, group) for group in request.groups]
        return _Response(version=call.version, groups=groups)
    try:
        found = _find(state, call, request.group_id, request.topics, request.require_stable)
    except ApiError as refused:
        found = {} if call.version >= _GROUP_ERROR_FROM else _at_each_partition(request.topics, refused.code)
        return _Response(
            version=call.version, error_code=refused.code, topics=_topics(found, _Topic, _Partition)
        )
    if call.version < _NO_POSITION_FROM:
        found = {topic: list(map(_without_position, some)) for topic, some in found.items()}
    return _Response(
        version=call.version, error_code=ErrorCode.NONE, topics=_topics(found, _Topic, _Partition)
    )


def _at_each_partition(topics: Iterable[Any], code: ErrorCode) -> _Found:
    return {topic.name: [(each, code, _NONE) for each in topic.partition_indexes] for topic in topics}


def _without_position(answer: _Answer) -> _Answer:
    partition, error, committed = answer
    if committed is _NONE:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return partition, error, committed


def _group_response(state: BrokerState, call: Call, request: Any, wanted: Any) -> Any:
    try:
        found = _find(state, call, wanted.group_id, wanted.topics, request.require_stable)
    except ApiError as refused:
        return _Group(group_id=wanted.group_id, error_code=refused.code, topics=[])
    return _Group(
        group_id=wanted.group_id,
        error_code=ErrorCode.NONE,
        topics=_topics(found, _GroupTopic, _GroupPartition),
    )


def _find(
    state: BrokerState, call: Call, group_id: str, topics: Iterable[Any] | None, require_stable: bool
) -> _Found:
    call.check_before()
    wanted = None if topics is None else [(topic.name, topic.partition_indexes) for topic in topics]
    return state.groups.read(group_id, lambda group: _read(group, wanted, require_stable))


def _read(group: Group, wanted: _Wanted | None, require_stable: bool) -> _Found:
    """Read the positions that are wanted, or all that there are."""
    found: dict[str, list[_Answer]] = {}
    keys = (
        list(group.offsets) if wanted is None else [(topic, each) for topic, some in wanted for each in some]
    )
    for topic, partition in keys:
        if require_stable and group.has_pending_offset(topic, partition):
            answer = (partition, ErrorCode.UNSTABLE_OFFSET_COMMIT, _NONE)
        else:
            answer = (partition, ErrorCode.NONE, group.offsets.get((topic, partition), _NONE))
        found.setdefault(topic, []).append(answer)
    return found


def _topics(found: _Found, topic_class: Any, partition_class: Any) -> list[Any]:
    return [
        topic_class(
            name=topic,
            partitions=[
                partition_class(
                    partition_index=partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                    error_code=error,
                )
                for partition, error, committed in partitions
            ],
        )
        for topic, partitions in found.items()
    ]

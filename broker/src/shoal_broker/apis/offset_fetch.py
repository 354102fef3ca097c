"""
OffsetFetch (API key 9), v1 to v9.

A partition without a committed offset has offset -1 and no error. With ``require_stable`` (v7, KIP-447), an
offset that an open transaction would change is UNSTABLE_OFFSET_COMMIT. In v1, each partition has the error of
the whole group. From v8, a request names several groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..coordination.group import CommittedOffset, Group
from ..state import BrokerState
from .answering import answer_errors

__all__ = ["handle"]

_Response = response_class(ApiKey.OFFSET_FETCH)
_Topic = _Response.OffsetFetchResponseTopic
_Partition = _Topic.OffsetFetchResponsePartition
_Group = _Response.OffsetFetchResponseGroup
_GroupTopic = _Group.OffsetFetchResponseTopics
_GroupPartition = _GroupTopic.OffsetFetchResponsePartitions

_GROUP_ERROR_FROM, _SEVERAL_GROUPS_FROM = 2, 8

_NONE = CommittedOffset(-1, -1, "", -1)

_Wanted = Sequence[tuple[str, Sequence[int]]]
_Answer = tuple[int, ErrorCode, CommittedOffset]
_Found = Mapping[str, Sequence[_Answer]]


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Return groups' committed offsets."""
    if call.version < _SEVERAL_GROUPS_FROM:
        return _of_one_group(state, call, request)
    return _Response(groups=[_of_group(state, call, each, request) for each in request.groups])


def _group_refused(error: ApiError, call: Call, request: Any) -> Any:
    found = {} if call.version >= _GROUP_ERROR_FROM else _at_each_partition(request.topics, error.code)
    return _Response(error_code=error.code, topics=_topics(found, _Topic, _Partition))


@answer_errors(_group_refused)
def _of_one_group(state: BrokerState, call: Call, request: Any) -> Any:
    found = _find(state, request.group_id, request.topics, request.require_stable)
    return _Response(topics=_topics(found, _Topic, _Partition))


@answer_errors(
    lambda error, call, wanted, request: _Group(group_id=wanted.group_id, error_code=error.code, topics=[])
)
def _of_group(state: BrokerState, call: Call, wanted: Any, request: Any) -> Any:
    found = _find(state, wanted.group_id, wanted.topics, request.require_stable)
    return _Group(group_id=wanted.group_id, topics=_topics(found, _GroupTopic, _GroupPartition))


def _at_each_partition(topics: Iterable[Any], code: ErrorCode) -> _Found:
    return {topic.name: [(each, code, _NONE) for each in topic.partition_indexes] for topic in topics}


def _find(state: BrokerState, group_id: str, topics: Iterable[Any] | None, require_stable: bool) -> _Found:
    wanted = None if topics is None else [(topic.name, topic.partition_indexes) for topic in topics]
    return state.groups.read(group_id, lambda group: _read(group, wanted, require_stable))


def _read(group: Group, wanted: _Wanted | None, require_stable: bool) -> _Found:
    """Read the offsets of the given partitions; None reads all that the group has."""
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

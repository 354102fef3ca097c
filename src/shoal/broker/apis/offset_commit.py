"""
OffsetCommit (API key 8), v0 to v9: keep a group's positions.

A position in a partition that is not there, and one with too much metadata,
are refused by themselves; a member that may not commit, for all partitions.

v0 knows no members, v1 says when a position counts as committed. Kafka up to
3.9 kept the positions of v0 in ZooKeeper; here they are the group's, as later
versions' are, and refused while it has members.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..clock import now_ms
from ..coordination.group import CommittedOffset
from ..state import BrokerState

__all__ = ["committed_offset", "handle"]

_Response = response_class(ApiKey.OFFSET_COMMIT)
_Topic = _Response.OffsetCommitResponseTopic
_Partition = _Topic.OffsetCommitResponsePartition


#: DEFAULT_TIMESTAMP: the broker's time, as in all versions but v1.
_NOW = -1


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    errors: dict[tuple[str, int], ErrorCode] = {}
    offsets: dict[tuple[str, int], CommittedOffset] = {}
    for topic, partition in _partitions(request):
        key = (topic.name, partition.partition_index)
        errors[key] = ErrorCode.NONE
        try:
            call.check_before(*key)
            state.topics.log(*key)
            offset = committed_offset(state, partition)
            if call.version == 1 and partition.commit_timestamp != _NOW:
                offset = offset._replace(committed_at_ms=partition.commit_timestamp)
            offsets[key] = offset
        except ApiError as refused:
            errors[key] = refused.code
    try:
        state.groups.check_commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            call.version,
        )
        state.groups.commit(request.group_id, offsets)
        call.check_after()
    except ApiError as refused:
        errors |= dict.fromkeys(offsets, refused.code)
    return _response(call, request, errors)


def committed_offset(state: BrokerState, partition: Any) -> CommittedOffset:
    """
    Return a partition's position as it is kept; for transactional commits too.

    Raises:
        ApiError: With OFFSET_METADATA_TOO_LARGE.

    """
    metadata = partition.committed_metadata or ""
    if len(metadata) > int(state.config["offset.metadata.max.bytes"]):
        raise ApiError(ErrorCode.OFFSET_METADATA_TOO_LARGE, f"metadata of {len(metadata)} characters")
    return CommittedOffset(partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms())


def _partitions(request: Any) -> Iterator[tuple[Any, Any]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield topic, partition


def _response(call: Call, request: Any, errors: dict[tuple[str, int], ErrorCode]) -> Any:
    return _Response(
        version=call.version,
        topics=[
            _Topic(
                name=topic.name,
                partitions=[
                    _Partition(
                        partition_index=partition.partition_index,
                        error_code=errors[topic.name, partition.partition_index],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )

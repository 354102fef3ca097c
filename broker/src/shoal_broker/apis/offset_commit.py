"""
OffsetCommit (API key 8), v2 to v9.

A partition that does not exist, or has too much metadata, is refused by itself. If the member may not commit,
all partitions are refused.
"""

from __future__ import annotations

from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..clock import now_ms
from ..coordination.group import CommittedOffset
from ..state import BrokerState
from .answering import answer_errors, error_code, of_partition

__all__ = ["Offsets", "checked_offsets", "handle", "response_topics"]

_Response = response_class(ApiKey.OFFSET_COMMIT)
_Topic = _Response.OffsetCommitResponseTopic
_Partition = _Topic.OffsetCommitResponsePartition

Offsets = dict[tuple[str, int], CommittedOffset]


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Commit a group's offsets."""
    offsets, errors = checked_offsets(state, call, request)
    errors |= dict.fromkeys(offsets, _commit(state, call, request, offsets))
    return _Response(topics=response_topics(_Topic, _Partition, request, errors))


@answer_errors(error_code, effects=["after"])
def _commit(state: BrokerState, call: Call, request: Any, offsets: Offsets) -> ErrorCode:
    state.groups.check_commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        call.version,
    )
    state.groups.commit(request.group_id, offsets)
    return ErrorCode.NONE


def checked_offsets(
    state: BrokerState, call: Call, request: Any
) -> tuple[Offsets, dict[tuple[str, int], ErrorCode]]:
    """Return the offsets that can be committed, and the errors of the others; for transactions, too."""
    offsets: Offsets = {}
    errors: dict[tuple[str, int], ErrorCode] = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            key = topic.name, wanted.partition_index
            errors[key] = _check(state, call, *key, wanted, offsets)
    return offsets, errors


@answer_errors(error_code, place=of_partition, effects=["before"])
def _check(
    state: BrokerState, call: Call, topic: str, partition: int, wanted: Any, offsets: Offsets
) -> ErrorCode:
    state.topics.log(topic, partition)
    metadata = wanted.committed_metadata or ""
    if len(metadata) > int(state.config["offset.metadata.max.bytes"]):
        raise ApiError(ErrorCode.OFFSET_METADATA_TOO_LARGE, f"metadata of {len(metadata)} characters")
    offsets[topic, partition] = CommittedOffset(
        wanted.committed_offset, wanted.committed_leader_epoch, metadata, now_ms()
    )
    return ErrorCode.NONE


def response_topics(
    topic_class: Any, partition_class: Any, request: Any, errors: dict[tuple[str, int], ErrorCode]
) -> list[Any]:
    """Return the topics of a response that has an error code for each partition of the request."""
    return [
        topic_class(
            name=topic.name,
            partitions=[
                partition_class(
                    partition_index=each.partition_index,
                    error_code=errors[topic.name, each.partition_index],
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]

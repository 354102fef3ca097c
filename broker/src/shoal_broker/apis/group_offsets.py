"""
Groups' committed offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch.

A partition that does not exist, or has too much metadata, is refused by itself. If the member may not commit,
or the offsets take more than a batch of the coordinator's topic may have, all partitions are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..clock import now_ms
from ..coordination.group import CommittedOffset, Group
from ..state import BrokerState

__all__ = ["offset_commit", "offset_fetch", "txn_offset_commit"]

_OffsetCommit = response_class(ApiKey.OFFSET_COMMIT)
_OffsetCommitTopic = _OffsetCommit.OffsetCommitResponseTopic
_TxnOffsetCommit = response_class(ApiKey.TXN_OFFSET_COMMIT)
_TxnOffsetCommitTopic = _TxnOffsetCommit.TxnOffsetCommitResponseTopic
_OffsetFetch = response_class(ApiKey.OFFSET_FETCH)
_FetchTopic = _OffsetFetch.OffsetFetchResponseTopic
_FetchGroup = _OffsetFetch.OffsetFetchResponseGroup
_FetchGroupTopic = _FetchGroup.OffsetFetchResponseTopics

#: The versions of OffsetFetch in which a response first has a group's error, and several groups.
_GROUP_ERROR_FROM, _SEVERAL_GROUPS_FROM = 2, 8

_NONE = CommittedOffset(-1, -1, "", -1)

#: The size of a record of an offset besides its texts: OffsetCommitKey, OffsetCommitValue, and the record's
#: own lengths; and that of the largest batch in Kafka's topic of offsets, by default.
_RECORD_BYTES, _MOST_BYTES = 40, 1_048_588

_Offsets = dict[tuple[str, int], CommittedOffset]


def offset_commit(state: BrokerState, call: Call, request: Any) -> Any:
    """Commit a group's offsets."""

    def commit(offsets: _Offsets) -> None:
        state.groups.check_commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            call.version,
        )
        state.groups.commit(request.group_id, offsets)

    partition_class = _OffsetCommitTopic.OffsetCommitResponsePartition
    return _OffsetCommit(topics=_commit(state, call, request, commit, _OffsetCommitTopic, partition_class))


def txn_offset_commit(state: BrokerState, call: Call, request: Any) -> Any:
    """Commit a group's offsets as part of a transaction; from v3 on as one of its members (KIP-447)."""

    def commit(offsets: _Offsets) -> None:
        state.transactions.check_group(
            request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
        )
        state.groups.check_transactional_commit(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
        state.groups.commit(request.group_id, offsets, request.producer_id)

    partition_class = _TxnOffsetCommitTopic.TxnOffsetCommitResponsePartition
    return _TxnOffsetCommit(
        topics=_commit(state, call, request, commit, _TxnOffsetCommitTopic, partition_class)
    )


def _commit(
    state: BrokerState,
    call: Call,
    request: Any,
    commit: Callable[[_Offsets], None],
    topic_class: Any,
    partition_class: Any,
) -> list[Any]:
    """Check each partition, commit the offsets of those that pass, and return the response's topics."""
    offsets: _Offsets = {}
    # Only OffsetCommit v2 to v4 has it: then the broker's retention does not apply.
    retention_time_ms = getattr(request, "retention_time_ms", -1)
    topics, accepted = [], []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            answer = partition_class(partition_index=wanted.partition_index)
            with call.part(answer), call.faults_at(topic.name, wanted.partition_index):
                offsets[topic.name, wanted.partition_index] = _checked(
                    state, topic.name, wanted, retention_time_ms
                )
                accepted.append(answer)
            answers.append(answer)
        topics.append(topic_class(name=topic.name, partitions=answers))
    texts = "".join(f"{request.group_id}{topic}{each.metadata}" for (topic, _), each in offsets.items())
    try:
        if len(texts.encode()) + _RECORD_BYTES * len(offsets) > _MOST_BYTES:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{len(offsets)} offsets at once")
        commit(offsets)
    except ApiError as error:
        for answer in accepted:
            answer.error_code = call.code_of(error)
    return topics


def _checked(state: BrokerState, topic: str, wanted: Any, retention_time_ms: int) -> CommittedOffset:
    state.topics.log(topic, wanted.partition_index)
    metadata = wanted.committed_metadata or ""
    if len(metadata) > int(state.config["offset.metadata.max.bytes"]):
        raise ApiError(ErrorCode.OFFSET_METADATA_TOO_LARGE, f"metadata of {len(metadata)} characters")
    now = now_ms()
    return CommittedOffset(
        wanted.committed_offset,
        wanted.committed_leader_epoch,
        metadata,
        now,
        now + retention_time_ms if retention_time_ms >= 0 else -1,
    )


def offset_fetch(state: BrokerState, call: Call, request: Any) -> Any:
    """
    Return groups' committed offsets.

    A partition without a committed offset has offset -1 and no error. With ``require_stable`` (v7, KIP-447),
    an offset that an open transaction would change is UNSTABLE_OFFSET_COMMIT. In v1, each partition has the
    error of the whole group.

    """
    stable = request.require_stable
    if call.version >= _SEVERAL_GROUPS_FROM:
        partition_class = _FetchGroupTopic.OffsetFetchResponsePartitions
        groups = [
            _read(
                state,
                call,
                each,
                stable,
                _FetchGroup(group_id=each.group_id),
                _FetchGroupTopic,
                partition_class,
            )
            for each in request.groups
        ]
        return _OffsetFetch(groups=groups)
    partition_class = _FetchTopic.OffsetFetchResponsePartition
    answer = _read(state, call, request, stable, _OffsetFetch(), _FetchTopic, partition_class)
    if answer.error_code and call.version < _GROUP_ERROR_FROM:
        answer.topics = [
            _FetchTopic(
                name=topic.name,
                partitions=[
                    _answered(partition_class, each, _NONE, answer.error_code)
                    for each in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    return answer


def _read(
    state: BrokerState,
    call: Call,
    wanted: Any,
    stable: bool,
    answer: Any,
    topic_class: Any,
    partition_class: Any,
) -> Any:
    """Fill in the answer with a group's offsets in the wanted partitions; null stands for all it has."""

    def read(group: Group) -> None:
        found: dict[str, list[Any]] = {}
        for topic, partition in keys if keys is not None else group.offsets:
            is_unstable = stable and group.has_pending_offset(topic, partition)
            committed = _NONE if is_unstable else group.offsets.get((topic, partition), _NONE)
            error = ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else ErrorCode.NONE
            found.setdefault(topic, []).append(_answered(partition_class, partition, committed, error))
        answer.topics = [topic_class(name=topic, partitions=some) for topic, some in found.items()]

    with call.part(answer), call.faults_at():
        keys = None
        if wanted.topics is not None:
            keys = [(topic.name, each) for topic in wanted.topics for each in topic.partition_indexes]
        state.groups.read(wanted.group_id, read)
    return answer


def _answered(partition_class: Any, partition: int, committed: CommittedOffset, error: ErrorCode) -> Any:
    return partition_class(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )

"""
Commit the translated offsets of one group, and name the outcome of each.

The committer is no member. So the coordinator refuses the commit while the group has members, but not after
a consumer has come, committed and gone. So nothing is sent twice here: the next round first reads the offsets
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...client.cluster import Cluster, is_transient
from ...client.committed_offsets import Committed, commit_offsets
from ...client.coordinator import MemberId
from ...error_codes import ErrorCode, named_code
from ...errors import BrokerError, ShoalError
from ...topic_partition import TopicPartition
from ..model.acls import Acl, grant_command
from .report import Action, GroupOffset

__all__ = ["UNSTABLE_THERE", "commit_translations"]

#: A phrase for an offset that an open transaction of the other cluster changes. A running mirror decides
#: about it again in each round.
UNSTABLE_THERE = "an open transaction commits another offset at the other cluster. Wait until it has ended"

#: The committer is no member: a coordinator takes its offsets only while the group has no members.
_NOBODY = MemberId()

#: The codes of a group that has members now, or is between two generations of them.
_HAS_MEMBERS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)

#: A coordinator answers these, too, if it has written the offsets and its followers have not yet
#: (``CoordinatorOperationExceptionHelper``): they may take effect later.
_WRITTEN_PERHAPS = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT}
)

#: Before OffsetCommit 9 the code of a group that is no consumer group, such as a share group.
_OTHER_TYPE = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_ID_NOT_FOUND})


class _Outcome(NamedTuple):
    action: Action
    detail: str = ""
    may_pass: bool = False


_WRITTEN = _Outcome(Action.WRITTEN)


def commit_translations(cluster: Cluster, group: str, rows: Sequence[GroupOffset]) -> list[GroupOffset]:
    """
    Commit those offsets of a group that have a mark, without being its member, and once.

    Args:
        rows: The offsets, each of another partition.

    Returns:
        All rows, with the outcome of each commit. No error of a broker is raised.

    """
    marked = {row.counterpart: row for row in rows if row.mark and row.counterpart}
    refused: Mapping[TopicPartition, ShoalError]
    try:
        refused = commit_offsets(
            cluster,
            group,
            {each: _to_commit(row) for each, row in marked.items()},
            _NOBODY,
            shorter=lambda each: _to_commit(marked[each], with_mark_alone=True),
        )
    except ShoalError as error:
        refused = dict.fromkeys(marked, error)
    outcomes = {each: _outcome(cluster, group, each, error) for each, error in refused.items()}
    return [
        row
        if row.mark is None or row.counterpart is None
        else replace(
            row,
            mark=None,
            action=(outcome := outcomes.get(row.counterpart, _WRITTEN)).action,
            detail=outcome.detail or row.detail,
            may_pass=outcome.may_pass,
        )
        for row in rows
    ]


def _to_commit(row: GroupOffset, *, with_mark_alone: bool = False) -> Committed:
    assert row.mark is not None
    assert row.translated is not None
    return Committed(row.translated, row.mark.alone if with_mark_alone else row.mark.to_metadata())


def _outcome(cluster: Cluster, group: str, partition: TopicPartition, error: ShoalError) -> _Outcome:
    """Return the outcome of a refused commit, with a sentence: the object, the problem, the remedy."""
    if not isinstance(error, BrokerError):
        return _Outcome(Action.UNCONFIRMED, str(error), may_pass=is_transient(error))
    if error.code in _HAS_MEMBERS:
        return _Outcome(Action.ACTIVE, "a consumer joined the group")
    if error.code is ErrorCode.OFFSET_METADATA_TOO_LARGE:
        return _Outcome(Action.REFUSED, "the metadata of the commit is longer than the broker allows")
    at = f"group {group!r} on {cluster}"
    if error.code in _OTHER_TYPE:
        return _Outcome(Action.REFUSED, f"{at} is not a consumer group. Rename one of them")
    match error.code:
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return _Outcome(Action.REFUSED, f"{at}: {_not_authorized(cluster, 'group', group)}")
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            problem = _not_authorized(cluster, "topic", partition.topic)
            return _Outcome(Action.REFUSED, f"{partition} on {cluster}: {problem}")
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return _Outcome(
                Action.REFUSED, f"there is no {partition} on {cluster}. Has the mirror created it?"
            )
    if error.retriable:
        action = Action.UNCONFIRMED if error.code in _WRITTEN_PERHAPS else Action.REFUSED
        code = named_code(error.raw_code)
        return _Outcome(action, f"{at}: {code}. The next round tries again", may_pass=True)
    return _Outcome(Action.REFUSED, str(error))


def _not_authorized(cluster: Cluster, resource_type: str, resource: str) -> str:
    acl = Acl(cluster.name, resource_type, resource, "READ")
    command = grant_command(acl, cluster.config)
    return f"not authorized. Grant READ on the {resource_type}, as an administrator: {command}"

"""Commit the translated offsets of one group, and name the outcome of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from ...client.cluster import Cluster, patiently
from ...client.committed_offsets import Committed, commit_offsets
from ...client.coordinator import MemberId
from ...error_codes import ErrorCode, named_code
from ...errors import BrokerError, ShoalError
from ...topic_partition import TopicPartition
from ..model.acls import Acl, grant_command
from .mark import Mark
from .offset_rules import Action

__all__ = ["Outcome", "ToCommit", "commit_translations"]

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

#: The coordinator writes the offsets of a request as one batch, of max.message.bytes (1 MB by default) at
#: most. An offset takes 100 bytes, its topic's name and its metadata.
AT_ONCE_BYTES = 500_000
_OFFSET_BYTES = 100


class ToCommit(NamedTuple):
    """An offset to commit, and its mark."""

    partition: TopicPartition
    offset: int
    mark: Mark


#: The action for an offset, and a phrase with the reason.
Outcome: TypeAlias = tuple[Action, str]


def commit_translations(
    cluster: Cluster, group: str, offsets: Iterable[ToCommit], *, patience_s: float
) -> dict[TopicPartition, Outcome]:
    """
    Commit offsets to a group without being its member.

    Args:
        offsets: The offsets, each of another partition.
        patience_s: How long to retry while the coordinator moves or loads its groups.

    Returns:
        The action and a phrase for each partition. No error of a broker is raised.

    """
    outcomes: dict[TopicPartition, Outcome] = {}
    for some in _in_parts(offsets):
        whole = {each.partition: Committed(each.offset, each.mark.to_metadata()) for each in some}
        found = _commit(cluster, group, whole, patience_s)
        # A broker may allow less metadata than Kafka's default.
        alone = {
            each.partition: Committed(each.offset, each.mark.alone)
            for each in some
            if found[each.partition] is _TOO_LARGE
        }
        if alone:
            found |= _commit(cluster, group, alone, patience_s)
        outcomes |= found
    return outcomes


#: Compared by identity.
_TOO_LARGE: Outcome = (Action.REFUSED, "the metadata of the commit is longer than the broker allows")


def _commit(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, Committed], patience_s: float
) -> dict[TopicPartition, Outcome]:
    is_unconfirmed = False

    def attempt() -> Mapping[TopicPartition, ShoalError]:
        nonlocal is_unconfirmed
        try:
            return commit_offsets(cluster, group, offsets, _NOBODY)
        except ShoalError as error:
            is_unconfirmed |= not isinstance(error, BrokerError) or error.code in _WRITTEN_PERHAPS
            raise

    try:
        refused = patiently(attempt, patience_s=patience_s)
    except ShoalError as error:
        refused = dict.fromkeys(offsets, error)
    outcomes = {
        each: _outcome(cluster, group, each, refused[each]) if each in refused else (Action.WRITTEN, "")
        for each in offsets
    }
    if not is_unconfirmed:
        return outcomes
    # An attempt without an answer may have been done, also if a later one was refused.
    return {each: _if_unconfirmed(outcome) for each, outcome in outcomes.items()}


def _if_unconfirmed(outcome: Outcome) -> Outcome:
    action, detail = outcome
    return outcome if action is Action.WRITTEN or outcome is _TOO_LARGE else (Action.UNCONFIRMED, detail)


def _outcome(cluster: Cluster, group: str, partition: TopicPartition, error: ShoalError) -> Outcome:
    """Return the action and the sentence for a refused commit: the object, the problem, the remedy."""
    if not isinstance(error, BrokerError):
        return Action.REFUSED, str(error)
    if error.code in _HAS_MEMBERS:
        return Action.ACTIVE, "a consumer joined the group"
    if error.code in _OTHER_TYPE:
        return Action.REFUSED, f"group {group!r} on {cluster} is not a consumer group. Rename one of them"
    match error.code:
        case ErrorCode.OFFSET_METADATA_TOO_LARGE:
            return _TOO_LARGE
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return Action.REFUSED, f"group {group!r} on {cluster}: {_not_authorized(cluster, 'group', group)}"
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            problem = _not_authorized(cluster, "topic", partition.topic)
            return Action.REFUSED, f"{partition} on {cluster}: {problem}"
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return Action.REFUSED, f"there is no {partition} on {cluster}. Has the mirror created it?"
        case ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
            limit = "Raise max.message.bytes of __consumer_offsets"
            return Action.REFUSED, f"group {group!r} on {cluster}: the commit is too large. {limit}"
    if error.retriable:
        code = named_code(error.raw_code)
        return Action.REFUSED, f"group {group!r} on {cluster}: {code}. The next round tries again"
    return Action.REFUSED, str(error)


def _in_parts(offsets: Iterable[ToCommit]) -> Iterator[list[ToCommit]]:
    """Yield the offsets in parts that fit into a batch of the coordinator."""
    part: list[ToCommit] = []
    size = 0
    for each in offsets:
        # A character has four bytes at most.
        more = _OFFSET_BYTES + len(each.partition.topic) + 4 * len(each.mark.to_metadata())
        if part and size + more > AT_ONCE_BYTES:
            yield part
            part, size = [], 0
        part.append(each)
        size += more
    if part:
        yield part


def _not_authorized(cluster: Cluster, resource_type: str, resource: str) -> str:
    acl = Acl(cluster.name, resource_type, resource, "READ")
    command = grant_command(acl, cluster.config)
    return f"not authorized. Grant READ on the {resource_type}, as an administrator: {command}"

"""
Commit the translated offsets of one group, and name the outcome of each.

The committer is no member. So the coordinator refuses the commit while the group has members, but not after
a consumer has come, committed and gone. So nothing is sent twice here: the next round first reads the offsets
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ...client.cluster import Cluster, is_transient
from ...client.committed_offsets import Committed, commit_offsets
from ...client.coordinator import MemberId
from ...error_codes import ErrorCode, named_code
from ...errors import BrokerError, ShoalError
from ...topic_partition import TopicPartition
from ..model.acls import Acl, grant_command
from .mark import Mark
from .report import Action

__all__ = ["UNSTABLE_THERE", "Outcome", "ToCommit", "commit_translations"]

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

#: The coordinator writes the offsets of a request as one batch, of max.message.bytes (1 MB by default) at
#: most. An offset takes 100 bytes, its topic's name and its metadata.
AT_ONCE_BYTES = 500_000
_OFFSET_BYTES = 100


class ToCommit(NamedTuple):
    """
    An offset to commit.

    Attributes:
        mark: The metadata.
        present: The offset that it replaces; None if there is none.

    """

    partition: TopicPartition
    offset: int
    mark: Mark
    present: int | None = None


class Outcome(NamedTuple):
    """
    The outcome for an offset.

    Attributes:
        detail: A phrase with the reason.
        may_pass: Whether a later commit may succeed.

    """

    action: Action
    detail: str = ""
    may_pass: bool = False


_TOO_LARGE = Outcome(Action.REFUSED, "the metadata of the commit is longer than the broker allows")


def commit_translations(
    cluster: Cluster, group: str, offsets: Iterable[ToCommit]
) -> dict[TopicPartition, Outcome]:
    """
    Commit offsets to a group without being its member, once.

    Args:
        offsets: The offsets, each of another partition.

    Returns:
        The outcome for each partition. No error of a broker is raised.

    """
    outcomes: dict[TopicPartition, Outcome] = {}
    for some in _in_parts(offsets):
        outcomes |= _commit(cluster, group, {each: each.mark.to_metadata() for each in some})
        # A broker may allow less metadata than Kafka's default.
        alone = {each: each.mark.alone for each in some if outcomes[each.partition] == _TOO_LARGE}
        if alone:
            outcomes |= _commit(cluster, group, alone)
    return outcomes


def _commit(cluster: Cluster, group: str, metadata: Mapping[ToCommit, str]) -> dict[TopicPartition, Outcome]:
    """Send one request; the metadata of each offset are given apart."""
    offsets = {each.partition: Committed(each.offset, text) for each, text in metadata.items()}
    refused: Mapping[TopicPartition, ShoalError]
    try:
        refused = commit_offsets(cluster, group, offsets, _NOBODY)
    except ShoalError as error:
        refused = dict.fromkeys(offsets, error)
    return {
        each: _outcome(cluster, group, each, refused[each]) if each in refused else Outcome(Action.WRITTEN)
        for each in offsets
    }


def _outcome(cluster: Cluster, group: str, partition: TopicPartition, error: ShoalError) -> Outcome:
    """Return the outcome of a refused commit, with a sentence: the object, the problem, the remedy."""
    if not isinstance(error, BrokerError):
        return Outcome(Action.UNCONFIRMED, str(error), may_pass=is_transient(error))
    if error.code in _HAS_MEMBERS:
        return Outcome(Action.ACTIVE, "a consumer joined the group")
    if error.code is ErrorCode.OFFSET_METADATA_TOO_LARGE:
        return _TOO_LARGE
    at = f"group {group!r} on {cluster}"
    if error.code in _OTHER_TYPE:
        return Outcome(Action.REFUSED, f"{at} is not a consumer group. Rename one of them")
    match error.code:
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return Outcome(Action.REFUSED, f"{at}: {_not_authorized(cluster, 'group', group)}")
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            problem = _not_authorized(cluster, "topic", partition.topic)
            return Outcome(Action.REFUSED, f"{partition} on {cluster}: {problem}")
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return Outcome(
                Action.REFUSED, f"there is no {partition} on {cluster}. Has the mirror created it?"
            )
        case ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
            limit = "Raise max.message.bytes of __consumer_offsets"
            return Outcome(Action.REFUSED, f"{at}: the commit is too large. {limit}")
    if error.retriable:
        action = Action.UNCONFIRMED if error.code in _WRITTEN_PERHAPS else Action.REFUSED
        code = named_code(error.raw_code)
        return Outcome(action, f"{at}: {code}. The next round tries again", may_pass=True)
    return Outcome(Action.REFUSED, str(error))


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

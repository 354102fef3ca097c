"""
Commit the translated offsets of one group, and name the outcome of each.

The committer is no member. So the coordinator refuses the commit while the group has members, but not after a
consumer has come, committed and gone. The offsets that were decided by are read again before each attempt
that comes late: those that another program has committed since stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from ...client.cluster import Cluster, patiently
from ...client.committed_offsets import Committed, commit_offsets, fetch_offsets
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


#: The action for an offset, and a phrase with the reason.
Outcome: TypeAlias = tuple[Action, str]


def commit_translations(
    cluster: Cluster, group: str, offsets: Iterable[ToCommit], *, patience_s: float, is_fresh: bool = True
) -> dict[TopicPartition, Outcome]:
    """
    Commit offsets to a group without being its member.

    Args:
        offsets: The offsets, each of another partition.
        patience_s: How long to retry while the coordinator moves or loads its groups.
        is_fresh: Whether the offsets that are replaced were read a moment ago.

    Returns:
        The action and a phrase for each partition. No error of a broker is raised.

    """
    outcomes: dict[TopicPartition, Outcome] = {}
    for some in _in_parts(offsets):
        found = _Commit(cluster, group, some, is_fresh=is_fresh).run(patience_s)
        # A broker may allow less metadata than Kafka's default.
        alone = [each for each in some if found[each.partition] is _TOO_LARGE]
        if alone:
            found |= _Commit(cluster, group, alone, is_fresh=is_fresh, with_mark_alone=True).run(patience_s)
        outcomes |= found
    return outcomes


#: Compared by identity.
_TOO_LARGE: Outcome = (Action.REFUSED, "the metadata of the commit is longer than the broker allows")

_COMMITTED_SINCE: Outcome = (Action.ACTIVE, "a consumer has just committed this offset")


class _Commit:
    """The attempts to commit some offsets by one request."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        offsets: Iterable[ToCommit],
        *,
        is_fresh: bool,
        with_mark_alone: bool = False,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._left = {
            each: Committed(each.offset, each.mark.alone if with_mark_alone else each.mark.to_metadata())
            for each in offsets
        }
        self._is_fresh = is_fresh
        self._outcomes: dict[TopicPartition, Outcome] = {}
        self._is_unconfirmed = False

    def run(self, patience_s: float) -> dict[TopicPartition, Outcome]:
        """Commit, and return the outcome for each partition."""
        try:
            refused = patiently(self._attempt, patience_s=patience_s)
        except ShoalError as error:
            refused = {each.partition: error for each in self._left}
        for each in self._left:
            refusal = refused.get(each.partition)
            self._outcomes[each.partition] = (
                (Action.WRITTEN, "")
                if refusal is None
                else _outcome(self._cluster, self._group, each.partition, refusal)
            )
        if not self._is_unconfirmed:
            return self._outcomes
        # An attempt without an answer may have been done, also if a later one was refused.
        return {partition: _if_unconfirmed(outcome) for partition, outcome in self._outcomes.items()}

    def _attempt(self) -> Mapping[TopicPartition, ShoalError]:
        if not self._is_fresh:
            self._leave_out_what_changed()
        self._is_fresh = False
        if not self._left:
            return {}
        offsets = {each.partition: committed for each, committed in self._left.items()}
        try:
            return commit_offsets(self._cluster, self._group, offsets, _NOBODY)
        except ShoalError as error:
            self._is_unconfirmed |= not isinstance(error, BrokerError) or error.code in _WRITTEN_PERHAPS
            raise

    def _leave_out_what_changed(self) -> None:
        """Read the offsets that are replaced again, and leave out those that are others now."""
        partitions = [each.partition for each in self._left]
        try:
            present = fetch_offsets(self._cluster, self._group, partitions)
        except BrokerError as error:
            if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise
            self._outcomes |= dict.fromkeys(partitions, (Action.REFUSED, UNSTABLE_THERE))
            self._left = {}
            return
        for each, committed in list(self._left.items()):
            now = present.get(each.partition)
            if now == committed:
                # An attempt without an answer was done.
                self._outcomes[each.partition] = Action.WRITTEN, ""
            elif (None if now is None else now.offset) != each.present:
                self._outcomes[each.partition] = _COMMITTED_SINCE
            else:
                continue
            del self._left[each]


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

"""
One consumer group of the classic protocol: its members, its generation, its offsets.

States and transitions are those of Kafka's ``ClassicGroup``::

    EMPTY --join--> PREPARING_REBALANCE --all joined--> COMPLETING_REBALANCE --leader synced--> STABLE
      ^                    ^  |                                   |                               |
      +--nobody joined-----+--+-----------------------------------+--join, leave, time-out--------+

A group does not wait and has no threads: a waiting request has a :class:`Pending`, which gets its result
later. The coordinator (:mod:`.groups`) guards all groups by one lock, and waits.
"""

from __future__ import annotations

import enum
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from shoal.error_codes import ErrorCode

from ..api_error import ApiError
from ..clock import now_ms
from .member import Join, JoinResult, Member, MemberIdRequired, Pending, Sync, SyncResult

__all__ = ["CommittedOffset", "Group", "GroupState"]

#: From this version of JoinGroup on, a new member first gets an id, and joins with it (KIP-394).
_MEMBER_ID_REQUIRED_FROM = 4

#: From this version of JoinGroup on, the answer can have a leader skip the assignment (KIP-814).
_SKIP_ASSIGNMENT_FROM = 9


class GroupState(enum.Enum):
    """A group's state; the value is its name in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class CommittedOffset(NamedTuple):
    """
    A group's offset in a partition; times in milliseconds.

    Attributes:
        expires_at_ms: The time from which it may be forgotten, if the commit had a retention time; else -1.

    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_at_ms: int
    expires_at_ms: int = -1


@dataclass(slots=True)
class Group:
    """
    A consumer group.

    Attributes:
        state: Its state, see the head of this module.
        generation: The number of rebalances that ended.
        protocol_type: The first member's, ``consumer`` for example.
        protocol_name: The protocol that the members chose.
        members: By member id, in the order in which they joined.
        promised: The member ids that were handed out (error 79, KIP-394) and have not joined yet, with the
            time at which each lapses.
        leader: The id of the member that makes the assignment.
        deadline: In PREPARING and COMPLETING_REBALANCE, the time at which members that did not join or sync
            are removed.
        offsets: Committed offsets, by topic and partition.
        pending_offsets: The offsets of open transactions, by producer id.
        empty_since_ms: The time at which the last member left.

    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol_name: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    promised: dict[str, float] = field(default_factory=dict)
    deadline: float = 0.0
    offsets: dict[tuple[str, int], CommittedOffset] = field(default_factory=dict)
    pending_offsets: dict[int, dict[tuple[str, int], CommittedOffset]] = field(default_factory=dict)
    empty_since_ms: int = 0

    # Members

    def static_member(self, instance_id: str) -> Member | None:
        """Return the member with this instance id, if there is one."""
        return next((each for each in self.members.values() if each.join.instance_id == instance_id), None)

    def member(self, member_id: str, instance_id: str | None) -> Member:
        """
        Return the member that sent a request.

        Raises:
            ApiError: With FENCED_INSTANCE_ID if another process took over the instance id, otherwise with
                UNKNOWN_MEMBER_ID.

        """
        if instance_id is not None:
            static = self.static_member(instance_id)
            if static is None:
                raise _unknown_member(self, member_id)
            if static.member_id != member_id:
                raise ApiError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"instance id {instance_id!r} belongs to {static.member_id!r}",
                )
        member = self.members.get(member_id)
        if member is None:
            raise _unknown_member(self, member_id)
        return member

    def check_member(self, member_id: str, instance_id: str | None, generation: int, now: float) -> Member:
        """
        Return the member that sent a request of the current generation, and keep its session.

        Raises:
            ApiError: As :meth:`member` does, or with ILLEGAL_GENERATION.

        """
        member = self.member(member_id, instance_id)
        if generation != self.generation:
            raise ApiError(
                ErrorCode.ILLEGAL_GENERATION,
                f"the generation of group {self.group_id!r} is {self.generation}, not {generation}",
            )
        member.renew_session(now)
        return member

    def check_protocols(self, protocol_type: str, names: Sequence[str]) -> None:
        """
        Check that a member has a protocol in common with all the others.

        Raises:
            ApiError: With INCONSISTENT_GROUP_PROTOCOL; the group is not disturbed.

        """
        if self.state is GroupState.EMPTY:
            fits = bool(protocol_type and names)
        else:
            # All members may have left while others have an id and have not joined yet.
            fits_members = not self.members or not self._common_protocols().isdisjoint(names)
            fits = protocol_type == self.protocol_type and bool(names) and fits_members
        if not fits:
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {self.group_id!r} has none of the protocols {protocol_type}:{list(names)}",
            )

    def _common_protocols(self) -> set[str]:
        counts = Counter(name for member in self.members.values() for name in member.join.protocols)
        return {name for name, count in counts.items() if count == len(self.members)}

    def _select_protocol(self) -> str:
        """Return the protocol with the most votes; each member votes for the first that all have."""
        common = self._common_protocols()
        votes = Counter(
            next(name for name in member.join.protocols if name in common) for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def remove(self, member: Member, error: ApiError, now: float) -> None:
        """Remove a member, answer its waiting request, and let the others rebalance."""
        member.answer_join(error)
        member.answer_sync(error)
        self.members.pop(member.member_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), "")
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare_rebalance(now)
        self.try_complete_join(now)

    def _replace_static(self, member: Member, member_id: str) -> None:
        """Give a static member's place to a new process, and fence the old one (KIP-345)."""
        fenced = ApiError(
            ErrorCode.FENCED_INSTANCE_ID, f"{member_id!r} took {member.join.instance_id!r} over"
        )
        member.answer_join(fenced)
        member.answer_sync(fenced)
        if self.leader == member.member_id:
            self.leader = member_id
        del self.members[member.member_id]
        member.member_id = member_id
        self.members[member_id] = member

    # JoinGroup and SyncGroup

    def join(self, join: Join, now: float) -> Pending[JoinResult]:
        """Let a member join; raises as :meth:`~.groups.Groups.join`."""
        if not join.member_id:
            return self._join_new(join, now)
        if join.member_id in self.promised:
            return self._join_as(join, join.member_id, now)
        return self._join_again(join, now)

    def _join_new(self, join: Join, now: float) -> Pending[JoinResult]:
        member_id = f"{join.instance_id or join.client_id}-{uuid.uuid4()}"
        static = self.static_member(join.instance_id) if join.instance_id is not None else None
        if static is not None:
            return self._take_over(static, member_id, join, now)
        if join.instance_id is None and join.version >= _MEMBER_ID_REQUIRED_FROM:
            self.promised[member_id] = now + join.session_timeout_ms / 1000
            raise MemberIdRequired(member_id)
        return self._join_as(join, member_id, now)

    def _join_as(self, join: Join, member_id: str, now: float) -> Pending[JoinResult]:
        member = Member(member_id, join)
        self.promised.pop(member_id, None)
        if not self.members:
            self.protocol_type = join.protocol_type
        self.members[member_id] = member
        self.leader = self.leader or member_id
        return self._rebalance(member, now)

    def _take_over(self, member: Member, member_id: str, join: Join, now: float) -> Pending[JoinResult]:
        """Give a static member's place to its new process; a stable group does not rebalance (KIP-345)."""
        leader_before = self.leader
        self._replace_static(member, member_id)
        # Client id and host stay those of the first process, as in Kafka (replaceStaticMember).
        member.join = replace(join, client_id=member.join.client_id, client_host=member.join.client_host)
        member.renew_session(now)
        if self.state is not GroupState.STABLE or self._select_protocol() != self.protocol_name:
            return self._rebalance(member, now)
        result = self._join_result(member)
        if join.version >= _SKIP_ASSIGNMENT_FROM:
            return Pending(replace(result, skip_assignment=self.leader == member_id))
        # The old id: a leader that finds its own id would send an assignment, and no member waits for one.
        return Pending(replace(result, leader=leader_before, members=()))

    def _join_again(self, join: Join, now: float) -> Pending[JoinResult]:
        member = self.member(join.member_id, join.instance_id)
        same = list(member.join.protocols.items()) == list(join.protocols.items())
        is_follower = self.leader != member.member_id
        # In COMPLETING_REBALANCE, the member did not receive the answer to its JoinGroup.
        if same and (
            self.state is GroupState.COMPLETING_REBALANCE or (self.state is GroupState.STABLE and is_follower)
        ):
            member.renew_session(now)
            return Pending(self._join_result(member))
        member.join = join
        return self._rebalance(member, now)

    def _rebalance(self, member: Member, now: float) -> Pending[JoinResult]:
        """Have a member wait for all the others to join."""
        member.answer_join(ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the member joined again"))
        member.renew_session(now)
        member.joining = pending = Pending[JoinResult]()
        if self.state is not GroupState.PREPARING_REBALANCE:
            self.prepare_rebalance(now)
        self.try_complete_join(now)
        return pending

    def sync(self, sync: Sync, now: float) -> Pending[SyncResult]:
        """Take the leader's assignment, or a member's request; raises as :meth:`~.groups.Groups.sync`."""
        member = self.check_member(sync.member_id, sync.instance_id, sync.generation, now)
        self._check_same_protocol(sync)
        if self.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {self.group_id!r} rebalances")
        member.synced = True
        if self.state is GroupState.STABLE:
            return Pending(self._sync_result(member))
        member.answer_sync(ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the member synced again"))
        member.syncing = pending = Pending[SyncResult]()
        if self.leader == member.member_id:
            self._assign(sync.assignments, now)
        return pending

    def _check_same_protocol(self, sync: Sync) -> None:
        if sync.protocol_type not in (None, self.protocol_type) or sync.protocol_name not in (
            None,
            self.protocol_name,
        ):
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {self.group_id!r} has protocol {self.protocol_type}:{self.protocol_name}",
            )

    # Rebalances

    def prepare_rebalance(self, now: float) -> None:
        """Have all members join again; those that wait for an assignment get an error at once."""
        again = ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {self.group_id!r} rebalances")
        for member in self.members.values():
            member.answer_sync(again)
            member.assignment = b""
        self.deadline = now + self._rebalance_timeout_s()
        self.state = GroupState.PREPARING_REBALANCE

    def _rebalance_timeout_s(self) -> float:
        return max((each.join.rebalance_timeout_ms for each in self.members.values()), default=0) / 1000

    def try_complete_join(self, now: float) -> None:
        """End the rebalance's first half, if all members joined or time is up."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            return
        all_joined = not self.promised and all(member.joining for member in self.members.values())
        if all_joined or now >= self.deadline:
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        # A static member keeps its place until its session ends (KIP-345).
        late = [m for m in self.members.values() if m.joining is None and m.join.instance_id is None]
        for member in late:
            del self.members[member.member_id]
        self.generation += 1
        if not self.members:
            self.state = GroupState.EMPTY
            self.empty_since_ms = now_ms()
            self.protocol_name = self.leader = ""
            return
        joined = [member.member_id for member in self.members.values() if member.joining]
        if self.leader not in joined:
            self.leader = next(iter(joined or self.members))
        self.protocol_name = self._select_protocol()
        self.state = GroupState.COMPLETING_REBALANCE
        self.deadline = now + self._rebalance_timeout_s()
        for member in self.members.values():
            member.synced = False
            member.renew_session(now)
            member.answer_join(self._join_result(member))

    def _join_result(self, member: Member) -> JoinResult:
        """Return a member's view of the current generation; the leader's has all members."""
        members: list[tuple[str, str | None, bytes]] = []
        if member.member_id == self.leader:
            members = [
                (each.member_id, each.join.instance_id, each.join.protocols.get(self.protocol_name, b""))
                for each in self.members.values()
            ]
        return JoinResult(
            self.generation, self.protocol_type, self.protocol_name, self.leader, member.member_id, members
        )

    def _assign(self, assignments: Mapping[str, bytes], now: float) -> None:
        """Take the leader's assignment: the group is stable, and every waiting member gets its part."""
        self.state = GroupState.STABLE
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            member.renew_session(now)
            member.answer_sync(self._sync_result(member))

    def _sync_result(self, member: Member) -> SyncResult:
        """Return a member's part of the assignment."""
        return SyncResult(self.protocol_type, self.protocol_name, member.assignment)

    def expire(self, now: float) -> None:
        """Remove members whose session ended, and end a rebalance that took too long."""
        self.promised = {member_id: until for member_id, until in self.promised.items() if until > now}
        gone = ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "the session timed out")
        for member in list(self.members.values()):
            waiting = member.joining is not None or member.syncing is not None
            if member.expires_at <= now and not waiting:
                self.remove(member, gone, now)
        if self.state is GroupState.COMPLETING_REBALANCE and now >= self.deadline:
            for member in [each for each in self.members.values() if not each.synced]:
                self.remove(member, gone, now)
        self.try_complete_join(now)

    # Offsets

    def commit(
        self, offsets: Mapping[tuple[str, int], CommittedOffset], producer_id: int | None = None
    ) -> None:
        """Keep offsets; those of a producer's transaction are pending until it ends."""
        kept = self.offsets if producer_id is None else self.pending_offsets.setdefault(producer_id, {})
        kept.update(offsets)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Take over a producer's pending offsets, or forget them."""
        pending = self.pending_offsets.pop(producer_id, {})
        if committed:
            self.offsets.update(pending)

    def forget_topic(self, topic: str) -> None:
        """Forget the offsets of a topic, also those of open transactions."""
        for offsets in (self.offsets, *self.pending_offsets.values()):
            for key in [key for key in offsets if key[0] == topic]:
                del offsets[key]

    def has_pending_offset(self, topic: str, partition: int) -> bool:
        """Return whether an open transaction would change this offset (KIP-447)."""
        return any((topic, partition) in offsets for offsets in self.pending_offsets.values())

    def forget_old_offsets(self, now: int, retention_ms: int) -> None:
        """Forget the offsets of a group without members if their own or the broker's retention is over."""

        def expires_at(committed: CommittedOffset) -> int:
            if committed.expires_at_ms >= 0:
                return committed.expires_at_ms
            had_members = bool(self.protocol_type)
            return (self.empty_since_ms if had_members else committed.committed_at_ms) + retention_ms

        self.offsets = {key: each for key, each in self.offsets.items() if expires_at(each) > now}


def _unknown_member(group: Group, member_id: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id!r} has no member {member_id!r}")

"""
The group coordinator: the requests of members, and the commits of offsets.

The classic protocol of Kafka's ``GroupMetadataManager``: join, sync, heartbeat, leave, and commits. JoinGroup
and SyncGroup wait, in the connection's thread, until the group is ready. One lock guards all groups.

``shoal.groups.max.bytes`` bounds the memory of all groups, since any client may join any number of groups,
and disconnect. A member stays until its session ends, up to half an hour later. Kafka bounds the memory of a
group by ``message.max.bytes`` of ``__consumer_offsets``.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ...error_codes import ErrorCode
from ...printable import logger
from ..api_error import ApiError
from ..clock import now_ms
from ..storage.journal import Journal
from .group import (
    CommittedOffset,
    Group,
    GroupState,
    JoinResult,
    Member,
    Pending,
    Result,
    SyncResult,
    promised_bytes,
    protocols_bytes,
)
from .offsets import GroupsOffsets
from .purgatory import NobodyWaits

__all__ = ["Groups", "Join", "MemberIdRequired", "Sync"]

_log = logger("shoal.broker")

#: From this version of JoinGroup on, a new member first gets an id, and joins with it (KIP-394).
MEMBER_ID_REQUIRED_FROM = 4

#: From this version of JoinGroup on, the answer can have a leader skip the assignment (KIP-814).
SKIP_ASSIGNMENT_FROM = 9


class MemberIdRequired(ApiError):
    """
    A new member has to join again, with an id.

    Attributes:
        member_id: The id.

    """

    def __init__(self, member_id: str) -> None:
        super().__init__(ErrorCode.MEMBER_ID_REQUIRED, "join again with the member id given")
        self.member_id = member_id


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request; the protocols by name, the preferred one first."""

    group_id: str
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: Mapping[str, bytes]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    version: int


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup request; before v5 protocol type and name are None. The leader sends the assignments."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class Groups:
    """All consumer groups. Safe to use from several threads."""

    def __init__(self, broker_config: Mapping[str, str], journal: Journal | None = None) -> None:
        """
        Restore the offsets of a journal.

        Members are not kept: their next request gets UNKNOWN_MEMBER_ID, and they join again.

        Args:
            broker_config: The broker's settings, with the limits.
            journal: The place where offsets are kept.

        """
        self._config = broker_config
        self._changed = threading.Condition()
        self._groups: dict[str, Group] = {}
        self._closed = False
        # The memory of members and groups, or more: it is counted again only when it matters, so members that
        # left count until then.
        self._members_bytes = 0
        self._was_refused = False
        self._offsets = GroupsOffsets(journal or Journal(), self._group)
        self._count_members()

    def _group(self, group_id: str) -> Group:
        return self._groups.setdefault(group_id, Group(group_id, empty_since_ms=now_ms()))

    # Memory

    @property
    def kept_bytes(self) -> int:
        """The memory of all groups, or a little more."""
        return self._members_bytes + self._offsets.kept_bytes

    def _check_room(self, group_id: str, more_bytes: int, code: ErrorCode) -> None:
        """
        Check that the groups may take more memory.

        Raises:
            ApiError: With the code.

        """
        most_bytes = int(self._config["shoal.groups.max.bytes"])
        if more_bytes <= 0 or most_bytes < 0 or self.kept_bytes + more_bytes <= most_bytes:
            return
        reason = (
            f"group {group_id!r} would keep {more_bytes} bytes more, all groups have {self.kept_bytes}, and "
            f"shoal.groups.max.bytes is {most_bytes}"
        )
        if not self._was_refused:
            _log.warning("a request of a consumer group is refused: %s", reason)
        self._was_refused = True
        # Not from a variable: the frame would keep the error, and the error the frame, with the request.
        raise ApiError(code, reason)

    def _keep_member(self, group: Group, more_bytes: int) -> None:
        """
        Count additional memory for a group's members, and add the group if it is new.

        Raises:
            ApiError: With GROUP_MAX_SIZE_REACHED, if that is too much.

        """
        if group.group_id not in self._groups:
            more_bytes += group.bare_bytes
        self._check_room(group.group_id, more_bytes, ErrorCode.GROUP_MAX_SIZE_REACHED)
        self._members_bytes += more_bytes
        self._groups[group.group_id] = group

    def _count_members(self) -> None:
        """Count again, if the estimate is so large that it matters: there may be many members."""
        most_bytes = int(self._config["shoal.groups.max.bytes"])
        if most_bytes < 0:
            return
        if self._members_bytes > (most_bytes - self._offsets.kept_bytes) // 2:
            groups = self._groups.values()
            self._members_bytes = sum(each.bare_bytes + each.members_bytes for each in groups)
        self._was_refused = self._was_refused and self.kept_bytes > most_bytes // 2

    def open(self) -> None:
        """Start, or restart after a stop: every session begins again."""
        with self._changed:
            self._closed = False
            now = time.monotonic()
            for group in self._groups.values():
                for member in group.members.values():
                    member.joining = member.syncing = None
                    member.renew_session(now)
                if group.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE):
                    group.prepare_rebalance(now)

    def wake(self) -> None:
        """Have all waiting requests check whether their broker stopped."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End all waiting requests, and let no other wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def expire(self) -> None:
        """Expire sessions and rebalances whose time is up; to be called regularly."""
        with self._changing() as now:
            for group in self._groups.values():
                group.expire(now)
            self._count_members()

    @contextmanager
    def _changing(self) -> Iterator[float]:
        """Hold the lock, then wake the waiting requests; gives the monotonic time."""
        with self._changed:
            try:
                yield time.monotonic()
            finally:
                self._changed.notify_all()

    def _wait(self, pending: Pending[Result], gave_up: Callable[[], bool]) -> Result:
        with self._changed:
            while pending.result is None:
                if self._closed or gave_up():
                    raise NobodyWaits
                self._changed.wait()
            if isinstance(pending.result, ApiError):
                raise pending.result.without_origin()
            return pending.result

    # Membership

    def join(self, join: Join, gave_up: Callable[[], bool] = lambda: False) -> JoinResult:
        """
        Join a group, and wait until all of its members did.

        Args:
            join: The request.
            gave_up: Returns whether the request lost its reader; called after a :meth:`wake`, and with every
                :meth:`expire`.

        Raises:
            ApiError: With INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT,
                UNKNOWN_MEMBER_ID, INCONSISTENT_GROUP_PROTOCOL,
                GROUP_MAX_SIZE_REACHED or FENCED_INSTANCE_ID.
            MemberIdRequired: The member has to join again with this id.
            NobodyWaits: The broker stopped, or the client hung up.

        """
        self._check_join(join)
        with self._changing() as now:
            outcome = self._join(join, now)
        return outcome if isinstance(outcome, JoinResult) else self._wait(outcome, gave_up)

    def _check_join(self, join: Join) -> None:
        if not join.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id may not be empty")
        shortest = int(self._config["group.min.session.timeout.ms"])
        longest = int(self._config["group.max.session.timeout.ms"])
        if not shortest <= join.session_timeout_ms <= longest:
            raise ApiError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"a session timeout of {join.session_timeout_ms} ms is not within {shortest} and {longest}",
            )

    def _join(self, join: Join, now: float) -> JoinResult | Pending[JoinResult]:
        group = self._groups.get(join.group_id)
        if group is None:
            if join.member_id:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {join.group_id!r}")
            group = Group(join.group_id, empty_since_ms=now_ms())
        group.check_protocols(join.protocol_type, list(join.protocols))
        if not join.member_id:
            return self._join_new(group, join, now)
        if join.member_id in group.promised:
            return self._join_as(group, join, join.member_id, now)
        return self._join_again(group, join, now)

    def _join_new(self, group: Group, join: Join, now: float) -> JoinResult | Pending[JoinResult]:
        member_id = f"{join.instance_id or join.client_id}-{uuid.uuid4()}"
        static = group.static_member(join.instance_id) if join.instance_id is not None else None
        if static is not None:
            return self._take_over(group, static, member_id, join, now)
        if len(group.members) + len(group.promised) >= int(self._config["group.max.size"]):
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {group.group_id!r} is full")
        if join.instance_id is None and join.version >= MEMBER_ID_REQUIRED_FROM:
            self._keep_member(group, promised_bytes(member_id))
            group.promised[member_id] = now + join.session_timeout_ms / 1000
            raise MemberIdRequired(member_id)
        return self._join_as(group, join, member_id, now)

    def _join_as(self, group: Group, join: Join, member_id: str, now: float) -> Pending[JoinResult]:
        member = Member(
            member_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.session_timeout_ms / 1000,
            join.rebalance_timeout_ms / 1000,
            join.protocols,
        )
        self._keep_member(group, member.kept_bytes)
        group.add(member, join.protocol_type)
        return self._rebalance(group, member, now)

    def _take_over(
        self, group: Group, member: Member, member_id: str, join: Join, now: float
    ) -> JoinResult | Pending[JoinResult]:
        """Give a static member's place to its new process; a stable group does not rebalance (KIP-345)."""
        leader_before = group.leader
        self._keep_protocols(group, member, join)
        group.replace_static(member, member_id)
        # Client id and host stay those of the first process, as in Kafka (replaceStaticMember).
        _update(member, join, now)
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol_name:
            return self._rebalance(group, member, now)
        result = group.join_result(member)
        if join.version >= SKIP_ASSIGNMENT_FROM:
            is_leader = group.leader == member_id
            return JoinResult(
                result.generation,
                result.protocol_type,
                result.protocol_name,
                result.leader,
                member_id,
                result.members,
                skip_assignment=is_leader,
            )
        # The old id: a leader that finds its own id would send an assignment, and no member waits for one.
        return JoinResult(
            result.generation, result.protocol_type, result.protocol_name, leader_before, member_id
        )

    def _join_again(self, group: Group, join: Join, now: float) -> JoinResult | Pending[JoinResult]:
        member = group.member(join.member_id, join.instance_id)
        same = list(member.protocols.items()) == list(join.protocols.items())
        is_leader = group.leader == member.member_id
        if group.state is GroupState.COMPLETING_REBALANCE and same:
            # The member did not receive the answer to its JoinGroup.
            member.renew_session(now)
            return group.join_result(member)
        if group.state is GroupState.STABLE and same and not is_leader:
            member.renew_session(now)
            return group.join_result(member)
        self._keep_protocols(group, member, join)
        _update(member, join, now)
        return self._rebalance(group, member, now)

    def _keep_protocols(self, group: Group, member: Member, join: Join) -> None:
        self._keep_member(group, protocols_bytes(join.protocols) - protocols_bytes(member.protocols))

    def _rebalance(self, group: Group, member: Member, now: float) -> Pending[JoinResult]:
        """Have a member wait for all the others to join."""
        member.answer_join(ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the member joined again"))
        member.renew_session(now)
        member.joining = pending = Pending[JoinResult]()
        if group.state is not GroupState.PREPARING_REBALANCE:
            was_empty = group.state is GroupState.EMPTY
            delay_s = int(self._config["group.initial.rebalance.delay.ms"]) / 1000 if was_empty else 0.0
            group.prepare_rebalance(now, delay_s)
        group.try_complete_join(now)
        return pending

    def sync(self, sync: Sync, gave_up: Callable[[], bool] = lambda: False) -> SyncResult:
        """
        Take the assignment from the leader, and wait for the member's part of it.

        Args:
            sync: The request.
            gave_up: As for :meth:`join`.

        Raises:
            ApiError: With UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
                ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS or
                GROUP_MAX_SIZE_REACHED, if the assignment is too large.
            NobodyWaits: The broker stopped, or the client hung up.

        """
        with self._changing() as now:
            outcome = self._sync(sync, now)
        return outcome if isinstance(outcome, SyncResult) else self._wait(outcome, gave_up)

    def _sync(self, sync: Sync, now: float) -> SyncResult | Pending[SyncResult]:
        group = self._known(sync.group_id)
        member = group.member(sync.member_id, sync.instance_id)
        group.check_generation(sync.generation)
        _check_same_protocol(group, sync)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id!r} rebalances")
        member.renew_session(now)
        member.synced = True
        if group.state is GroupState.STABLE:
            return group.sync_result(member)
        if group.leader == member.member_id:
            self._keep_member(group, sum(map(len, sync.assignments.values())))
        member.answer_sync(ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the member synced again"))
        member.syncing = pending = Pending[SyncResult]()
        if group.leader == member.member_id:
            group.assign(sync.assignments, now)
        return pending

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """
        Keep a member's session.

        Raises:
            ApiError: With UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
                ILLEGAL_GENERATION, or REBALANCE_IN_PROGRESS, after which it has to join again.

        """
        with self._changing() as now:
            group = self._known(group_id)
            member = group.member(member_id, instance_id)
            group.check_generation(generation)
            member.renew_session(now)
            if group.state is GroupState.PREPARING_REBALANCE:
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group_id!r} rebalances")

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        """
        Remove a member; the instance id alone is enough for a static one.

        Raises:
            ApiError: With UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.

        """
        with self._changing() as now:
            group = self._known(group_id)
            if group.promised.pop(member_id, None) is not None:
                group.try_complete_join(now)
                return
            static = group.static_member(instance_id) if instance_id is not None else None
            if static is not None and not member_id:
                member_id = static.member_id
            member = group.member(member_id, instance_id)
            group.remove(member, ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "the member left"), now)

    def _known(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        return group

    # Offsets

    def check_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, version: int
    ) -> None:
        """
        Check that a client may commit offsets now.

        A client that is not a member sends generation -1, and may commit as long as the group has no members
        (``ClassicGroup.validateOffsetCommit``).

        Raises:
            ApiError: With ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
                FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS or GROUP_ID_NOT_FOUND.

        """
        with self._changed:
            group = self._groups.get(group_id)
            if group is None:
                if generation >= 0:
                    # GROUP_ID_NOT_FOUND came with OffsetCommit v9 (KIP-848).
                    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
                    raise ApiError(code, f"there is no group {group_id!r}")
                return
            if generation < 0 and group.state is GroupState.EMPTY:
                return
            if generation < 0 and not member_id and instance_id is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id!r} has members")
            self._check_member_commit(group, member_id, instance_id, generation)
            if group.state is GroupState.COMPLETING_REBALANCE:
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group_id!r} rebalances")

    def check_transactional_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """
        Check that offsets may be committed as part of a transaction (KIP-447).

        A producer that names no member may always commit.

        Raises:
            ApiError: With ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.

        """
        if generation < 0 and not member_id and instance_id is None:
            return
        with self._changed:
            group = self._groups.get(group_id)
            if group is None:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {group_id!r}")
            self._check_member_commit(group, member_id, instance_id, generation)

    def _check_member_commit(
        self, group: Group, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        member = group.member(member_id, instance_id)
        group.check_generation(generation)
        member.renew_session(time.monotonic())

    def commit(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], CommittedOffset],
        producer_id: int | None = None,
    ) -> None:
        """
        Keep offsets; those of a producer's transaction are pending until it ends.

        Raises:
            ApiError: With INVALID_COMMIT_OFFSET_SIZE, if there is no room for them, and none is kept. Kafka
                answers it if a record of its own topic would be too large.

        """
        with self._changing():
            group = self._groups.get(group_id) or Group(group_id, empty_since_ms=now_ms())
            bare_bytes = 0 if group_id in self._groups else group.bare_bytes
            more_bytes = self._offsets.more_bytes(group, offsets, producer_id)
            self._check_room(group_id, more_bytes + bare_bytes, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
            self._groups[group_id] = group
            self._members_bytes += bare_bytes
            self._offsets.commit(group, offsets, producer_id)

    def end_transaction(self, group_id: str, producer_id: int, *, committed: bool) -> None:
        """Take over the offsets of a producer's transaction, or forget them."""
        with self._changing():
            group = self._groups.get(group_id)
            if group is not None:
                self._offsets.end_transaction(group, producer_id, committed=committed)

    def read(self, group_id: str, read: Callable[[Group], Result]) -> Result:
        """
        Call a function with a group, under the lock; it must not keep the group.

        If there is no such group, the function gets an empty one in state DEAD.

        """
        with self._changed:
            return read(self._groups.get(group_id) or Group(group_id, GroupState.DEAD))

    def read_all(self, read: Callable[[Group], Result]) -> list[Result]:
        """Call a function with every group, as :meth:`read` does with one."""
        with self._changed:
            return [read(group) for group in self._groups.values()]

    def delete(self, group_id: str) -> None:
        """
        Delete a group and its offsets.

        Raises:
            ApiError: With GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP.

        """
        with self._changed:
            group = self._groups.get(group_id)
            if group is None:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
            if group.state is not GroupState.EMPTY:
                raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members")
            self._offsets.forget_all(group)
            del self._groups[group_id]

    def forget_old_offsets(self) -> None:
        """
        Forget offsets unused for ``offsets.retention.minutes``, and groups that have none left.

        The time counts from the departure of the group's last member, or, if it never had members, from the
        commit (KIP-211).

        """
        oldest_ms = now_ms() - int(self._config["offsets.retention.minutes"]) * 60_000
        with self._changed:
            for group in [each for each in self._groups.values() if each.state is GroupState.EMPTY]:
                self._offsets.forget(group, group.offsets_before(oldest_ms))
                if not (group.offsets or group.pending_offsets or group.promised):
                    del self._groups[group.group_id]

    def forget_topic(self, topic: str) -> None:
        """Forget all offsets in a deleted topic."""
        with self._changed:
            for group in self._groups.values():
                self._offsets.forget_all(group, topic)


def _update(member: Member, join: Join, now: float) -> None:
    member.protocols = join.protocols
    member.session_timeout_s = join.session_timeout_ms / 1000
    member.rebalance_timeout_s = join.rebalance_timeout_ms / 1000
    member.renew_session(now)


def _check_same_protocol(group: Group, sync: Sync) -> None:
    if sync.protocol_type not in (None, group.protocol_type) or sync.protocol_name not in (
        None,
        group.protocol_name,
    ):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.group_id!r} has protocol {group.protocol_type}:{group.protocol_name}",
        )

"""
The group coordinator: what members and their offsets may do.

The classic protocol of Kafka's ``GroupMetadataManager``: join, sync,
heartbeat, leave, and commits. JoinGroup and SyncGroup wait, in the
connection's thread, until the group is ready. One lock guards all groups.

What all of them keep in memory has a bound, ``shoal.groups.max.bytes``, since
anyone may join any number of groups and be gone: a member stays until its
session ends, which may be after half an hour. Kafka bounds what it keeps of
a group by ``message.max.bytes`` of ``__consumer_offsets``.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from .purgatory import NobodyWaits

__all__ = ["Groups", "Join", "MemberIdRequired", "Sync"]

_log = logger("shoal.broker")

#: From this version of JoinGroup on, a new member gets its id first and joins with it (KIP-394).
MEMBER_ID_REQUIRED_FROM = 4

#: From this version on the leader can be told to leave the assignment alone (KIP-814).
SKIP_ASSIGNMENT_FROM = 9


class MemberIdRequired(ApiError):
    """
    A new member is to join again, with an id.

    Attributes:
        member_id: The id.

    """

    def __init__(self, member_id: str) -> None:
        super().__init__(ErrorCode.MEMBER_ID_REQUIRED, "join again with the member id given")
        self.member_id = member_id


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request; the protocols by name, the best one first."""

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
    """A SyncGroup request; protocol type and name are None before v5, assignments are the leader's."""

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
        Begin with the offsets of a journal, or without any.

        Members are not kept: they find that they are unknown, and join again.

        Args:
            broker_config: The broker's settings have the limits.
            journal: Where offsets are kept.

        """
        self._config = broker_config
        self._journal = journal or Journal()
        self._changed = threading.Condition()
        self._groups: dict[str, Group] = {}
        self._closed = False
        #: Of members and groups what there is, or more: who is gone counts until it is counted anew.
        self._members_bytes = 0
        self._offsets_bytes = 0
        self._was_refused = False
        for (group_id, topic, partition), fact in self._journal.facts("offset"):
            committed = CommittedOffset(*fact)
            self._group(group_id).offsets[topic, int(partition)] = committed
            self._offsets_bytes += committed.kept_bytes(topic)
        for (group_id, producer_id, topic, partition), fact in self._journal.facts("pending_offset"):
            pending = self._group(group_id).pending_offsets.setdefault(int(producer_id), {})
            pending[topic, int(partition)] = committed = CommittedOffset(*fact)
            self._offsets_bytes += committed.kept_bytes(topic)
        self._count_members()

    def _group(self, group_id: str) -> Group:
        return self._groups.setdefault(group_id, Group(group_id, empty_since_ms=now_ms()))

    # Memory

    @property
    def kept_bytes(self) -> int:
        """What all groups take of memory, or a little more."""
        return self._members_bytes + self._offsets_bytes

    def _check_room(self, group_id: str, more_bytes: int, code: ErrorCode) -> None:
        """
        Refuse what would make the groups take more than they may.

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
        # Not of a variable's: the frame would keep the error, and the error the frame, with the request.
        raise ApiError(code, reason)

    def _keep_member(self, group: Group, more_bytes: int) -> None:
        """
        Count what a group is to keep more for its members; a new group is one from now on.

        Raises:
            ApiError: With GROUP_MAX_SIZE_REACHED: there is no room.

        """
        if group.group_id not in self._groups:
            more_bytes += group.bare_bytes
        self._check_room(group.group_id, more_bytes, ErrorCode.GROUP_MAX_SIZE_REACHED)
        self._members_bytes += more_bytes
        self._groups[group.group_id] = group

    def _count_members(self) -> None:
        """Count anew, if so much may be there that it matters: there may be many."""
        most_bytes = int(self._config["shoal.groups.max.bytes"])
        if most_bytes < 0:
            return
        if self._members_bytes > (most_bytes - self._offsets_bytes) // 2:
            groups = self._groups.values()
            self._members_bytes = sum(each.bare_bytes + each.members_bytes for each in groups)
        self._was_refused = self._was_refused and self.kept_bytes > most_bytes // 2

    def _set_offset(self, group: Group, key: tuple[str, int], committed: CommittedOffset | None) -> None:
        self._journal.put("offset", group.group_id, *key, value=committed)
        self._offsets_bytes += _difference(key[0], group.offsets.get(key), committed)
        if committed is None:
            group.offsets.pop(key, None)
        else:
            group.offsets[key] = committed

    def _set_pending(
        self, group: Group, producer_id: int, key: tuple[str, int], committed: CommittedOffset | None
    ) -> None:
        self._journal.put("pending_offset", group.group_id, producer_id, *key, value=committed)
        pending = group.pending_offsets.setdefault(producer_id, {})
        self._offsets_bytes += _difference(key[0], pending.get(key), committed)
        if committed is None:
            pending.pop(key, None)
        else:
            pending[key] = committed
        if not pending:
            del group.pending_offsets[producer_id]

    def open(self) -> None:
        """Begin, or go on after a stop: every session begins anew."""
        with self._changed:
            self._closed = False
            now = time.monotonic()
            for group in self._groups.values():
                for member in group.members.values():
                    member.joining = member.syncing = None
                    member.heard_of(now)
                if group.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE):
                    group.prepare_rebalance(now)

    def wake(self) -> None:
        """Have everyone who waits look whether its broker stopped."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Wake everyone who waits, and let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def expire(self) -> None:
        """Let time pass: to be called again and again."""
        with self._changing() as now:
            for group in self._groups.values():
                group.expire(now)
            self._count_members()

    @contextmanager
    def _changing(self) -> Iterator[float]:
        """Hold the lock, and wake those that wait for what changed; gives the monotonic time."""
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
            join: What the member asks for.
            gave_up: Whether nobody waits for the answer any more; looked at after a :meth:`wake`,
                and with every :meth:`expire`.

        Raises:
            ApiError: With INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT,
                UNKNOWN_MEMBER_ID, INCONSISTENT_GROUP_PROTOCOL,
                GROUP_MAX_SIZE_REACHED or FENCED_INSTANCE_ID.
            MemberIdRequired: Try again with the id.
            NobodyWaits: The broker stopped meanwhile, or the client hung up.

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
        """Let a restarted static member go on; a stable group is not disturbed (KIP-345)."""
        leader_before = group.leader
        self._keep_protocols(group, member, join)
        group.replace_static(member, member_id)
        # Client id and host stay those of the first process, as at Kafka (replaceStaticMember).
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
        # The old id: a leader that knew itself would assign anew, and nobody waits for that.
        return JoinResult(
            result.generation, result.protocol_type, result.protocol_name, leader_before, member_id
        )

    def _join_again(self, group: Group, join: Join, now: float) -> JoinResult | Pending[JoinResult]:
        member = group.member(join.member_id, join.instance_id)
        same = list(member.protocols.items()) == list(join.protocols.items())
        is_leader = group.leader == member.member_id
        if group.state is GroupState.COMPLETING_REBALANCE and same:
            # It did not get the answer to its JoinGroup.
            member.heard_of(now)
            return group.join_result(member)
        if group.state is GroupState.STABLE and same and not is_leader:
            member.heard_of(now)
            return group.join_result(member)
        self._keep_protocols(group, member, join)
        _update(member, join, now)
        return self._rebalance(group, member, now)

    def _keep_protocols(self, group: Group, member: Member, join: Join) -> None:
        self._keep_member(group, protocols_bytes(join.protocols) - protocols_bytes(member.protocols))

    def _rebalance(self, group: Group, member: Member, now: float) -> Pending[JoinResult]:
        """Have a member wait for all the others to join."""
        member.answer_join(ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the member joined again"))
        member.heard_of(now)
        member.joining = pending = Pending[JoinResult]()
        if group.state is not GroupState.PREPARING_REBALANCE:
            was_empty = group.state is GroupState.EMPTY
            delay_s = int(self._config["group.initial.rebalance.delay.ms"]) / 1000 if was_empty else 0.0
            group.prepare_rebalance(now, delay_s)
        group.try_complete_join(now)
        return pending

    def sync(self, sync: Sync, gave_up: Callable[[], bool] = lambda: False) -> SyncResult:
        """
        Give the assignment (the leader), and wait for one's own part.

        Args:
            sync: What the member asks for or gives.
            gave_up: As for :meth:`join`.

        Raises:
            ApiError: With UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
                ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS or
                GROUP_MAX_SIZE_REACHED: the assignment is too large.
            NobodyWaits: The broker stopped meanwhile, or the client hung up.

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
        member.heard_of(now)
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
                ILLEGAL_GENERATION, or REBALANCE_IN_PROGRESS: it is to join again.

        """
        with self._changing() as now:
            group = self._known(group_id)
            member = group.member(member_id, instance_id)
            group.check_generation(generation)
            member.heard_of(now)
            if group.state is GroupState.PREPARING_REBALANCE:
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group_id!r} rebalances")

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        """
        Take a member out; a static one may be named by its instance id alone.

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
        Say whether a member, or somebody who is none, may commit offsets now.

        Who is no member, with generation -1, may as long as the group has no
        members (``ClassicGroup.validateOffsetCommit``).

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
        Say whether offsets may be committed as part of a transaction (KIP-447).

        A producer that names no member is trusted, whatever the group's state.

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
        member.heard_of(time.monotonic())

    def commit(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], CommittedOffset],
        producer_id: int | None = None,
    ) -> None:
        """
        Keep positions; those of a producer's transaction, until it ends, apart.

        Raises:
            ApiError: With INVALID_COMMIT_OFFSET_SIZE, as Kafka if its own topic takes no record
                of that size: there is no room. None is kept then.

        """
        with self._changing():
            group = self._groups.get(group_id) or Group(group_id, empty_since_ms=now_ms())
            is_new = group_id not in self._groups
            before = group.offsets if producer_id is None else group.pending_offsets.get(producer_id, {})
            more_bytes = sum(_difference(key[0], before.get(key), offsets[key]) for key in offsets)
            bare_bytes = group.bare_bytes if is_new else 0
            self._check_room(group_id, more_bytes + bare_bytes, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
            self._groups[group_id] = group
            self._members_bytes += bare_bytes
            for key, committed in offsets.items():
                if producer_id is None:
                    self._set_offset(group, key, committed)
                else:
                    self._set_pending(group, producer_id, key, committed)

    def end_transaction(self, group_id: str, producer_id: int, *, committed: bool) -> None:
        """Take over, or forget, what a producer committed in its transaction."""
        with self._changing():
            group = self._groups.get(group_id)
            if group is None:
                return
            for key, pending in [*group.pending_offsets.get(producer_id, {}).items()]:
                if committed:
                    self._set_offset(group, key, pending)
                self._set_pending(group, producer_id, key, None)

    def read(self, group_id: str, read: Callable[[Group], Result]) -> Result:
        """
        Read something of a group under the lock; of an empty one, state DEAD, where there is none.

        The function must not keep the group.

        """
        with self._changed:
            return read(self._groups.get(group_id) or Group(group_id, GroupState.DEAD))

    def read_all(self, read: Callable[[Group], Result]) -> list[Result]:
        """Read something of every group, as :meth:`read` does of one."""
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
            self._forget(group, [*group.offsets])
            for producer_id, offsets in [*group.pending_offsets.items()]:
                for key in [*offsets]:
                    self._set_pending(group, producer_id, key, None)
            del self._groups[group_id]

    def _forget(self, group: Group, keys: Iterable[tuple[str, int]]) -> None:
        for key in keys:
            self._set_offset(group, key, None)

    def forget_old_offsets(self) -> None:
        """
        Forget positions that nobody used for ``offsets.retention.minutes``, and groups left with none.

        A group that had members counts from when the last one left, one that
        never had any from each commit (KIP-211).

        """
        oldest_ms = now_ms() - int(self._config["offsets.retention.minutes"]) * 60_000
        with self._changed:
            for group in [each for each in self._groups.values() if each.state is GroupState.EMPTY]:
                self._forget(group, group.offsets_before(oldest_ms))
                if not (group.offsets or group.pending_offsets or group.promised):
                    del self._groups[group.group_id]

    def forget_topic(self, topic: str) -> None:
        """Forget all positions in a topic that was deleted."""
        with self._changed:
            for group in self._groups.values():
                self._forget(group, [key for key in group.offsets if key[0] == topic])
                for producer_id, offsets in [*group.pending_offsets.items()]:
                    for key in [key for key in offsets if key[0] == topic]:
                        self._set_pending(group, producer_id, key, None)


def _difference(topic: str, before: CommittedOffset | None, after: CommittedOffset | None) -> int:
    """Return how much more memory a position takes than the one in whose place it comes."""
    return sum(sign * each.kept_bytes(topic) for sign, each in ((-1, before), (1, after)) if each is not None)


def _update(member: Member, join: Join, now: float) -> None:
    member.protocols = join.protocols
    member.session_timeout_s = join.session_timeout_ms / 1000
    member.rebalance_timeout_s = join.rebalance_timeout_ms / 1000
    member.heard_of(now)


def _check_same_protocol(group: Group, sync: Sync) -> None:
    if sync.protocol_type not in (None, group.protocol_type) or sync.protocol_name not in (
        None,
        group.protocol_name,
    ):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.group_id!r} has protocol {group.protocol_type}:{group.protocol_name}",
        )

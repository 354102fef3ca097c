"""
The group coordinator: the requests of members, and the commits of offsets.

JoinGroup and SyncGroup wait, in the connection's thread, until the group is ready. One lock guards all
groups.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from shoal.error_codes import ErrorCode

from ..api_error import ApiError
from ..clock import now_ms
from .group import CommittedOffset, Group, GroupState
from .member import Join, JoinResult, Pending, Result, Sync, SyncResult
from .purgatory import NobodyWaits

__all__ = ["Groups"]

#: Kafka's defaults of ``group.min.session.timeout.ms`` and ``group.max.session.timeout.ms``.
_SESSION_TIMEOUTS_MS = range(6_000, 1_800_001)


class Groups:
    """All consumer groups. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without groups; the clock, in seconds, ends sessions and rebalances."""
        self._clock = clock
        self._changed = threading.Condition()
        self._closed = False
        self._groups: dict[str, Group] = {}

    def open(self) -> None:
        """Start, or restart after a stop: every session begins again."""
        with self._changed:
            self._closed = False
            now = self._clock()
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

    @contextmanager
    def _changing(self) -> Iterator[float]:
        """Hold the lock, then wake the waiting requests; gives the monotonic time."""
        with self._changed:
            try:
                yield self._clock()
            finally:
                self._changed.notify_all()

    def _wait(self, pending: Pending[Result], gave_up: Callable[[], bool]) -> Result:
        with self._changed:
            while pending.result is None:
                if self._closed or gave_up():
                    raise NobodyWaits
                self._changed.wait()
            if isinstance(pending.result, ApiError):
                raise pending.result
            return pending.result

    def _known(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        return group

    # Membership

    def join(self, join: Join, gave_up: Callable[[], bool] = lambda: False) -> JoinResult:
        """
        Join a group, and wait until all of its members did.

        Args:
            gave_up: Returns whether the request lost its reader; called after a :meth:`wake`, and with every
                :meth:`expire`.

        Raises:
            ApiError: With INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT,
                UNKNOWN_MEMBER_ID, INCONSISTENT_GROUP_PROTOCOL or FENCED_INSTANCE_ID.
            MemberIdRequired: The member has to join again with this id.
            NobodyWaits: The broker stopped, or the client hung up.

        """
        if not join.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id may not be empty")
        if join.session_timeout_ms not in _SESSION_TIMEOUTS_MS:
            raise ApiError(
                ErrorCode.INVALID_SESSION_TIMEOUT, f"a session timeout of {join.session_timeout_ms} ms"
            )
        with self._changing() as now:
            if join.member_id:
                group = self._known(join.group_id)
            else:
                group = self._groups.get(join.group_id) or Group(join.group_id, empty_since_ms=now_ms())
            group.check_protocols(join.protocol_type, list(join.protocols))
            self._groups[join.group_id] = group
            pending = group.join(join, now)
        return self._wait(pending, gave_up)

    def sync(self, sync: Sync, gave_up: Callable[[], bool] = lambda: False) -> SyncResult:
        """
        Take the assignment from the leader, and wait for the member's part of it.

        Args:
            gave_up: As for :meth:`join`.

        Raises:
            ApiError: With UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
                ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL or REBALANCE_IN_PROGRESS.
            NobodyWaits: The broker stopped, or the client hung up.

        """
        with self._changing() as now:
            pending = self._known(sync.group_id).sync(sync, now)
        return self._wait(pending, gave_up)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """
        Keep a member's session.

        Raises:
            ApiError: With UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
                ILLEGAL_GENERATION, or REBALANCE_IN_PROGRESS, after which it has to join again.

        """
        with self._changing() as now:
            group = self._known(group_id)
            group.check_member(member_id, instance_id, generation, now)
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
            if generation < 0 and (group is None or group.state is GroupState.EMPTY):
                return
            if group is None:
                # GROUP_ID_NOT_FOUND came with OffsetCommit v9 (KIP-848).
                code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
                raise ApiError(code, f"there is no group {group_id!r}")
            group.check_member(member_id, instance_id, generation, self._clock())
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
            group.check_member(member_id, instance_id, generation, self._clock())

    def commit(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], CommittedOffset],
        producer_id: int | None = None,
    ) -> None:
        """Keep offsets; those of a producer's transaction are pending until it ends."""
        with self._changing():
            group = self._groups.setdefault(group_id, Group(group_id, empty_since_ms=now_ms()))
            group.commit(offsets, producer_id)

    def end_transaction(self, group_id: str, producer_id: int, *, committed: bool) -> None:
        """Take over the offsets of a producer's transaction, or forget them."""
        with self._changing():
            group = self._groups.get(group_id)
            if group is not None:
                group.end_transaction(producer_id, committed=committed)

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
            del self._groups[group_id]

    def forget_old_offsets(self, retention_ms: int) -> None:
        """
        Forget offsets that no member has used for a time in milliseconds, and groups that have none left.

        The time counts from the departure of the group's last member, or, if it never had members, from the
        commit (KIP-211). A retention time that a client committed with replaces it.

        """
        now = now_ms()
        with self._changed:
            for group in [each for each in self._groups.values() if each.state is GroupState.EMPTY]:
                group.forget_old_offsets(now, retention_ms)
                if not (group.offsets or group.pending_offsets or group.promised):
                    del self._groups[group.group_id]

    def forget_topic(self, topic: str) -> None:
        """Forget all offsets in a deleted topic."""
        with self._changed:
            for group in self._groups.values():
                group.forget_topic(topic)

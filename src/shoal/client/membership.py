"""
A member of a consumer group: it joins, sends heartbeats, and shares the partitions with the other members.

Two threads work together. The *owner* calls :meth:`Membership.poll`, which revokes and adds partitions: they
change only during that call. The *keeper*, a thread of this module, sends the requests to the coordinator.
It sends heartbeats, and joins after the owner has revoked its partitions. If this member leads the group, the
keeper assigns the partitions and watches the topics.

A member that holds its group alone has no owner: its keeper calls :meth:`Membership.poll` itself. Both share
a :class:`~.member_state.MemberState`.

The rules are those of Java's ``ConsumerCoordinator`` and ``AbstractCoordinator``.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from ..error_codes import ErrorCode
from ..errors import BrokerError, ProtocolError, ShoalError
from ..topic_partition import TopicPartition
from .assignors import Assignor
from .backoff import Backoff
from .cluster import Cluster, is_transient
from .config import ClientConfig
from .coordinator import Coordinator, MemberId
from .joining import Joiner, matching_topics
from .member_state import NO_GENERATION, MemberState, Phase
from .rebalance_listener import MembershipSettings, RebalanceListener

__all__ = ["Membership", "MembershipSettings", "RebalanceListener"]

#: JoinGroup waits for the slowest member, and a little (``JOIN_GROUP_TIMEOUT_LAPSE``).
_JOIN_SLACK_S = 5.0

#: The limit of the requests with which a member leaves.
_LEAVE_PATIENCE_S = 2.0

#: The pause before the next join if the group changed during a join (retry.backoff.ms).
_REBALANCE_PAUSE_S = 0.1

#: The codes after which a member joins as a new one.
_LOST = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})


class Membership:
    """
    A member of a group, and its partitions.

    Only the owner's thread may call the methods; any thread may read the properties.

    Attributes:
        owned: The partitions that this member may work on, sorted.

    """

    def __init__(
        self,
        config: ClientConfig,
        settings: MembershipSettings,
        on_change: Callable[[], object] = lambda: None,
        *,
        on_renewed: Callable[[MemberId, float], object] = lambda identity, asked_at: None,
        clock: Callable[[], float] = time.monotonic,
        sole: Assignor | None = None,
    ) -> None:
        """
        Prepare a member; :meth:`subscribe` sends the first request.

        Args:
            config: The cluster of the group.
            on_change: Called from the keeper's thread if :meth:`poll` has work.
            on_renewed: Called from the keeper's thread after each successful join and heartbeat, with the
                member's identity and the time of the request. The session lasts ``session_timeout_ms`` from
                that time at least.
            clock: Returns that time in seconds.
            sole: The assignor of a member that holds its group alone, by a name that no other member has.
                No thread polls then: the keeper takes part itself. The member does not wait for others,
                and leaves the group at the end also if it is a static one.

        Raises:
            ConfigError: There is no assignor, or an unknown one.

        """
        self._settings = settings
        self._is_sole = sole is not None
        self._on_renewed = on_renewed
        self._clock = clock
        self._cluster = Cluster(config.impatient())
        self._coordinator = Coordinator(
            self._cluster,
            settings.group,
            join_timeout_s=None
            if self._is_sole
            else max(config.request_timeout_s, settings.max_poll_interval_ms / 1000 + _JOIN_SLACK_S),
        )
        self.owned: tuple[TopicPartition, ...] = ()
        self._thread: threading.Thread | None = None
        self._state = MemberState(settings.instance_id, on_change)
        self._changed = self._state.changed
        # Only the keeper uses these:
        self._heartbeat_at = 0.0
        self._look_at = 0.0
        self._joiner = Joiner(self._cluster, self._coordinator, settings, sole)
        # A longer wait could outlast the session although the coordinator is available again.
        self._backoff = Backoff(longest_ms=settings.heartbeat_interval_ms)

    # For the owner

    @property
    def identity(self) -> MemberId:
        """The member's id for commits: the coordinator refuses the commits of former generations."""
        with self._changed:
            return self._state.identity

    @property
    def error(self) -> ShoalError | None:
        """The error that ended the membership; None as long as the keeper tries to keep it."""
        with self._changed:
            return self._state.error

    @property
    def last_failure(self) -> ShoalError | None:
        """The error of the last request to the coordinator; None if that succeeded."""
        with self._changed:
            return self._state.last_failure

    @property
    def is_rebalancing(self) -> bool:
        """Whether :meth:`poll` has work, or waits for the coordinator."""
        with self._changed:
            return self._state.phase is not Phase.STABLE

    def subscribe(self, wanted: Iterable[str] | re.Pattern[str]) -> None:
        """
        Subscribe to topics by name, or to all whose full name matches; replaces the former subscription.

        A pattern excludes Kafka's internal topics, and includes topics that are created later.

        """
        new = wanted if isinstance(wanted, re.Pattern) else frozenset(wanted)
        with self._changed:
            if self._state.subscribe(new):
                self._look_at = 0.0
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="shoal-membership", daemon=True)
            self._thread.start()

    def join_again(self) -> None:
        """
        Join again, from any thread, so that the coordinator refuses all commits of before.

        A group's only member begins a new generation. One of several joins as a new member: if it does not
        lead the group, the coordinator leaves the generation as it is (``ClassicGroup``).
        """
        with self._changed:
            self._state.joins_as_new = not self._is_sole
            self._state.join_again()

    def poll(self, timeout_s: float, listener: RebalanceListener) -> bool:
        """
        Revoke and add partitions, as the group requires.

        Args:
            timeout_s: The limit of the wait for the other members.
            listener: Called before partitions are revoked, and after they are added.

        Returns:
            Whether the membership is stable.

        Raises:
            BrokerError: The group cannot be joined, or another process took this static member's place.

        """
        deadline = time.monotonic() + timeout_s
        state = self._state
        while True:
            with self._changed:
                state.polled_at = time.monotonic()
                if state.error is not None:
                    raise state.error
                phase = state.phase
            if phase is Phase.GIVING_UP:
                self._give_up(listener)
            elif phase is Phase.ASSIGNED:
                self._take(listener)
            elif phase in (Phase.STABLE, Phase.OUT, Phase.LEFT):
                return phase is Phase.STABLE
            else:
                with self._changed:
                    left = deadline - time.monotonic()
                    is_the_same = state.phase is phase and state.error is None
                    if is_the_same and (left <= 0 or not self._changed.wait(left)):
                        return False

    def _give_up(self, listener: RebalanceListener) -> None:
        """Revoke all partitions, as an eager assignor needs it, and let the keeper join."""
        with self._changed:
            was_lost, self._state.is_lost = self._state.is_lost, False
        try:
            _notify_of_going(listener, self.owned, was_lost)
        finally:
            self.owned = ()
            with self._changed:
                self._state.given_up()

    def _take(self, listener: RebalanceListener) -> None:
        """Add the assigned partitions."""
        with self._changed:
            assignment = self._state.take()
            if assignment is None:
                return
            self.owned = assignment
        # Called also without partitions: it marks the end of the rebalance.
        listener.on_partitions_assigned(self.owned)

    def close(self, listener: RebalanceListener) -> None:
        """
        Revoke all partitions and leave; a static member stays in the group until its session ends.

        Raises only errors of the listener, and waits at most 4 s for the coordinator.

        """
        with self._changed:
            is_lost = self._state.is_lost or self._state.error is not None
            if self._state.phase is Phase.LEFT:
                return
        owned, self.owned = self.owned, ()
        try:
            _notify_of_going(listener, owned, is_lost)
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._changed:
            self._state.leave()
        patience = threading.Timer(_LEAVE_PATIENCE_S, self._cluster.abort)
        patience.daemon = True
        patience.start()
        self._coordinator.abort()
        if self._thread is not None:
            self._thread.join(2 * _LEAVE_PATIENCE_S)
        patience.cancel()

    # The keeper

    def _keep(self) -> None:
        state = self._state
        try:
            while True:
                with self._changed:
                    phase = state.phase
                if phase is Phase.LEFT:
                    break
                if self._is_sole and phase is not Phase.STABLE:
                    self.poll(0.0, RebalanceListener())
                    with self._changed:
                        phase = state.phase
                try:
                    pause_s = self._join() if phase is Phase.JOINING else self._stay()
                except ShoalError as error:
                    pause_s = self._fail(error)
                except Exception as error:
                    # Else the owner would wait forever.
                    failure = ProtocolError(f"the thread that keeps the membership failed: {error!r}")
                    failure.__cause__ = error
                    pause_s = self._fail(failure)
                with self._changed:
                    if state.phase is phase:
                        self._changed.wait(pause_s)
                    if state.error is not None and state.phase is not Phase.LEFT:
                        self._changed.wait_for(lambda: state.phase is Phase.LEFT)
        finally:
            self._leave_the_group()

    def _leave_the_group(self) -> None:
        with self._changed:
            membership = self._state.identity
            self._state.identity = MemberId(instance_id=membership.instance_id)
        # An assigned id that has not joined yet would delay the next rebalance.
        member_id = membership.member_id or self._coordinator.given_id
        with suppress(ShoalError):
            if member_id and (membership.instance_id is None or self._is_sole):
                self._coordinator.leave(replace(membership, member_id=member_id))
        self._coordinator.close()
        self._cluster.close()

    def _fail(self, error: ShoalError) -> float:
        """React to an error of a request; return the seconds to wait."""
        code = error.code if isinstance(error, BrokerError) else None
        with self._changed:
            self._state.last_failure = error
            if code in _LOST:
                self._state.lose(keep_id=code is ErrorCode.ILLEGAL_GENERATION)
                return 0.0
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                if self._state.phase is Phase.JOINING:
                    return _REBALANCE_PAUSE_S  # another rebalance began: join again
                self._state.join_again()
                return 0.0
            if is_transient(error):
                return self._backoff.next_delay_s()
            self._state.fail(error)
        return 0.0

    # Staying in

    def _stay(self) -> float:
        """Send a heartbeat and check the topics if they are due; return the seconds until the next one is."""
        now = time.monotonic()
        with self._changed:
            membership, polled_at = self._state.identity, self._state.polled_at
        is_in = membership.generation != NO_GENERATION
        if is_in and not self._is_sole and now - polled_at > self._settings.max_poll_interval_ms / 1000:
            self._give_up_the_place(membership)
            return 0.0
        if is_in and now >= self._heartbeat_at:
            self._heartbeat_at = now + self._settings.heartbeat_interval_ms / 1000
            self._beat(membership)
            self._reset_failure()
        if now >= self._look_at:
            self._look_at_topics()
        return max(0.0, min(self._heartbeat_at if is_in else self._look_at, self._look_at) - time.monotonic())

    def _reset_failure(self) -> None:
        self._backoff.reset()
        with self._changed:
            self._state.last_failure = None

    def _beat(self, membership: MemberId) -> None:
        asked_at = self._clock()
        try:
            self._coordinator.heartbeat(membership)
        except BrokerError as error:
            # The coordinator returns this code only to members, and it renews their session.
            if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                self._on_renewed(membership, asked_at)
            raise
        self._on_renewed(membership, asked_at)

    def _give_up_the_place(self, membership: MemberId) -> None:
        """Leave, since the owner does not poll; the next poll joins again."""
        if membership.instance_id is None:
            with suppress(ShoalError):
                self._coordinator.leave(membership)
        # A static member only stops its heartbeats: its partitions wait until its session ends.
        with self._changed:
            self._state.lose(keep_id=False)

    def _look_at_topics(self) -> None:
        """Refresh the metadata, and make the group rebalance if topics or partitions changed."""
        with self._changed:
            wanted, topics = self._state.wanted, self._state.topics
        if isinstance(wanted, re.Pattern):
            metadata = self._cluster.refresh()
            topics = matching_topics(metadata, wanted)
        else:
            metadata = self._cluster.refresh(self._joiner.topics)
        self._look_at = time.monotonic() + self._settings.metadata_max_age_ms / 1000
        with self._changed:
            is_new = topics != self._state.topics or self._joiner.has_changed(metadata)
            if is_new and wanted is self._state.wanted:
                self._state.topics = topics
                self._state.join_again()

    # Joining

    def _join(self) -> float:
        """Join the group, and give the owner a new assignment; return 0 seconds to wait."""
        with self._changed:
            membership = self._state.begin_join()
            wanted, topics = self._state.wanted, self._state.topics
            as_new, self._state.joins_as_new = self._state.joins_as_new, False
        if as_new:
            membership = self._leave_first(membership)
        if isinstance(wanted, re.Pattern):
            # The pattern is matched before the join, so that one join is enough.
            topics = matching_topics(self._cluster.refresh(), wanted)
            with self._changed:
                self._state.topics = topics
        joined = self._joiner.join(membership, topics)
        with self._changed:
            self._state.joined(membership, joined)
        assignments = self._joiner.assign(joined)
        if joined.is_leader:
            self._look_at = time.monotonic() + self._settings.metadata_max_age_ms / 1000
        asked_at = self._clock()
        assignment = self._joiner.sync(joined, assignments)
        self._reset_failure()
        self._heartbeat_at = time.monotonic() + self._settings.heartbeat_interval_ms / 1000
        with self._changed:
            identity = self._state.synced(membership, joined, assignment)
        if identity is not None:
            self._on_renewed(identity, asked_at)
        return 0.0

    def _leave_first(self, membership: MemberId) -> MemberId:
        """Give up the member's id; a static member gets another one in its place without leaving."""
        if membership.instance_id is None and membership.member_id:
            with suppress(ShoalError):  # else its session ends
                self._coordinator.leave(membership)
        return MemberId("", NO_GENERATION, membership.instance_id)


def _notify_of_going(
    listener: RebalanceListener, partitions: Sequence[TopicPartition], were_lost: bool
) -> None:
    if partitions and were_lost:
        listener.on_partitions_lost(partitions)
    elif partitions:
        listener.on_partitions_revoked(partitions)

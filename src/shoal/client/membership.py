"""
A member of a consumer group: it joins, sends heartbeats, and shares the partitions with the other members.

Two threads work together. The *owner* calls :meth:`Membership.poll`, which revokes and adds partitions: they
change only during that call. The *keeper*, a thread of this module, sends the requests to the coordinator.
It sends heartbeats, and joins after the owner has revoked its partitions. If this member leads the group, the
keeper assigns the partitions and watches the topics.

A member that holds its group alone has no owner: its keeper calls :meth:`Membership.poll` itself.

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
from .rebalance_listener import MembershipSettings, RebalanceListener

__all__ = ["Membership", "MembershipSettings", "RebalanceListener"]

#: JoinGroup waits for the slowest member, and a little (``JOIN_GROUP_TIMEOUT_LAPSE``).
_JOIN_SLACK_S = 5.0

#: The limit of the requests with which a member leaves.
_LEAVE_PATIENCE_S = 2.0

#: The pause before the next join if the group changed during a join (retry.backoff.ms).
_REBALANCE_PAUSE_S = 0.1

#: The generation of a member that is in none.
_NO_GENERATION = -1

#: The codes after which a member joins as a new one.
_LOST = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})


class Membership:
    """
    A member of a group, and its partitions.

    Only the owner's thread may call the methods; any thread may read the attributes.

    Attributes:
        owned: The partitions that this member may work on, sorted.
        identity: The member's id for commits: the coordinator refuses the commits of former generations.
        error: The error that ended the membership; None as long as the keeper tries to keep it.
        last_failure: The error of the last request to the coordinator; None if that succeeded.

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
        self._on_change = on_change
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
        #: Guards all up to the next comment.
        self._changed = threading.Condition()
        self.identity = MemberId(instance_id=settings.instance_id)
        self.error: ShoalError | None = None
        self.last_failure: ShoalError | None = None
        #: The subscription: names, or a pattern; and its topics.
        self._wanted: frozenset[str] | re.Pattern[str] = frozenset()
        self._topics: frozenset[str] = frozenset()
        self._polled_at = 0.0
        #: Whether the owner has to poll before the next join: it has partitions, or has to learn of a loss.
        self._is_with_owner = False
        #: A new assignment, until the owner takes it.
        self._assigned: tuple[TopicPartition, ...] | None = None
        #: Whether to join; and whether that has to be once more, for a reason since the join began.
        self._must_join = self._must_join_again = False
        #: Whether another member may have the owner's partitions already.
        self._is_lost = False
        #: Whether the member gives up its id at the next join.
        self._joins_as_new = False
        self._has_left = False
        # Only the keeper uses these:
        self._heartbeat_at = 0.0
        self._look_at = 0.0
        self._joiner = Joiner(self._cluster, self._coordinator, settings, sole)
        # A longer wait could outlast the session although the coordinator is available again.
        self._backoff = Backoff(longest_ms=settings.heartbeat_interval_ms)

    # For the owner

    @property
    def is_rebalancing(self) -> bool:
        """Whether :meth:`poll` has work, or waits for the coordinator."""
        with self._changed:
            return not self._is_stable

    @property
    def _is_stable(self) -> bool:
        return self._is_with_owner and not self._must_join and not self._has_left

    def subscribe(self, wanted: Iterable[str] | re.Pattern[str]) -> None:
        """
        Subscribe to topics by name, or to all whose full name matches; replaces the former subscription.

        A pattern excludes Kafka's internal topics, and includes topics that are created later.

        """
        new = wanted if isinstance(wanted, re.Pattern) else frozenset(wanted)
        is_first = self._thread is None
        with self._changed:
            if is_first or new != self._wanted:
                self._wanted = new
                self._topics = self._topics if isinstance(new, re.Pattern) else new
                self._look_at = 0.0
                self._polled_at = time.monotonic()
                self._is_with_owner |= is_first
                self._rejoin()
        if is_first:
            self._thread = threading.Thread(target=self._keep, name="shoal-membership", daemon=True)
            self._thread.start()

    def join_again(self) -> None:
        """
        Join again, from any thread, so that the coordinator refuses all commits of before.

        A group's only member begins a new generation. One of several joins as a new member: if it does not
        lead the group, the coordinator leaves the generation as it is (``ClassicGroup``).
        """
        with self._changed:
            self._joins_as_new = not self._is_sole
            self._rejoin()

    def _rejoin(self) -> None:
        """Make the owner revoke, and the keeper join; the caller holds the lock."""
        self._must_join = self._must_join_again = True
        self._notify()

    def _notify(self) -> None:
        self._changed.notify_all()
        self._on_change()

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
        while True:
            with self._changed:
                self._polled_at = time.monotonic()
                if self.error is not None:
                    raise self.error
                gives_up = self._is_with_owner and self._must_join
                if not gives_up and (self._must_join or self._assigned is None):
                    if self._is_with_owner or self._has_left or self._thread is None:
                        return self._is_stable
                    left = deadline - time.monotonic()
                    if left <= 0 or not self._changed.wait(left):
                        return False
                    continue
            if gives_up:
                self._give_up(listener)
            else:
                self._take(listener)

    def _give_up(self, listener: RebalanceListener) -> None:
        """Revoke all partitions, as an eager assignor needs it, and let the keeper join."""
        with self._changed:
            was_lost = self._is_lost
        try:
            _notify_of_going(listener, self.owned, was_lost)
        finally:
            self.owned = ()
            with self._changed:
                self._is_with_owner = self._is_lost = False
                self._changed.notify_all()

    def _take(self, listener: RebalanceListener) -> None:
        """Add the assigned partitions."""
        with self._changed:
            if self._assigned is None or self._must_join:
                return
            self.owned, self._assigned = self._assigned, None
            self._is_with_owner = True
            self._changed.notify_all()
        # Called also without partitions: it marks the end of the rebalance.
        listener.on_partitions_assigned(self.owned)

    def close(self, listener: RebalanceListener) -> None:
        """
        Revoke all partitions and leave; a static member stays in the group until its session ends.

        Raises only errors of the listener, and waits at most 4 s for the coordinator.

        """
        with self._changed:
            is_lost = self._is_lost or self.error is not None
            if self._has_left:
                return
        owned, self.owned = self.owned, ()
        try:
            _notify_of_going(listener, owned, is_lost)
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._changed:
            self._has_left = True
            self._changed.notify_all()
        patience = threading.Timer(_LEAVE_PATIENCE_S, self._cluster.abort)
        patience.daemon = True
        patience.start()
        self._coordinator.abort()
        if self._thread is not None:
            self._thread.join(2 * _LEAVE_PATIENCE_S)
        patience.cancel()

    # The keeper

    def _keep(self) -> None:
        try:
            while not self._has_left:
                if self._is_sole:
                    self.poll(0.0, RebalanceListener())
                with self._changed:
                    joins = self._joins_now
                try:
                    pause_s = self._join() if joins else self._stay()
                except ShoalError as error:
                    pause_s = self._fail(error)
                except Exception as error:
                    # Else the owner would wait forever.
                    failure = ProtocolError(f"the thread that keeps the membership failed: {error!r}")
                    failure.__cause__ = error
                    pause_s = self._fail(failure)
                with self._changed:
                    if self._joins_now is joins and not self._has_left:
                        self._changed.wait(pause_s)
                    if self.error is not None:
                        self._changed.wait_for(lambda: self._has_left)
        finally:
            self._leave_the_group()

    @property
    def _joins_now(self) -> bool:
        return self._must_join and (self._is_sole or not self._is_with_owner)

    def _leave_the_group(self) -> None:
        with self._changed:
            membership = self.identity
            self.identity = MemberId(instance_id=membership.instance_id)
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
            self.last_failure = error
            if code in _LOST:
                self._lose(keep_id=code is ErrorCode.ILLEGAL_GENERATION)
            elif code is ErrorCode.REBALANCE_IN_PROGRESS and self._joins_now:
                return _REBALANCE_PAUSE_S  # another rebalance began: join again
            elif code is ErrorCode.REBALANCE_IN_PROGRESS:
                self._rejoin()
            elif is_transient(error):
                return self._backoff.next_delay_s()
            else:
                self.error = error
                self._notify()
        return 0.0

    def _lose(self, *, keep_id: bool) -> None:
        """Note that the coordinator no longer has this member; the caller holds the lock."""
        member_id = self.identity.member_id if keep_id else ""
        self.identity = MemberId(member_id, _NO_GENERATION, self.identity.instance_id)
        self._assigned = None
        self._is_lost = self._is_with_owner = True
        self._rejoin()

    # Staying in

    def _stay(self) -> float:
        """Send a heartbeat and check the topics if they are due; return the seconds until the next one is."""
        now = time.monotonic()
        with self._changed:
            membership, polled_at = self.identity, self._polled_at
        is_in = membership.generation != _NO_GENERATION
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
            self.last_failure = None

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
            self._lose(keep_id=False)

    def _look_at_topics(self) -> None:
        """Refresh the metadata, and make the group rebalance if topics or partitions changed."""
        with self._changed:
            wanted, topics = self._wanted, self._topics
        metadata = self._cluster.refresh(None if isinstance(wanted, re.Pattern) else self._joiner.counts)
        if isinstance(wanted, re.Pattern):
            topics = matching_topics(metadata, wanted)
        self._look_at = time.monotonic() + self._settings.metadata_max_age_ms / 1000
        with self._changed:
            is_new = topics != self._topics or self._joiner.has_changed(metadata)
            if is_new and wanted is self._wanted:
                self._topics = topics
                self._rejoin()

    # Joining

    def _join(self) -> float:
        """Join the group, and give the owner a new assignment; return 0 seconds to wait."""
        with self._changed:
            self._must_join_again = False
            membership, wanted, topics = self.identity, self._wanted, self._topics
            as_new, self._joins_as_new = self._joins_as_new, False
        if as_new:
            membership = self._leave_first(membership)
        if isinstance(wanted, re.Pattern):
            # The pattern is matched before the join, so that one join is enough.
            topics = matching_topics(self._cluster.refresh(), wanted)
            with self._changed:
                self._topics = topics
        joined = self._joiner.join(membership, topics)
        # So that the member can leave if the next request fails.
        self.identity = identity = replace(membership, member_id=joined.member_id)
        asked_at = self._clock()
        assigned = self._joiner.sync(joined)
        self._reset_failure()
        self._heartbeat_at = time.monotonic() + self._settings.heartbeat_interval_ms / 1000
        if joined.is_leader:
            self._look_at = time.monotonic() + self._settings.metadata_max_age_ms / 1000
        with self._changed:
            self.identity = identity = replace(identity, generation=joined.generation)
            if self._has_left:
                return 0.0
            # If the subscription changed after the request, the assignment has topics that it does not name.
            self._assigned = tuple(each for each in assigned if each.topic in self._topics)
            self._must_join = self._must_join_again or len(self._assigned) < len(assigned)
            self._notify()
        self._on_renewed(identity, asked_at)
        return 0.0

    def _leave_first(self, membership: MemberId) -> MemberId:
        """Give up the member's id; a static member gets another one in its place without leaving."""
        if membership.instance_id is None and membership.member_id:
            with suppress(ShoalError):  # else its session ends
                self._coordinator.leave(membership)
        return MemberId("", _NO_GENERATION, membership.instance_id)


def _notify_of_going(
    listener: RebalanceListener, partitions: Sequence[TopicPartition], were_lost: bool
) -> None:
    if partitions and were_lost:
        listener.on_partitions_lost(partitions)
    elif partitions:
        listener.on_partitions_revoked(partitions)

"""
A mirror's share of its consumer group, by Kafka's own protocol.

The driver is a member, in a thread of its own. Each response of the group's coordinator renews the tasks'
lease. The lease is shorter than the session: a rebalance waits for its members, the end of a session does
not. When the group revokes partitions, the tasks leave them and the driver commits their positions. Only then
does it release the partitions. When the group assigns partitions, the driver prepares the destination's
topics before a task may take them.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from ..client.cluster import Cluster, is_transient
from ..client.coordinator import MemberId
from ..client.groups import group_assignment
from ..client.membership import Membership, RebalanceListener
from ..error_codes import ErrorCode
from ..errors import BrokerError, GroupHeld, ShoalError
from ..mirroring.control import lease_clock_s
from ..mirroring.driver.schedule import Running
from ..mirroring.model.text import first_few
from ..mirroring.prepare.changes import PreparedTopic
from ..topic_partition import TopicPartition, by_topic
from .handlers import MirrorMakerRebalanceListener
from .options import MirrorMakerOptions

__all__ = ["GroupShare"]

#: Interval at which the member's thread polls the group, if no event wakes it.
_LOOK_INTERVAL_S = 1.0

#: The tasks stop this part of the session before it ends, so that their last requests arrive in time.
_MARGIN = 1 / 3

#: Timeout for reading the assignment of all members.
_ASSIGNMENT_PATIENCE_S = 5.0


class GroupShare(RebalanceListener):
    """
    The partitions that the group assigns to this mirror, from :meth:`start` to :meth:`release`.

    Attributes:
        failure: The error that ends the mirror; None without one.

    """

    def __init__(
        self,
        maker: MirrorMakerOptions,
        mirror: Running,
        listener: MirrorMakerRebalanceListener,
        prepare: Callable[[Sequence[str]], Mapping[str, PreparedTopic]],
    ) -> None:
        """
        Prepare the member; :meth:`start` joins the group.

        Args:
            prepare: Prepares the destination for source topics, and returns the topics that are ready.

        """
        settings = maker.membership
        self._source = source = mirror.options.source
        self._group = settings.group
        self._lease_s = settings.session_timeout_ms / 1000 * (1 - _MARGIN)
        #: If it does not poll for max.poll.interval.ms, the member leaves. The tasks stop before that, too.
        self._most_unpolled_s = settings.max_poll_interval_ms / 1000 * (1 - _MARGIN)
        self._polled_at = lease_clock_s()
        self._include = maker.include
        self._mirror = mirror
        self._control = mirror.control
        self._work = mirror.schedule
        self._prepare = prepare
        self._listener = listener
        self._something = threading.Event()
        self._member = Membership(
            source, settings, self._something.set, on_renewed=self._renew, clock=lease_clock_s
        )
        self._pending: set[TopicPartition] = set()
        self._retry_at = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._take_part, name="shoal-group", daemon=True)
        self.failure: ShoalError | None = None

    @property
    def identity(self) -> MemberId:
        """The member that commits now."""
        return self._member.identity

    def start(self) -> None:
        """Join the group, and take part in it from a thread of its own."""
        self._thread.start()

    def begin_generation(self) -> None:
        """Join the group as a new member, from any thread: the coordinator refuses the commits of before."""
        self._member.join_again()

    def release(self) -> None:
        """Release all partitions in good order, and leave the group; never raises."""
        self._over.set()
        self._something.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _renew(self, identity: MemberId, asked_at: float) -> None:
        until = min(asked_at + self._lease_s, self._polled_at + self._most_unpolled_s)
        self._control.renew(identity, max(0.0, until - lease_clock_s()))

    # The member's thread

    def _take_part(self) -> None:
        try:
            self._member.subscribe(self._include)
            while not self._over.is_set():
                self._polled_at = lease_clock_s()
                self._member.poll(_LOOK_INTERVAL_S, self)
                if self._pending and time.monotonic() >= self._retry_at:
                    self._begin()
                self._something.wait(_LOOK_INTERVAL_S)
                self._something.clear()
        except Exception as error:
            self._fail(error)
        try:
            self._member.close(self)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = self._explained(error)

    def _explained(self, error: Exception) -> ShoalError:
        if isinstance(error, BrokerError) and error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return GroupHeld(self._group, "members of another sort: a shoal mirror, or other assignors")
        if isinstance(error, ShoalError):
            return error
        return ShoalError(f"the group's thread failed: {type(error).__name__}: {error}")

    # Assigned and revoked partitions

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Have tasks leave, commit, and call the listener; the member then releases the partitions."""
        self._let_go(partitions)
        numbers = by_topic(partitions, lambda each: each.partition)
        ownership = {topic: frozenset(each) for topic, each in numbers.items()}
        self._call("before_releasing_partitions", ownership)
        self._mirror.notify(f"{len(partitions)} partitions given up: {first_few(sorted(partitions))}")

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop all tasks from producing. The coordinator would reject a commit."""
        self._control.end_lease()
        self._let_go(partitions)
        self._mirror.warn(
            f"group {self._group!r} removed this mirror, because its heartbeat was late: {len(partitions)} "
            "partitions lost. The mirror joined again, and the tasks find the records that they copied last"
        )

    def _let_go(self, partitions: Sequence[TopicPartition]) -> None:
        self._pending -= set(partitions)
        self._work.give_up(partitions)
        self._control.withdraw(partitions)
        if not self._control.await_left(partitions, self._lease_s):
            self._mirror.warn("tasks that do not leave partitions were let go: they produce nothing more")
        self._mirror.metrics.forget(partitions)

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Call the listener, prepare the destination, and let the tasks take the partitions."""
        self._call("before_starting_fetchers", self._member.identity.member_id, self._assignment())
        self._pending |= set(partitions)
        if partitions:
            self._mirror.notify(f"{len(partitions)} partitions assigned: {first_few(sorted(partitions))}")
            self._begin()

    def _assignment(self) -> dict[str, dict[int, str]]:
        """Return the partitions of each member; only this member's if the group rebalances again."""
        ours = self._member.identity.member_id
        give_up_at = time.monotonic() + _ASSIGNMENT_PATIENCE_S
        by_member: Mapping[str, Sequence[TopicPartition]] = {ours: self._member.owned}
        with Cluster(self._source.impatient()) as cluster:
            while not self._member.is_rebalancing and time.monotonic() < give_up_at:
                try:
                    told = group_assignment(cluster, self._group)
                except ShoalError as error:
                    if not is_transient(error):
                        raise
                else:
                    if set(told.get(ours, ())) == set(self._member.owned):
                        by_member = told
                        break
                time.sleep(0.05)
        assignment: dict[str, dict[int, str]] = defaultdict(dict)
        for member, partitions in by_member.items():
            for topic, number in partitions:
                assignment[topic][number] = member
        return dict(assignment)

    def _begin(self) -> None:
        """Prepare the destination for new partitions, and add them to the schedule."""
        self._retry_at = time.monotonic() + self._mirror.options.timing.prepare_retry_s
        try:
            topics = self._prepare(sorted({each.topic for each in self._pending}))
            ready = {each for each in self._pending if each.topic in topics}
        except ShoalError as error:
            if not is_transient(error):
                raise
            self._mirror.warn(f"{first_few(sorted(self._pending))} cannot be begun yet: {error}")
            return
        if ready:
            self._pending -= ready
            self._work.take(topics, ready)

    def _call(self, method: str, *args: object) -> None:
        try:
            getattr(self._listener, method)(*args)
        except Exception as error:
            name = f"{type(self._listener).__module__}:{type(self._listener).__qualname__}"
            raise ShoalError(
                f"the rebalance listener {name} failed in {method}: {type(error).__name__}: {error}"
            ) from error

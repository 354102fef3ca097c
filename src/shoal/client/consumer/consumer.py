"""The raw consumer: Kafka's consumer, whose records may be whole batches (KIP-712)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Self, TypeVar

from ...error_codes import ErrorCode
from ...errors import BrokerError, ConfigError, ShoalError
from ...topic_partition import TopicPartition
from ..cluster import Cluster, patiently
from ..committed_offsets import Committed, fetch_offsets
from ..coordinator import MemberId
from ..groups import group_assignment
from ..membership import Membership, RebalanceListener
from ..offsets import EARLIEST, LATEST
from ..wakeup import Wakeup, remaining_s
from .commits import Commits, Offsets
from .fetching import Fetching
from .partitions import AssignedPartitions, ConsumedPartition, StartPositions, all_named, named, valid_offset
from .records import AnyRecord
from .settings import ConsumerSettings

__all__ = ["RawConsumer"]

T = TypeVar("T")

AnyPartition = TopicPartition | tuple[str, int]

#: The longest wait before the consumer polls its membership again.
_LONGEST_WAIT_S = 1.0

#: The wait if no fetch is in flight. A partition may have a new leader soon.
_UNASKED_WAIT_S = 0.1

#: Timeout for the commit of revoked partitions, and at the end.
_PARTING_COMMIT_S = 5.0


class RawConsumer:
    """
    Read topics, alone or as a member of a group, by records or by whole batches.

    Use it in one thread only, as a context manager. Call :meth:`poll` repeatedly, or iterate over it.

    Examples:
        With ``fetch.raw.bytes`` a record is a whole batch, still compressed:

        >>> import shoal
        >>> consumer = shoal.RawConsumer({
        ...     "bootstrap.servers": "localhost:9092",
        ...     "fetch.raw.bytes": True,
        ...     "auto.offset.reset": "earliest",
        ... })
        >>> with consumer:
        ...     consumer.assign([("orders", 0)])
        ...     batch = next(consumer)
        >>> batch.base_offset, batch.offset, batch.record_count, batch.codec.name
        (0, 2, 3, 'GZIP')

    """

    def __init__(self, properties: Mapping[str, object] | ConsumerSettings) -> None:
        """
        Read a configuration, without a request to the cluster.

        Args:
            properties: Properties of Java's consumer, such as ``bootstrap.servers``, ``group.id`` and
                ``fetch.raw.bytes`` (docs/python.md), or the settings that were read from them.

        Raises:
            ConfigError: A property is unknown (the message names the nearest one) or unsupported, or a
                value is invalid.

        """
        self._settings = (
            properties
            if isinstance(properties, ConsumerSettings)
            else ConsumerSettings.from_properties(properties)
        )
        self._cluster = Cluster(self._settings.client)
        self._wakeup = Wakeup()
        self._fetching = Fetching(self._cluster, self._settings, self._wakeup)
        self._positions = StartPositions(self._cluster, self._settings)
        self._assigned = AssignedPartitions()
        self._listener = RebalanceListener()
        self._membership: Membership | None = None
        if self._settings.membership is not None:
            # Made now, so that an invalid setting is an error of the constructor.
            try:
                self._membership = self._new_membership()
            except ConfigError:
                self._wakeup.close()
                raise
        self._is_subscribed = False
        self._is_closed = False
        self._commits = Commits(
            self._cluster, self._settings, self._identity_of_commits, lambda: self.positions
        )

    @property
    def _states(self) -> dict[TopicPartition, ConsumedPartition]:
        return self._assigned.states

    def _new_membership(self) -> Membership:
        assert self._settings.membership is not None
        return Membership(self._settings.client, self._settings.membership, self._wakeup.wake)

    # The partitions to read

    def subscribe(
        self, topics: Iterable[str] | re.Pattern[str], listener: RebalanceListener | None = None
    ) -> None:
        """
        Share topics with the other members of the group.

        Args:
            topics: Their names, or a pattern for whole names. A pattern includes topics that are created
                later, and excludes Kafka's internal ones.
            listener: An object that :meth:`poll` calls when partitions are assigned or revoked.

        Raises:
            ConfigError: There is no ``group.id``, or partitions were assigned by hand.

        """
        self._check_open()
        if isinstance(topics, str):
            raise ConfigError(
                f"subscribe({topics!r}): give a list of names, or a pattern: re.compile({topics!r})"
            )
        if self._membership is None:
            raise ConfigError("subscribe needs a consumer group. Set group.id, or assign partitions")
        if self._states and not self._is_subscribed:
            raise ConfigError("subscribe and assign cannot go together. Unsubscribe first")
        wanted = topics if isinstance(topics, re.Pattern) else list(topics)
        for topic in wanted if isinstance(wanted, list) else ():
            if not isinstance(topic, str):
                raise ConfigError(f"subscribe: {topic!r} is not a topic's name. Use text")
        if not wanted:
            self.unsubscribe()
            return
        self._listener = listener or RebalanceListener()
        self._is_subscribed = True
        self._membership.subscribe(wanted)

    def assign(self, partitions: Iterable[AnyPartition]) -> None:
        """
        Read exactly these partitions, without a group's assignment.

        Partitions that the consumer read before keep their positions.

        Raises:
            ConfigError: The consumer has a subscription, or an element is not a partition.

        """
        self._check_open()
        if self._is_subscribed:
            raise ConfigError("subscribe and assign cannot go together. Unsubscribe first")
        self._assigned.replace([named(each) for each in partitions])

    def unsubscribe(self) -> None:
        """Leave the group, and drop all partitions; also if the listener raises."""
        self._check_open()
        try:
            if self._is_subscribed and self._membership is not None:
                self._membership.close(_Adapter(self))
        finally:
            if self._is_subscribed:
                self._membership = self._new_membership()  # a member that has left joins no more
            self._is_subscribed = False
            self._assigned.replace(())

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return frozenset(self._states)

    @property
    def member_id(self) -> str:
        """The coordinator's id for this member, empty outside a group."""
        return self._identity().member_id

    def group_assignment(self) -> dict[str, list[TopicPartition]]:
        """Return each member's partitions, by member id; empty lists during a rebalance."""
        group = self._group("group_assignment")
        return self._patiently(lambda: group_assignment(self._cluster, group))

    # The next offsets

    def seek(self, partition: AnyPartition, offset: int) -> None:
        """
        Continue from an offset with the next :meth:`poll`; inside a batch, with the rest of the batch.

        Raises:
            ValueError: The partition is not assigned, or the offset is invalid.

        """
        self._state(partition).seek(valid_offset("seek to", offset))

    def seek_to_beginning(self, *partitions: AnyPartition) -> None:
        """Continue from the log start offsets of these partitions, or of all assigned ones."""
        for partition in partitions or tuple(self._states):
            self._state(partition).seek(None, EARLIEST)

    def seek_to_end(self, *partitions: AnyPartition) -> None:
        """Continue from the log end offsets of these partitions, or of all assigned ones."""
        for partition in partitions or tuple(self._states):
            self._state(partition).seek(None, LATEST)

    def position(self, partition: AnyPartition) -> int:
        """
        Return the next offset of a partition.

        Raises:
            NoPosition: Nothing is committed, and ``auto.offset.reset=none``.

        """
        state = self._state(partition)
        self._patiently(lambda: self._positions.find([state], patient=True))
        assert state.position is not None
        return state.position

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offsets, by partition, without those that are not known yet."""
        return self._assigned.positions

    def pause(self, *partitions: AnyPartition) -> None:
        """Stop returning records of partitions, which stay assigned, until you resume them."""
        for partition in partitions:
            self._state(partition).is_paused = True

    def resume(self, *partitions: AnyPartition) -> None:
        """Return records of paused partitions again, from the positions where they were paused."""
        for partition in partitions:
            self._state(partition).is_paused = False

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return frozenset(state.partition for state in self._states.values() if state.is_paused)

    def _state(self, partition: AnyPartition) -> ConsumedPartition:
        self._check_open()
        state = self._states.get(named(partition))
        if state is None:
            raise ValueError(f"{named(partition)} is not assigned to this consumer")
        return state

    # Reading

    def poll(self, timeout_s: float = 1.0) -> list[AnyRecord]:
        """
        Return the next records, at most ``max.poll.records``.

        Polling also keeps the membership: after ``max.poll.interval.ms`` without a poll, the consumer loses
        its partitions.

        Args:
            timeout_s: The time to wait if there are no records yet, in seconds.

        Raises:
            BrokerError: The broker refuses a partition or the group, or another process took this static
                member's place (FENCED_INSTANCE_ID).
            CorruptBatch: A batch is damaged. You can :meth:`seek` behind it.
            NoPosition: Nothing is committed, and ``auto.offset.reset=none``.

        """
        return self._poll(timeout_s, self._settings.max_poll_records)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> AnyRecord:
        """
        Return the next record, and wait for it without a time limit.

        The position is always behind the record that was returned last, so :meth:`commit` commits exactly
        the records that the loop has received.

        """
        while not self._is_closed:
            records = self._poll(_LONGEST_WAIT_S, 1)
            if records:
                return records[0]
        raise StopIteration

    def _poll(self, timeout_s: float, most: int) -> list[AnyRecord]:
        self._check_open()
        deadline = time.monotonic() + timeout_s
        self._commits.commit_when_due()
        while True:
            self._take_part()
            self._positions.find(self._states.values())
            records = self._collect_and_ask(most)
            if records:
                return records
            left = remaining_s(deadline)
            self._fetching.receive(self._states, min(left, self._until_something_is_due()))
            if left <= 0:
                return self._collect_and_ask(most)  # what has come already

    def _take_part(self) -> None:
        if self._is_subscribed and self._membership is not None:
            self._membership.poll(0.0, _Adapter(self))

    def _until_something_is_due(self) -> float:
        due_s = self._assigned.until_retry_s()
        if due_s is None and self._states and not self._fetching.is_waiting:
            due_s = _UNASKED_WAIT_S
        return _LONGEST_WAIT_S if due_s is None else min(_LONGEST_WAIT_S, due_s)

    def _collect_and_ask(self, most: int) -> list[AnyRecord]:
        """Return fetched records, and send the next fetches, so that they overlap with the caller's work."""
        before = self._assigned.positions
        records: list[AnyRecord] = []
        try:
            records = self._assigned.take(most)
            self._fetching.send(self._states)
        except ShoalError:
            if not records:
                raise
            # The positions are behind the collected records. So return these first; the next poll raises the
            # error if it persists.
        except BaseException:
            # For example Ctrl-C while the consumer connects to a leader. A commit must not include the
            # collected records.
            self._assigned.return_to(before)
            raise
        return records

    # Committing

    def commit(
        self,
        offsets: Offsets = None,
        *,
        metadata: str = "",
    ) -> dict[TopicPartition, Committed]:
        """
        Commit positions, and wait for the coordinator's answer.

        Args:
            offsets: A record, to commit the offset behind it (behind the whole batch for a raw one), or the
                next offsets to read by partition. By default, all positions.
            metadata: Text for each offset that has none of its own, at most 4,096 bytes.

        Returns:
            The committed positions.

        Raises:
            ConfigError: There is no ``group.id``, or this is neither a record nor offsets.
            ValueError: An offset is invalid.
            BrokerError: The coordinator refused the commit. REBALANCE_IN_PROGRESS: poll, then commit the
                partitions that are still assigned. ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID: the group
                continued without this member, and other members may have its partitions.
                FENCED_INSTANCE_ID: another process has its place.

        """
        return self._commits.commit(self._group("commit"), offsets, metadata)

    def committed(
        self, *partitions: AnyPartition | Iterable[AnyPartition]
    ) -> dict[TopicPartition, Committed]:
        """
        Return the offsets that the group has committed, with their metadata.

        Args:
            partitions: Partitions, or lists of them, as Java's ``committed(Set)`` takes. Without any:
                those that this consumer reads.

        Returns:
            Committed offsets by partition, without the partitions for which the group has none.

        Raises:
            ConfigError: There is no ``group.id``, or an argument is not a partition.

        """
        group = self._group("committed")
        asked = [partition for each in partitions for partition in all_named(each)]
        if not partitions:
            asked = list(self._states)
        return self._patiently(lambda: fetch_offsets(self._cluster, group, asked))

    def _identity(self) -> MemberId:
        return self._membership.identity if self._membership is not None else MemberId()

    def _identity_of_commits(self) -> MemberId:
        identity = self._identity()
        if self._is_subscribed and identity.generation < 0:
            # A coordinator takes a commit without a generation once the group has no members: others may
            # have read on, committed and left.
            where = f"committing to group {self._group('commit')!r} on {self._cluster}"
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, where, "this member is in no generation of it")
        return identity

    def _group(self, what: str) -> str:
        self._check_open()
        if self._settings.membership is None:
            raise ConfigError(f"{what} needs a consumer group. Set group.id")
        return self._settings.membership.group

    # The end

    def close(self) -> None:
        """Commit if ``enable.auto.commit`` is set, leave the group and close all connections."""
        if self._is_closed:
            return
        try:
            if self._is_subscribed and self._membership is not None:
                self._membership.close(_Adapter(self))
            elif self._settings.commits_by_itself:
                self._commits.commit_quietly(_PARTING_COMMIT_S)
        finally:
            self._is_closed = True
            self._assigned.replace(())
            self._fetching.close()
            self._cluster.close()
            self._wakeup.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError("the consumer is closed")

    def _patiently(self, operation: Callable[[], T]) -> T:
        return patiently(operation, patience_s=self._settings.default_api_timeout_ms / 1000)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class _Adapter(RebalanceListener):
    """Updates the consumer's partitions in a rebalance, and calls the user's listener."""

    def __init__(self, consumer: RawConsumer) -> None:
        self._consumer = consumer

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        consumer = self._consumer
        with ExitStack() as whatever_happens:
            whatever_happens.callback(consumer._assigned.remove, partitions)
            whatever_happens.callback(consumer._listener.on_partitions_revoked, partitions)
            if consumer._settings.commits_by_itself:
                consumer._commits.commit_quietly(_PARTING_COMMIT_S)

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._consumer._assigned.add(partitions)
        self._consumer._listener.on_partitions_assigned(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        try:
            self._consumer._listener.on_partitions_lost(partitions)
        finally:
            self._consumer._assigned.remove(partitions)

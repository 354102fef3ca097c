"""
The partitions of a consumer: as a caller names them, its position in each, and where it begins.

A position comes from a seek, a committed offset, or ``auto.offset.reset``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import ConfigError, NoPosition, ShoalError
from ...topic_partition import TopicPartition
from ..backoff import Backoff
from ..cluster import Cluster, is_transient
from ..committed_offsets import Committed, fetch_offsets
from ..fetch import FetchFrom
from ..offsets import list_offsets
from .records import AnyRecord
from .settings import ConsumerSettings

__all__ = ["AssignedPartitions", "ConsumedPartition", "StartPositions", "all_named", "named", "valid_offset"]


def named(partition: object) -> TopicPartition:
    """Return the partition that a caller means."""
    match partition:
        case (str() as topic, int() as number) if number >= 0:
            return TopicPartition(topic, number)
    raise ConfigError(f"invalid partition {partition!r}. Use TopicPartition(topic, number), or such a pair")


def all_named(partitions: object) -> list[TopicPartition]:
    """Return one partition, or each of a collection of them."""
    # A partition is a tuple, too: a tuple is a collection only if tuples are in it.
    is_one = isinstance(partitions, tuple) and not all(isinstance(each, tuple) for each in partitions)
    if is_one or isinstance(partitions, str) or not isinstance(partitions, Iterable):
        return [named(partitions)]
    return [named(each) for each in partitions]


def valid_offset(what: str, offset: object) -> int:
    """Return an offset, or raise ValueError if it is not one."""
    if not isinstance(offset, int) or offset < 0:
        raise ValueError(f"{what} {offset!r}: an offset is a whole number that is not negative")
    return offset


@dataclass(slots=True, eq=False)
class ConsumedPartition:
    """
    One partition.

    Attributes:
        position: The next offset that ``poll`` returns; None until it is known.
        reset_to: The special timestamp for ListOffsets if the position is unknown; None to use the
            committed offset first, and then ``auto.offset.reset``.
        is_paused: Whether the partition is paused.
        fetched: The fetched records from the position on, as an iterator.
        failure: The error in the place of the next record; the next ``poll`` raises it.
        leader_epoch: The epoch of the leader that serves the fetches; another one may have truncated the
            log (KIP-320).
        record_epoch: The epoch of the last batch that was returned, -1 for none.
        retry_at: The time of the next attempt after a failure, on the monotonic clock.

    """

    partition: TopicPartition
    position: int | None = None
    reset_to: int | None = None
    is_paused: bool = False
    fetched: Iterator[tuple[AnyRecord | None, int]] | None = None
    failure: ShoalError | None = None
    leader_epoch: int = -1
    record_epoch: int = -1
    retry_at: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(100, 1_000))

    def seek(self, offset: int | None, reset_to: int | None = None) -> None:
        """Continue from another offset, and drop the fetched records."""
        self.position, self.reset_to = offset, reset_to
        self.fetched = self.failure = None
        self.record_epoch = -1

    def put_off(self) -> None:
        """Postpone the next fetch by the backoff."""
        self.retry_at = time.monotonic() + self.backoff.next_delay_s()

    @property
    def is_fetchable(self) -> bool:
        """Whether to fetch the partition now."""
        return (
            self.position is not None and self.fetched is None and self.failure is None and not self.is_paused
        )

    @property
    def fetch_from(self) -> FetchFrom:
        """The next fetch; the position is known."""
        assert self.position is not None
        return FetchFrom(self.partition, self.position, self.leader_epoch)

    def take(self, most: int) -> list[AnyRecord]:
        """Return at most ``most`` fetched records, and move the position behind them."""
        records: list[AnyRecord] = []
        while self.fetched is not None and len(records) < most:
            try:
                record, self.position = next(self.fetched)
            except StopIteration:
                self.fetched = None
            except ShoalError as error:
                self.fetched, self.failure = None, error
            else:
                if record is not None:
                    self.record_epoch = record.leader_epoch
                    records.append(record)
        return records


class StartPositions:
    """Finds the positions of partitions that have none."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._settings = settings

    def find(self, states: Iterable[ConsumedPartition], *, patient: bool = False) -> None:
        """
        Find missing positions.

        Args:
            states: The partitions; those with a position, or with a later retry, are skipped.
            patient: Whether the caller retries: then every missing position is looked up, and errors raise.

        Raises:
            NoPosition: Nothing is committed, and ``auto.offset.reset=none``.
            ShoalError: A request failed. A transient one is raised only if ``patient``.

        """
        now = time.monotonic()
        lacking = [state for state in states if state.position is None and (patient or state.retry_at <= now)]
        if not lacking:
            return
        try:
            self._take_committed([state for state in lacking if state.reset_to is None])
            self._reset([state for state in lacking if state.position is None])
        except ShoalError as error:
            if patient or not is_transient(error):
                raise
            for state in lacking:
                state.put_off()

    def _take_committed(self, states: Sequence[ConsumedPartition]) -> None:
        if not states:
            return
        committed: Mapping[TopicPartition, Committed] = {}
        if self._settings.membership is not None:
            partitions = [state.partition for state in states]
            committed = fetch_offsets(self._cluster, self._settings.membership.group, partitions)
        for state in states:
            found = committed.get(state.partition)
            if found is not None:
                state.position = found.offset
                continue
            state.reset_to = self._settings.reset_to
            if state.reset_to is None:
                raise NoPosition(state.partition.topic, state.partition.partition)

    def _reset(self, states: Sequence[ConsumedPartition]) -> None:
        if not states:
            return
        self._cluster.refresh({state.partition.topic for state in states})
        asked = {state.partition: state.reset_to for state in states if state.reset_to is not None}
        answers = list_offsets(self._cluster, asked, self._settings.client.isolation_level)
        failures: list[ShoalError] = []
        for state in states:
            answer = answers[state.partition]
            if isinstance(answer, ShoalError):
                failures.append(answer)
                state.put_off()
            else:
                state.position, state.reset_to = answer, None
        for failure in failures:
            if not is_transient(failure) or len(failures) == len(states):
                raise failure


class AssignedPartitions:
    """
    The partitions of a consumer.

    Attributes:
        states: The state of each partition; the next poll begins with the first.

    """

    def __init__(self) -> None:
        self.states: dict[TopicPartition, ConsumedPartition] = {}

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions alone; those that were read before keep their positions."""
        self.states = {each: self.states.get(each) or ConsumedPartition(each) for each in partitions}

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, too, from their committed positions."""
        self.states |= {each: ConsumedPartition(each) for each in partitions}

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions."""
        for partition in partitions:
            self.states.pop(partition, None)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition, if it is known."""
        return {
            partition: state.position
            for partition, state in self.states.items()
            if state.position is not None
        }

    def return_to(self, positions: dict[TopicPartition, int]) -> None:
        """Go back to earlier positions, for records that the caller never received."""
        for partition, state in self.states.items():
            position = positions.get(partition, 0)
            if state.position is not None and state.position > position:
                state.seek(position)

    def until_retry_s(self) -> float | None:
        """Return the seconds until a partition that failed is tried again; None if there is none."""
        now = time.monotonic()
        return min(
            (each.retry_at - now for each in self.states.values() if each.retry_at > now), default=None
        )

    def take(self, most: int) -> list[AnyRecord]:
        """
        Return fetched records, at most ``most``.

        Raises:
            ShoalError: A partition failed, and none before it has records.

        """
        records: list[AnyRecord] = []
        for partition, state in list(self.states.items()):
            if not records:
                _raise_failure(state)
            if state.fetched is None or state.is_paused:
                continue
            records += state.take(most - len(records))
            if state.fetched is None:
                # The next poll begins with the other partitions.
                self.states[partition] = self.states.pop(partition)
            if len(records) >= most:
                break
        if not records:
            for state in self.states.values():
                _raise_failure(state)
        return records


def _raise_failure(state: ConsumedPartition) -> None:
    """Raise the failure of a partition, if it has one; the next attempt is later."""
    if state.failure is not None:
        failure, state.failure = state.failure, None
        state.put_off()
        raise failure

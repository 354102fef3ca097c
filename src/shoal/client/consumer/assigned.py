"""The partitions that a consumer reads, and their fetched records in the order in which poll returns them."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ...topic_partition import TopicPartition
from .partitions import ConsumedPartition
from .records import AnyRecord

__all__ = ["AssignedPartitions"]


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

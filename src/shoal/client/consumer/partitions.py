"""A consumer's position in each of its partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...errors import ShoalError
from ...topic_partition import TopicPartition
from ..backoff import Backoff
from .records import AnyRecord

__all__ = ["ConsumedPartition"]


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

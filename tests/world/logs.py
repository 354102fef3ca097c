"""Changes of logs that no client makes: elections, the cleaner, slow followers."""

from __future__ import annotations

from shoal_broker import Broker
from shoal_broker.storage.log import Log
from tests.world.contents import batches_of

__all__ = ["Lagging", "begin_at", "lagging", "lose_tail", "may_compact"]


def lose_tail(broker: Broker, topic: str, end: int, partition: int = 0, *, election: bool = True) -> Log:
    """
    Truncate the log as an unclean election does: before the first batch that ends at ``end`` or later.

    Without the election it is as if an older copy of the disk was put back.
    """
    before = broker.log(topic, partition)
    after = before.truncated(end)
    after.begin_leader_epoch(before.leader_epoch + election)
    topics = broker.topics.topic(topic)
    topics.logs[partition] = after
    return after


def may_compact(broker: Broker, topic: str = "topic") -> None:
    """Set a topic's policy to ``compact``: without it, a log has no gap at its end."""
    broker.topics.alter(broker.topics.topic(topic), {"cleanup.policy": "compact"})


def begin_at(log: Log, offset: int) -> None:
    """Make an empty log begin at an offset, as if all its records were deleted."""
    log.end_at(offset)
    log.delete_records(offset)


class Lagging(Log):
    """A log whose followers are slow: its high watermark lies before its end."""

    _slow: int | None = None

    def lags_at(self, high_watermark: int) -> None:
        self._slow = high_watermark

    def lag_ends(self) -> None:
        self._slow = None

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset if self._slow is None else self._slow

    def _last_stable_offset(self) -> int:
        shown = super()._last_stable_offset()
        return shown if self._slow is None else min(shown, self._slow)


def lagging(broker: Broker, topic: str, high_watermark: int, partition: int = 0) -> Lagging:
    """Make a partition's high watermark lag behind its end."""
    before = broker.log(topic, partition)
    after = Lagging(before.name, before.config)
    for batch in batches_of(before):
        after.store(batch.view)
    after.lags_at(high_watermark)
    broker.topics.topic(topic).logs[partition] = after
    return after

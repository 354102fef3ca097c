"""One partition whose records or batches pass through a handler: what is under way, and where it stands."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from ..errors import PartitionStopped
from ..mirroring.model.incidents import Incident, IncidentKind
from ..mirroring.model.reports import Counters, PartitionReport
from ..topic_partition import TopicPartition

__all__ = ["HandledPartition", "Way"]


@dataclass(slots=True)
class Way:
    """
    The outcome of one source record or batch, or of offsets without one.

    Attributes:
        first_offset: Of it.
        next_offset: Behind it.
        records: In it.
        left: How many of its outputs are not acknowledged.
        failure: Why one of them never will be.
        stops: Whether that is not about the record: all that follow would fail, too.

    """

    first_offset: int
    next_offset: int
    records: int
    left: int = 0
    failure: str | None = None
    stops: bool = False


@dataclass(slots=True)
class HandledPartition:
    """
    The state of one partition in a task that has a handler.

    Attributes:
        source: Which.
        position: The first source offset of which something is not acknowledged, or not read.
        ways: The records under way, in the source's order.
        committed: The offset that the group has; None for none.
        end_offset: Of the source's partition, as of the last look.
        newest_ms: The newest timestamp of what was read last.
        waiting_for: The reason why it waits; None if it does not.
        stopped: Why it cannot go on, once it cannot.
        is_ending: Whether something failed that is going to stop it. Nothing behind that is sent: it would
            be at the destination without a position that says so, and come again after a restart.
        counters: The counts since the last report.

    """

    source: TopicPartition
    position: int
    ways: deque[Way] = field(default_factory=deque)
    committed: int | None = None
    end_offset: int = 0
    newest_ms: int | None = None
    waiting_for: str | None = None
    stopped: PartitionStopped | None = None
    is_ending: bool = False
    counters: Counters = field(default_factory=Counters)
    _last_report: object = None

    def go_over(self, position: int) -> None:
        """Count what the consumer returned nothing of, up to a position, in its place."""
        behind = self.ways[-1].next_offset if self.ways else self.position
        if behind < position and not self.is_ending:
            self.ways.append(Way(behind, position, 0))

    def refuse(self, way: Way, reason: str, continue_on: Collection[IncidentKind]) -> None:
        """Count an output that will never be sent."""
        self.waiting_for = None
        way.left -= 1
        self.fail(way, reason, continue_on)

    def fail(
        self, way: Way, reason: str, continue_on: Collection[IncidentKind], *, stops: bool = False
    ) -> None:
        """Record why something of a source record or batch will never be sent."""
        way.failure = reason
        way.stops = stops
        self.is_ending = self.is_ending or not _is_left_out(way, continue_on)

    def advance(self, continue_on: Collection[IncidentKind]) -> None:
        """Move the position over what is acknowledged, and over what is left out; or stop."""
        while self.ways and not self.ways[0].left and not self.stopped:
            way = self.ways[0]
            if way.failure is not None and not self._goes_on_without(way, continue_on):
                return
            self.ways.popleft()
            self.position = way.next_offset
            if way.failure is None:
                self.counters.records += way.records

    def _goes_on_without(self, way: Way, continue_on: Collection[IncidentKind]) -> bool:
        last = way.next_offset - 1
        offsets = f"offset {last}" if way.first_offset == last else f"offsets {way.first_offset} to {last}"
        what = f"{offsets} of {self.source} cannot be sent: {way.failure}"
        if _is_left_out(way, continue_on):
            reason = f"{what}: left out, and lost there"
            self.counters.incidents.append(
                Incident(IncidentKind.SEND_FAILURE, reason, way.records, continued=True)
            )
            return True
        self.stopped = PartitionStopped(*self.source, way.first_offset, what)
        return False

    def report(self) -> PartitionReport | None:
        """Take the counts since the last report; return None if there is nothing new to report."""
        standing = (
            self.position,
            self.end_offset,
            self.committed,
            self.newest_ms,
            self.waiting_for,
            self.stopped,
        )
        if standing == self._last_report and not self.counters:
            return None
        self._last_report = standing
        counters, self.counters = self.counters, Counters()
        return PartitionReport(
            self.source,
            self.position,
            max(self.end_offset, self.position),
            self.committed,
            self.newest_ms,
            self.waiting_for,
            stopped=self.stopped,
            counters=counters,
        )


def _is_left_out(way: Way, continue_on: Collection[IncidentKind]) -> bool:
    return IncidentKind.SEND_FAILURE in continue_on and not way.stops

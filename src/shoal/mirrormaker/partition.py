"""One partition whose records or batches pass through a handler: its position and its pending outputs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ..errors import PartitionStopped
from ..mirroring.model.incidents import Incident, IncidentKind
from ..mirroring.model.reports import CopyReport, Counters
from ..mirroring.model.text import offsets
from ..records import Decision
from ..topic_partition import TopicPartition

__all__ = ["HandledPartition", "PendingInput"]


@dataclass(slots=True)
class PendingInput:
    """
    The outcome of one source record or batch, or of offsets without one.

    Attributes:
        first_offset: The first source offset.
        next_offset: The source offset behind the last one.
        records: The number of source records.
        left: The number of outputs that are not acknowledged.
        failure: The reason why the destination will never have one of them.
        stops: Whether the failure is not about the record, so that all following records would fail, too.

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
        position: The first source offset that is not read, or has an output that is not acknowledged.
        skips_failures: Whether a record that cannot be sent is skipped, as an incident.
        pending_inputs: The pending records or batches, in the source's order.
        committed: The committed offset; None without one.
        end_offset: The last known end offset of the source partition.
        newest_ms: The newest timestamp of the last record or batch.
        waiting_for: The reason why the partition waits; None if it does not.
        stopped: The reason why the partition stopped; None if it did not.
        is_ending: Whether a failure will stop the partition. The task then sends no later output, since a
            restart would send it again: the committed position is before it.
        counters: The counts since it was taken.

    """

    source: TopicPartition
    position: int
    skips_failures: bool = False
    pending_inputs: deque[PendingInput] = field(default_factory=deque)
    committed: int | None = None
    end_offset: int = 0
    newest_ms: int | None = None
    waiting_for: str | None = None
    stopped: PartitionStopped | None = None
    is_ending: bool = False
    counters: Counters = field(default_factory=Counters.begun)
    _last_report: CopyReport | None = None

    def take(
        self, pending: PendingInput, decision: Decision, *, newest_ms: int | None, size_bytes: int
    ) -> None:
        """Add a record or batch that the consumer returned."""
        self.pending_inputs.append(pending)
        self.newest_ms = newest_ms
        self.counters.decisions[decision] += 1
        self.counters.batches += not decision.is_drop
        self.counters.bytes_in += size_bytes

    def go_over(self, position: int) -> None:
        """Add the offsets up to a position for which the consumer returned no record."""
        behind = self.pending_inputs[-1].next_offset if self.pending_inputs else self.position
        if behind < position and not self.is_ending:
            self.pending_inputs.append(PendingInput(behind, position, 0))

    def acknowledge(self, pending: PendingInput, size_bytes: int) -> None:
        """Record that the destination has one output."""
        pending.left -= 1
        self.counters.bytes_out += size_bytes

    def reject(self, pending: PendingInput, reason: str, *, stops: bool = False) -> None:
        """Record that one output was sent in vain, or not at all."""
        pending.left -= 1
        self.waiting_for = None
        self.fail(pending, reason, stops=stops)

    def fail(self, pending: PendingInput, reason: str, *, stops: bool = False) -> None:
        """Record why an output of a source record or batch will never be at the destination."""
        pending.failure = reason
        pending.stops = stops
        self.is_ending = self.is_ending or not self._skips(pending)

    def advance(self) -> None:
        """Move the position over acknowledged and skipped records; stop at a failure that is not skipped."""
        while self.pending_inputs and not self.pending_inputs[0].left and not self.stopped:
            pending = self.pending_inputs[0]
            if pending.failure is not None and not self._goes_on_without(pending):
                return
            self.pending_inputs.popleft()
            self.position = pending.next_offset
            if pending.failure is None:
                self.counters.records += pending.records

    def _goes_on_without(self, pending: PendingInput) -> bool:
        skipped = offsets(pending.first_offset, pending.next_offset - 1)
        what = f"{skipped} of {self.source} cannot be sent: {pending.failure}"
        if self._skips(pending):
            reason = f"{what}: skipped, and lost at the destination"
            self.counters.incidents.append(
                Incident(IncidentKind.SEND_FAILURE, reason, pending.records, continued=True)
            )
            return True
        self.stopped = PartitionStopped(*self.source, pending.first_offset, what)
        return False

    def _skips(self, pending: PendingInput) -> bool:
        return self.skips_failures and not pending.stops

    def report(self) -> CopyReport | None:
        """Return a report with the counts; None if there is nothing new to report."""
        report = CopyReport(
            self.source,
            self.position,
            max(self.end_offset, self.position),
            self.committed,
            self.newest_ms,
            self.waiting_for,
            stopped=self.stopped,
            counters=self.counters.take(),
        )
        if report == self._last_report:
            return None
        self._last_report = report
        return report

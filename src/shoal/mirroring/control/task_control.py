"""The driver as a task sees it, and one worker's part of that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from ...client.coordinator import MemberId
from ...client.lot import Gate
from ...error_codes import ErrorCode
from ...errors import BrokerError
from ...topic_partition import TopicPartition
from ..model.reports import Assigned, TaskReport
from ..model.steering import TaskSteering
from .limit import Allowance

__all__ = ["CLOSED", "Control", "Gate", "WorkerControl"]

#: A gate that no request may pass.
CLOSED = 0


class Control(Protocol):
    """The driver, as a task sees it."""

    @property
    def stop_requested(self) -> bool:
        """Whether the task should finish its requests in flight, commit and end."""

    @property
    def assignment(self) -> Mapping[TopicPartition, Assigned]:
        """The newest document, another object after each one."""

    def take_new(self) -> Sequence[Assigned]:
        """Return the entries since the last call, also those that a later document lacks, to be left."""

    def on_document(self, call: Callable[[], object]) -> None:
        """Call this after each document, in the connection's thread; and once now."""

    def raise_if_orphan(self) -> None:
        """Raise Stopped if the driver is gone."""

    @property
    def interruptions(self) -> int:
        """How often the lease expired or the mirror rejoined its group. Others may have produced then."""

    def check_lease(self) -> None:
        """
        Raise an error if the task may not produce.

        Raises:
            Stopped: The driver is gone. The task cannot continue.
            BrokerError: The lease expired. The driver may renew it, so a retry may succeed.

        """

    def open_gate(self) -> Gate:
        """Return a gate for :meth:`check_lease`."""

    def close_gate(self, gate: Gate) -> None:
        """Let a gate go that :meth:`open_gate` returned."""

    @property
    def steering(self) -> TaskSteering:
        """The topics that are paused, and the limit: another object after each change."""

    @property
    def allowance(self) -> Allowance:
        """The bytes that the task may fetch of a limited rate."""

    def membership(self) -> MemberId:
        """Return the member of the group that may commit now."""

    @property
    def generation(self) -> int:
        """The number of the group's present generation, as the task counts them."""

    def begin_generation(self) -> None:
        """Ask for a new generation of the group, which refuses all earlier commits."""

    def report(self, report: TaskReport) -> None:
        """Send a report to the driver, from any thread; drop it if the driver is gone."""

    def wait(self, seconds: float) -> None:
        """Wait; return earlier if the driver requests a stop or is gone."""


class WorkerControl:
    """The control for one worker of a task: after an interruption, the worker has to begin again."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._seen = control.interruptions
        self._end_requested = False

    def request_end(self) -> None:
        """Ask this worker to end; the task's other workers continue."""
        self._end_requested = True

    @property
    def stop_requested(self) -> bool:
        """Whether the worker or its task should end."""
        return self._end_requested or self._control.stop_requested

    @property
    def assignment(self) -> Mapping[TopicPartition, Assigned]:
        """The task's newest document."""
        return self._control.assignment

    def check_lease(self) -> None:
        """Raise as :meth:`Control.check_lease`; after an interruption, a BrokerError until :meth:`begin`."""
        self._control.check_lease()
        if self._control.interruptions != self._seen:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS, "the mirror's place in its consumer group")

    @contextlib.contextmanager
    def gate(self) -> Iterator[Gate]:
        """
        Yield a gate that is open as long as :meth:`check_lease` raises nothing.

        Raises:
            Stopped, BrokerError: As :meth:`check_lease`.

        """
        gate = self._control.open_gate()
        try:
            # In this order: whatever closes gates from now on closes this one.
            self.check_lease()
            yield gate
        finally:
            self._control.close_gate(gate)

    @property
    def steering(self) -> TaskSteering:
        """The task's steering."""
        return self._control.steering

    @property
    def allowance(self) -> Allowance:
        """The task's allowance."""
        return self._control.allowance

    def begin(self) -> bool:
        """Start over after an interruption; return whether there was one."""
        seen, self._seen = self._seen, self._control.interruptions
        return seen != self._seen

    @property
    def seen_interruptions(self) -> int:
        """The number of interruptions before which this worker has begun."""
        return self._seen

    @property
    def generation(self) -> int:
        """The number of the group's present generation."""
        return self._control.generation

    def begin_generation(self) -> None:
        """Ask for a new generation, as the task does."""
        self._control.begin_generation()

    def membership(self) -> MemberId:
        """Return the member that may commit."""
        return self._control.membership()

    def wait(self, seconds: float) -> None:
        """Wait as the task does."""
        self._control.wait(seconds)

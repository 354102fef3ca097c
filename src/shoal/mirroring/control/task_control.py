"""The driver as a task sees it, one worker's part of that, and a task without a driver."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

from ...client.coordinator import MemberId
from ...client.lot import Gate, open_gate
from ...error_codes import ErrorCode
from ...errors import BrokerError, Stopped
from ...printable import logger
from ...topic_partition import TopicPartition
from ..model.handover import Assigned
from ..model.reports import TaskReport
from ..model.steering import UNSTEERED, TaskSteering
from .allowance import Allowance

__all__ = ["CLOSED", "Control", "Gate", "Uncontrolled", "WorkerControl"]

#: A gate that no request may pass.
CLOSED = 0

_log = logger("shoal.control")


class Control(Protocol):
    """The driver, as a task sees it."""

    @property
    def stop_requested(self) -> bool:
        """Whether the task should finish its requests in flight, commit and end."""

    @property
    def mirror_ends(self) -> bool:
        """Whether no task follows this one: a stop was requested, and not only of this task."""

    @property
    def assignment(self) -> Mapping[TopicPartition, Assigned]:
        """The newest document, another object after each one."""

    @property
    def term(self) -> int:
        """The driver's number of interruptions of the membership, as of its newest line."""

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
        """The topics that are paused, and the limited rate: another object after each change."""

    def open_allowance(self) -> Allowance:
        """Return the bytes that a worker may fetch of a limited rate; one for each worker."""

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
    """
    The control for one worker of a task: after an interruption, the worker has to begin again.

    Attributes:
        is_fenced: Whether the task ends without this worker, which may neither commit nor produce then.

    """

    def __init__(self, control: Control, *, follows: bool = False) -> None:
        self._control = control
        self._follows = follows
        self._seen = control.interruptions
        self._end_requested = False
        self._gate: Gate | None = None
        self.is_fenced = False

    def request_end(self) -> None:
        """Ask this worker to end; the task's other workers continue."""
        self._end_requested = True

    def fence(self) -> None:
        """Forbid this worker to commit and to produce."""
        self.is_fenced = True
        gate = self._gate
        if gate is not None:
            gate[0] = CLOSED

    @property
    def stop_requested(self) -> bool:
        """Whether the worker or its task should end."""
        return self._end_requested or self._control.stop_requested

    @property
    def mirror_ends(self) -> bool:
        """Whether no task follows the worker's task."""
        return self._control.mirror_ends

    @property
    def assignment(self) -> Mapping[TopicPartition, Assigned] | None:
        """The task's newest document; None if the worker keeps its partitions, whatever that is."""
        return self._control.assignment if self._follows else None

    @property
    def term(self) -> int:
        """The task's term."""
        return self._control.term

    def check_lease(self) -> None:
        """Raise as :meth:`Control.check_lease`; after an interruption, a BrokerError until :meth:`begin`."""
        self._check_owned()
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
        gate = self._gate = self._control.open_gate()
        try:
            # In this order: whatever closes gates from now on closes this one.
            self.check_lease()
            yield gate
        finally:
            self._gate = None
            self._control.close_gate(gate)

    @property
    def steering(self) -> TaskSteering:
        """The task's steering."""
        return self._control.steering

    def open_allowance(self) -> Allowance:
        """Return this worker's allowance."""
        return self._control.open_allowance()

    def begin(self) -> bool:
        """Start over after an interruption; return whether there was one."""
        seen, self._seen = self._seen, self._control.interruptions
        return seen != self._seen

    @property
    def interruptions(self) -> int:
        """The number of interruptions until now."""
        return self._control.interruptions

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
        """Return the member that may commit; raises Stopped if this worker is fenced."""
        self._check_owned()
        return self._control.membership()

    def _check_owned(self) -> None:
        if self.is_fenced:
            raise Stopped("the task has ended without this worker, which may no longer produce")

    def wait(self, seconds: float) -> None:
        """Wait as the task does."""
        self._control.wait(seconds)


class Uncontrolled:
    """
    The control of a task without a mirror's driver: it runs to its end and is no group's member.

    So nothing refuses a late commit: a new generation is only one for the task.
    """

    stop_requested = False
    mirror_ends = False
    assignment: Mapping[TopicPartition, Assigned] = MappingProxyType({})
    term = 0
    interruptions = 0
    generation = 0
    steering = UNSTEERED

    def check_lease(self) -> None:
        """Allow everything: without a driver there is no lease."""

    def open_gate(self) -> Gate:
        """Return a gate that stays open."""
        return open_gate()

    def close_gate(self, gate: Gate) -> None:
        """Do nothing."""

    def open_allowance(self) -> Allowance:
        """Return an allowance that is never needed, since nothing is limited."""
        return Allowance(0, lambda _: None)

    def membership(self) -> MemberId:
        """Return a member outside of the group's protocol."""
        return MemberId()

    def begin_generation(self) -> None:
        """Begin one for this task alone."""
        self.interruptions += 1
        self.generation += 1

    def report(self, report: TaskReport) -> None:
        """Write incidents to the task's log, since there is no driver."""
        for each in report.partitions:
            for incident in each.counters.incidents:
                if incident.continued:
                    kind, lost, reason = incident.kind.value, incident.lost, incident.reason
                    _log.warning("%s continued after %s (lost: %s): %s", each.partition, kind, lost, reason)

    def wait(self, seconds: float) -> None:
        """Wait the whole time."""
        time.sleep(seconds)

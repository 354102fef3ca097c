"""A copy task without a driver, for tests and measurements: it copies some ranges, and ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from shoal.client.coordinator import MemberId
from shoal.client.lot import Gate, open_gate
from shoal.errors import PartitionStopped
from shoal.mirroring.control import Control
from shoal.mirroring.control.limit import Allowance
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import Assigned, TaskReport
from shoal.mirroring.model.steering import UNSTEERED
from shoal.mirroring.task.task import follow_documents
from shoal.topic_partition import TopicPartition

__all__ = ["TaskResult", "Uncontrolled", "run_copy_task"]


_log = logging.getLogger("shoal.control")


class Uncontrolled:
    """
    The control of a task without a mirror's driver: it runs to its end and is no group's member.

    So nothing refuses a late commit: a new generation is only one for the task.
    """

    stop_requested = False
    assignment: Mapping[TopicPartition, Assigned] = MappingProxyType({})
    interruptions = 0
    generation = 0
    steering = UNSTEERED
    #: No task needs it, since nothing is limited.
    allowance = Allowance()

    def check_lease(self) -> None:
        """Allow everything: without a driver there is no lease."""

    def raise_if_orphan(self) -> None:
        """Do nothing: there is no driver that could be gone."""

    def take_new(self) -> Sequence[Assigned]:
        """Return nothing: the document does not change."""
        return []

    def on_document(self, call: Callable[[], object]) -> None:
        """Call this once: the document does not change."""
        call()

    def open_gate(self) -> Gate:
        """Return a gate that stays open."""
        return open_gate()

    def close_gate(self, gate: Gate) -> None:
        """Do nothing."""

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


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task: the partitions that stopped, and whether all others are done."""

    stopped: tuple[PartitionStopped, ...]
    complete: bool


class _Ranges:
    """A control whose document has some ranges, until the task has left all of them."""

    def __init__(self, control: Control, ranges: Sequence[CopyRange]) -> None:
        given = control.assignment
        self.assignment = {
            each.source: replace(given.get(each.source, Assigned(0, each)), entry=number, range=each)
            for number, each in enumerate(ranges, 1)
        }
        self.stopped: dict[TopicPartition, PartitionStopped] = {}
        self.over: dict[TopicPartition, bool] = {}
        self._control = control
        self._new = [*self.assignment.values()]

    def take_new(self) -> Sequence[Assigned]:
        new, self._new = self._new, []
        return new

    def __getattr__(self, name: str) -> Any:
        return getattr(self._control, name)

    @property
    def stop_requested(self) -> bool:
        return self._control.stop_requested or self.over.keys() >= self.assignment.keys()

    def report(self, report: TaskReport) -> None:
        self._control.report(report)
        self.stopped |= {each.partition: each.stopped for each in report.partitions if each.stopped}
        self.over |= {each: left.is_done or each in self.stopped for each, left in report.leaves.items()}


def run_copy_task(ranges: Sequence[CopyRange], settings: CopySettings, control: Control) -> TaskResult:
    """
    Copy ranges as a task does that gets no others.

    Returns:
        The result, as soon as every partition is done or stopped, or an end was requested. Everything
        acknowledged is committed then.

    Raises:
        Stopped: The driver is gone.
        ShoalError: The last commit failed.

    """
    followed: Any = _Ranges(control, ranges)
    follow_documents(settings, followed)
    stopped = tuple(followed.stopped[each.source] for each in ranges if each.source in followed.stopped)
    return TaskResult(stopped, complete=all(followed.over.get(each.source) for each in ranges))

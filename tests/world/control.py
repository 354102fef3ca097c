"""Controls of a task without a driver: a test looks at it, stops it, and kills it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from shoal.client.coordinator import MemberId
from shoal.client.lot import Gate, open_gate
from shoal.errors import ShoalError, Stopped
from shoal.json_values import to_json
from shoal.mirroring.control.limit import Allowance
from shoal.mirroring.model.acknowledged import add_run
from shoal.mirroring.model.reports import Assigned, TaskReport
from shoal.mirroring.model.steering import UNSTEERED, TaskSteering
from shoal.topic_partition import TopicPartition

__all__ = ["CheckedGate", "Killed", "Mortal", "Reporting", "Watched", "incidents_of", "partitions_of"]


class Reporting(Protocol):
    """A source of tasks' reports: the control of one, or a driver."""

    @property
    def reports(self) -> list[dict[str, Any]]:
        """All reports, as JSON objects."""


def partitions_of(control: Reporting) -> list[dict[str, Any]]:
    """Return the reports of all partitions, in their order."""
    return [each for report in list(control.reports) for each in report["partitions"]]


def incidents_of(control: Reporting) -> list[list[Any]]:
    """Return the kind of each incident, the reason, the lost records, and whether the mirror continued."""
    return [incident for each in partitions_of(control) for incident in each["incidents"]]


class Killed(BaseException):
    """A process is killed: no ``except`` of the engine catches it, and nothing is committed any more."""


class CheckedGate(list[int]):
    """A gate that is open as long as a check raises nothing; only Python's sender can use it."""

    def __init__(self, check: Callable[[], object]) -> None:
        super().__init__(open_gate())
        self._check = check

    def __getitem__(self, index: Any) -> Any:
        if index == 0:
            try:
                self._check()
            except ShoalError:
                return 0
        return super().__getitem__(index)


class Watched:
    """
    A task's control without a driver: it collects reports and waits, and a test can stop it.

    The task is no group's member, until the control holds a group. So nothing refuses a late commit, and a
    new generation is only one for the task.

    Attributes:
        is_dead: Whether the task was killed.

    """

    assignment: Mapping[TopicPartition, Assigned] = MappingProxyType({})
    interruptions = 0
    generation = 0
    steering: TaskSteering = UNSTEERED
    allowance = Allowance()  # which no task needs, since nothing is limited

    def __init__(self, at_check: int | None = None, action: Callable[[], object] = lambda: None) -> None:
        """Act at a certain check of the lease."""
        self.reports: list[dict[str, Any]] = []
        self.waits: list[float] = []
        self.is_dead = False
        self._checks_left, self._action = at_check, action
        self.stop_requested = False
        self._stopping = threading.Event()
        self._member = MemberId()
        self._begin: Callable[[], MemberId] | None = None
        self._is_orphan = False
        self._beginning = threading.Lock()
        self._gates: list[Gate] = []

    # Of the test

    def hold_group(self, begin: Callable[[], MemberId], now: MemberId | None = None) -> None:
        """Commit as a member whose generations ``begin`` begins; without ``now``, one begins now."""
        self._begin = begin
        self._member = begin() if now is None else now

    def orphan(self) -> None:
        """End the lease for good: another attempt begins."""
        with self._beginning:
            self._is_orphan = True
        for gate in self._gates:
            gate[0] = 0

    def request_stop(self) -> None:
        self.stop_requested = True
        self._stopping.set()

    # Of the task

    def take_new(self) -> Sequence[Assigned]:
        """Return nothing: the document does not change."""
        return []

    def on_document(self, call: Callable[[], object]) -> None:
        """Call this once: the document does not change."""
        call()

    def check_lease(self) -> None:
        """Count a check: one for each turn of a worker and a copy loop, and before batches are sent."""
        if self._is_orphan:
            raise Stopped("the driver is gone: nothing more is produced")
        if self._checks_left is not None:
            self._checks_left -= 1
            if self._checks_left == -1:
                self._action()

    def raise_if_orphan(self) -> None:
        """Do nothing: there is no driver that could be gone."""

    def open_gate(self) -> Gate:
        """Return a gate that stays open; if checks are counted, each system call that sends asks."""
        if self._checks_left is not None:
            return CheckedGate(self.check_lease)
        gate = open_gate()
        self._gates.append(gate)
        if self._is_orphan:
            gate[0] = 0
        return gate

    def close_gate(self, gate: Gate) -> None:
        """Do nothing."""

    def membership(self) -> MemberId:
        return self._member

    def begin_generation(self) -> None:
        with self._beginning:
            if self._is_orphan:
                return  # the driver ignores it
            if self._begin is not None:
                self._member = self._begin()
            self.interruptions += 1
            self.generation += 1

    def report(self, report: TaskReport) -> None:
        self.reports.append(to_json(report))

    def wait(self, seconds: float) -> None:
        if seconds:
            self.waits.append(seconds)
        self._stopping.wait(seconds)

    # The reports

    @property
    def newest(self) -> list[dict[str, Any]]:
        """The newest report of each partition, which has all counts since the task took it."""
        reports = partitions_of(self)
        return list({(each["topic"], each["partition"], each["since"]): each for each in reports}.values())

    def total(self, count: str) -> int:
        return sum(each[count] for each in self.newest)

    @property
    def decisions(self) -> dict[str, int]:
        """The number of batches by decision, of all partitions."""
        return dict(sum((Counter(each["decisions"]) for each in self.newest), Counter[str]()))

    @property
    def runs(self) -> list[list[int]]:
        """The runs of the one partition, from any number of reports."""
        found: list[list[int]] = []
        for each in partitions_of(self):
            for run in each["runs"]:
                add_run(found, *run)
        return found

    @property
    def waited_for(self) -> set[str]:
        return {each["waiting_for"] for each in partitions_of(self) if each["waiting_for"]}


class Mortal(Watched):
    """A task's control under which the task is killed: at a certain check of its lease, or at a retry."""

    def check_lease(self) -> None:
        super().check_lease()
        if self._checks_left is not None and self._checks_left < 0:
            self._die()

    def membership(self) -> MemberId:
        if self.is_dead:
            raise Killed
        return super().membership()

    def report(self, report: TaskReport) -> None:
        super().report(report)
        if any(each.waiting_for for each in report.partitions):
            self._die()

    def wait(self, seconds: float) -> None:
        self._die()

    def _die(self) -> None:
        self.is_dead = True
        raise Killed

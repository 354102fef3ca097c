"""Controls of a task without a driver: a test looks at it, stops it, and kills it."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from types import MappingProxyType
from typing import Any, overload

from shoal.client.coordinator import MemberId
from shoal.client.lot import Gate, open_gate
from shoal.errors import ShoalError, Stopped
from shoal.mirroring.control.limit import Allowance
from shoal.mirroring.model.acknowledged import add_run
from shoal.mirroring.model.reports import Assigned, TaskReport
from shoal.mirroring.model.steering import UNSTEERED
from shoal.topic_partition import TopicPartition

__all__ = [
    "Acting",
    "CheckedGate",
    "Killed",
    "Mortal",
    "Uncontrolled",
    "Watched",
]

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


class Killed(BaseException):
    """A process is killed: no ``except`` of the engine catches it, and nothing is committed any more."""


class CheckedGate(MutableSequence[int]):
    """A gate that is open as long as a check raises nothing; only Python's sender can use it."""

    def __init__(self, check: Callable[[], object]) -> None:
        self._check = check
        self._words = list(open_gate())

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> list[int]: ...

    def __getitem__(self, index: int | slice) -> int | list[int]:
        if index == 0:
            try:
                self._check()
            except ShoalError:
                return 0
        return self._words[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._words[index] = value

    def __delitem__(self, index: Any) -> None:
        raise TypeError("a gate has two words")

    def __len__(self) -> int:
        return len(self._words)

    def insert(self, index: int, value: int) -> None:
        raise TypeError("a gate has two words")


class Watched(Uncontrolled):
    """A task's control that collects reports and waits, and that a test can stop."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.waits: list[float] = []
        self.stop_requested = False
        self._stopping = threading.Event()
        self._member = MemberId()
        self._begin: Callable[[], MemberId] | None = None
        self._is_orphan = False
        self.is_dead = False
        self._beginning = threading.Lock()
        self._gates: list[Gate] = []

    def hold_group(self, begin: Callable[[], MemberId], now: MemberId | None = None) -> None:
        """Commit as a member whose generations ``begin`` begins; without ``now``, one begins now."""
        self._begin = begin
        self._member = begin() if now is None else now

    def begin_generation(self) -> None:
        with self._beginning:
            if self._is_orphan:
                return  # the driver ignores it
            if self._begin is not None:
                self._member = self._begin()
            super().begin_generation()

    def membership(self) -> MemberId:
        return self._member

    def orphan(self) -> None:
        """End the lease for good: another attempt begins."""
        with self._beginning:
            self._is_orphan = True
        for gate in self._gates:
            gate[0] = 0

    def check_lease(self) -> None:
        if self._is_orphan:
            raise Stopped("the driver is gone: nothing more is produced")

    def open_gate(self) -> Gate:
        gate = super().open_gate()
        self._gates.append(gate)
        if self._is_orphan:
            gate[0] = 0
        return gate

    def request_stop(self) -> None:
        self.stop_requested = True
        self._stopping.set()

    def report(self, report: TaskReport) -> None:
        self.reports.append(report.to_json_object())

    def wait(self, seconds: float) -> None:
        if seconds:
            self.waits.append(seconds)
        self._stopping.wait(seconds)

    @property
    def newest(self) -> list[dict[str, Any]]:
        """The newest report of each partition, which has all counts since the task took it."""
        reports = (each for report in self.reports for each in report["partitions"])
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
        for report in self.reports:
            for each in report["partitions"]:
                for run in each["runs"]:
                    add_run(found, *run)
        return found

    @property
    def waited_for(self) -> set[str]:
        return {
            each["waiting_for"]
            for report in self.reports
            for each in report["partitions"]
            if each["waiting_for"]
        }


class Mortal(Watched):
    """A task's control under which the task is killed: at a certain check of its lease, or at a retry."""

    def __init__(self, at_check: int | None = None) -> None:
        super().__init__()
        self._steps_left = at_check

    def open_gate(self) -> Gate:
        """Let each system call that sends ask, if the checks are counted."""
        return super().open_gate() if self._steps_left is None else CheckedGate(self.check_lease)

    def check_lease(self) -> None:
        """Count a check: one for each turn of a worker and a copy loop, and before batches are sent."""
        super().check_lease()
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left < 0:
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


class Acting(Watched):
    """A task's control that acts at a certain check of the lease."""

    def __init__(self, at_check: int, action: Callable[[], object]) -> None:
        super().__init__()
        self._steps_left = at_check
        self._action = action

    def open_gate(self) -> Gate:
        """Let each system call that sends ask."""
        return CheckedGate(self.check_lease)

    def check_lease(self) -> None:
        super().check_lease()
        self._steps_left -= 1
        if self._steps_left == -1:
            self._action()

"""A mirror's driver that starts its tasks in this process."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from shoal.client.coordinator import MemberId
from shoal.client.lot import Gate
from shoal.errors import BrokerError, PartitionStopped, Stopped
from shoal.json_values import to_json
from shoal.mirroring.assignment import Wanted
from shoal.mirroring.control import ControlConnection, ControlServer
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.task.task import follow_documents
from shoal.timing import DEFAULT_TIMING, Timing
from shoal.topic_partition import TopicPartition
from tests.world.clusters import TwoBrokers
from tests.world.control import CheckedGate, Killed, partitions_of
from tests.world.fencing import Fencing
from tests.world.stopped_process import StoppableProcess
from tests.world.task import RunningTask, TaskResult
from tests.world.waiting import wait_until

__all__ = ["Driver", "Events", "Following", "TaskServer"]


class Events:
    """Implements ``DriverEvents`` by functions; by default every partition can be taken at any time."""

    def __init__(
        self,
        on_report: Callable[[TaskReport], object] = lambda report: None,
        *,
        in_trouble: Callable[[], Mapping[TopicPartition, str]] = dict,
        stopped: Callable[[], Iterable[TopicPartition]] = tuple,
    ) -> None:
        self._on_report = on_report
        self._in_trouble = in_trouble
        self._stopped = stopped

    def apply(self, report: TaskReport) -> None:
        self._on_report(report)

    def takeable(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        stopped = set(self._stopped())
        return [each for each in partitions if each not in stopped]

    def in_trouble(self) -> Mapping[TopicPartition, str]:
        return self._in_trouble()

    def accepted(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, IncidentKind]:
        return {}


def _go_on() -> None:
    """Stand still for no time."""


class _Dying(ControlConnection):
    """A connection whose task is killed at a check of its lease."""

    def __init__(
        self, driver: tuple[str, int], job: int, at_check: float, stand_still: Callable[[], object]
    ) -> None:
        self._checks_left = at_check
        self._is_dead = False
        self._stand_still = stand_still
        super().__init__(driver, "secret", job)

    def open_gate(self) -> Gate:
        """Let each system call that sends ask, if the checks are counted."""
        return super().open_gate() if self._checks_left == math.inf else CheckedGate(self.check_lease)

    def check_lease(self) -> None:
        super().check_lease()
        self._checks_left -= 1
        if self._checks_left < 0:
            self._is_dead = True
            raise Killed
        self._stand_still()

    def membership(self) -> MemberId:
        if self._is_dead:
            raise Killed
        member = super().membership()
        self._stand_still()
        return member


class Following:
    """
    A task that follows its documents, in a thread.

    Attributes:
        process: Stops it, if that was asked for.

    """

    def __init__(
        self,
        driver: Driver,
        job: int,
        at_check: float = math.inf,
        begins: Callable[[], object] = lambda: None,
        *,
        can_be_stopped: bool = False,
    ) -> None:
        self.job = job
        self.process = StoppableProcess(driver.server.address) if can_be_stopped else None
        address, stand_still = driver.server.address, _go_on
        if self.process:
            address, stand_still = self.process.address, self.process.stand_still
        self.control = _Dying(address, job, at_check, stand_still)
        self.running = RunningTask(lambda: self._follow(driver, begins))

    def _follow(self, driver: Driver, begins: Callable[[], object]) -> TaskResult:
        begins()
        try:
            driver.follow(driver.brokers.settings, self.control)
        except Killed:
            self.control.close()  # as the system does for a process that died
            raise
        return TaskResult((), complete=True)

    def kill(self) -> None:
        """Close its connection. Its last requests may still arrive."""
        self.control.close()
        with contextlib.suppress(Stopped, BrokerError, Killed):
            self.running.result()

    def finish(self) -> None:
        """Wait for its end, and for the end of its connection."""
        self.running.result()
        self.control.close()


class TaskServer:
    """
    A control server, and its tasks' reports.

    Attributes:
        reports: All reports, as JSON objects.
        stopped: Why partitions stopped.
        stops: The same as tasks reported it, also of partitions that were given out again.

    """

    def __init__(self, timing: Timing = DEFAULT_TIMING, lease_s: float = 60.0) -> None:
        """Listen for tasks, as no member of the mirror's group."""
        self.reports: list[dict[str, Any]] = []
        self.stopped: dict[TopicPartition, str] = {}
        self.stops: list[PartitionStopped] = []
        self._waiting: dict[TopicPartition, str] = {}
        self.server = ControlServer(
            "127.0.0.1",
            "secret",
            Events(self._keep, in_trouble=lambda: dict(self._waiting), stopped=lambda: dict(self.stopped)),
            timing=timing,
        )
        self.server.renew(MemberId(), lease_s)

    def _keep(self, report: TaskReport) -> None:
        for each in report.partitions:
            if each.stopped:
                self.stopped[each.partition] = each.stopped.reason
                self.stops.append(each.stopped)
            if each.waiting_for:
                self._waiting[each.partition] = each.waiting_for
            else:
                self._waiting.pop(each.partition, None)
        self.reports.append(to_json(report))

    def connect(self, job: int = 0) -> ControlConnection:
        return ControlConnection(self.server.address, "secret", job)

    def close(self) -> None:
        self.server.request_stop()
        self.server.close()


class Driver(TaskServer):
    """A mirror's driver, whose tasks run in this process."""

    def __init__(
        self,
        brokers: TwoBrokers,
        follow: Callable[[CopySettings, ControlConnection], None] = follow_documents,
        lease_s: float = 60.0,
    ) -> None:
        """Listen for tasks, which run ``follow``, as no member of the mirror's group."""
        super().__init__(brokers.settings.timing, lease_s)
        self._lease_s = lease_s
        self.brokers = brokers
        self.follow = follow
        self._lock = threading.Lock()
        self._fencing: Fencing | None = None
        self._jobs = 0

    def join_group(self, fencing: Fencing | None = None) -> None:
        """Be the only member of the mirror's group from now on, and begin a generation of it if needed."""
        self._fencing = fencing or Fencing(self.brokers.source.groups)
        self.begin_generation()
        self.server.use_group(self.begin_generation)

    def begin_generation(self) -> None:
        """Begin a generation of the group."""
        assert self._fencing is not None
        with self._lock:
            self.server.renew(self._fencing.begin(self.brokers.settings.group), self._lease_s)

    def beat(self) -> None:
        """Renew the tasks' lease, as a heartbeat does, and look at the tasks."""
        with self._lock:
            self.server.renew(self.server.membership, self._lease_s)
        self.server.look()

    def waits_for(self) -> str | None:
        """The reason for which the last reported partition waits."""
        told = [each["waiting_for"] for each in partitions_of(self)]
        return told[-1] if told else None

    def want(self, *numbers: int, end: int = OPEN_END, weights: Iterable[int] = ()) -> None:
        """Have partitions copied."""
        of_each = dict(zip(numbers, weights, strict=False))
        self.server.want(
            {
                TopicPartition("topic", number): Wanted(
                    CopyRange("topic", number, "topic", 0, end), (number, number), of_each.get(number, 0)
                )
                for number in numbers
            }
        )

    def want_ranges(self, ranges: Sequence[CopyRange]) -> None:
        """Have ranges copied."""
        self.server.want({each.source: Wanted(each, (each.partition, each.partition), 10) for each in ranges})

    def start(
        self,
        at_check: float = math.inf,
        begins: Callable[[], object] = lambda: None,
        *,
        can_be_stopped: bool = False,
    ) -> Following:
        """Start a task that waits before it begins, and dies at a check of its lease."""
        self._jobs += 1
        return Following(self, self._jobs, at_check, begins, can_be_stopped=can_be_stopped)

    def end(self, task: Following) -> None:
        """End a task in good order, and wait until it is gone."""
        self.server.end_one(task.job)
        task.finish()
        wait_until(lambda: task.job not in self.server.attempts)

    def replace(self, task: Following) -> Following:
        """Let another task take over, once the former one has left everything."""
        self.end(task)
        return self.start()

"""A mirror's driver that starts the tasks of its windows in this process, and a clock in the test's hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shoal.client.coordinator import MemberId
from shoal.mirroring.control import ControlConnection, ControlServer
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.model.window import WindowClock, WindowPlan
from shoal.mirroring.task.task import run_copy_task
from shoal.topic_partition import TopicPartition
from tests.driver_events import Events
from tests.two_brokers import RunningTask, TwoBrokers
from tests.world.fencing import Fencing

__all__ = ["Driver"]


class Driver:
    """A mirror's driver for its tasks, window by window."""

    def __init__(
        self, brokers: TwoBrokers, slice_s: float = 60.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Listen for tasks, as no member of the mirror's group."""
        self.brokers = brokers
        self.reports: list[dict[str, Any]] = []
        self.in_trouble: dict[TopicPartition, str] = {}
        self.plan = WindowPlan({"topic": ("topic", 1)})
        self.windows = WindowClock(slice_s, now, brokers.settings.timing)
        self.server = ControlServer(
            "127.0.0.1",
            "secret",
            Events(self._keep, on_plan=lambda: self.plan, in_trouble=lambda: self.in_trouble),
            windows=self.windows,
        )
        self.server.renew(MemberId(), 60.0)

    def join_group(self) -> None:
        """Be the only member of the mirror's group from now on, and begin a generation of it if needed."""
        fencing = Fencing(self.brokers.source.groups)

        def begin() -> None:
            self.server.renew(fencing.begin(self.brokers.settings.group), 60.0)

        begin()
        self.server.use_group(begin)

    def _keep(self, report: TaskReport) -> None:
        self.reports.append(report.to_json_object())

    def waits_for(self) -> str | None:
        """The reason for which the last reported partition waits."""
        told = [each["waiting_for"] for report in list(self.reports) for each in report["partitions"]]
        return told[-1] if told else None

    def connect(self, window: int | None = None) -> ControlConnection:
        return ControlConnection(self.server.address, "secret", window)

    def start(self, control: ControlConnection, partitions: int = 1) -> RunningTask:
        """Start a task with open ranges."""
        ranges = [CopyRange("topic", number, "topic", 0, OPEN_END) for number in range(partitions)]
        return RunningTask(lambda: run_copy_task(ranges, self.brokers.settings, control))

    @contextmanager
    def slice(self, partitions: int = 1) -> Iterator[RunningTask]:
        """Run a task with open ranges; end its window after the block, and wait for the task's end."""
        self.server.plan()
        with self.connect() as control:
            running = self.start(control, partitions)
            yield running
            self.server.end_window()
            running.result()
        # Its last line has been received when it is gone.
        assert self.server.wait_until_idle(20.0)

"""Windows of a mirror, one after the other: each task takes over what the one before has left."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.mirroring.model.handover import Handover, InheritedPosition
from shoal.mirroring.model.reports import TaskReport
from shoal.topic_partition import TopicPartition
from tests.two_brokers import CheckedGate, Watched

__all__ = ["Driver", "Window"]


class Driver:
    """
    A driver's knowledge of partitions between two windows, by the reports of their tasks.

    Attributes:
        left: The positions that tasks left in good order.
        in_trouble: The partitions that waited at their last report, with the reason.

    """

    def __init__(self) -> None:
        self.left: dict[TopicPartition, InheritedPosition | None] = {}
        self.in_trouble: dict[TopicPartition, str] = {}

    def take(self, report: TaskReport) -> None:
        """Take a report of a task."""
        self.left |= report.leaves
        for each in report.partitions:
            if each.waiting_for:
                self.in_trouble[each.partition] = each.waiting_for
            else:
                self.in_trouble.pop(each.partition, None)

    def hand_over(self, partitions: Sequence[TopicPartition]) -> Handover:
        """Return what a task of the next window gets, as it reads it from the control connection."""
        left = {each: kept for each in partitions if (kept := self.left.pop(each, None)) is not None}
        told = Handover(left, {each: why for each, why in self.in_trouble.items() if each in partitions})
        return Handover.from_json_object(json.loads(json.dumps(told.to_json_object())))


class Window(Watched):
    """A task's control in a window of a driver: the window ends at some check of the lease, or as told."""

    def __init__(self, driver: Driver, at_check: int | None = None) -> None:
        super().__init__()
        #: The partitions that the task of a former window has left.
        self.takes_over = frozenset(driver.left)
        self._driver = driver
        self._checks_left = at_check
        self._lock = threading.Lock()

    def take(self, partitions: Sequence[TopicPartition]) -> Handover:
        return self._driver.hand_over(partitions)

    def report(self, report: TaskReport) -> None:
        super().report(report)
        with self._lock:
            self._driver.take(_as_read(report))

    def open_gate(self) -> Any:
        return super().open_gate() if self._checks_left is None else CheckedGate(self.check_lease)

    def check_lease(self) -> None:
        super().check_lease()
        if self._checks_left is not None:
            self._checks_left -= 1
            if self._checks_left == -1:
                self.end()

    def end(self) -> None:
        """End the window: another one follows."""
        self.request_stop()
        self.mirror_ends = False


def _as_read(report: TaskReport) -> TaskReport:
    values: Mapping[str, Any] = json.loads(json.dumps(report.to_json_object()))
    return TaskReport.from_json_object(values)

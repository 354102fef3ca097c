"""Tasks of a mirror, one after the other: each takes over what the one before has left."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from shoal.client.coordinator import MemberId
from shoal.mirroring.model.handover import Assigned, Document, InheritedPosition
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import TaskReport
from shoal.topic_partition import TopicPartition
from tests.two_brokers import CheckedGate, Watched

__all__ = ["Driver", "Turn"]


class Driver:
    """
    A driver's knowledge of partitions between two tasks, by their reports.

    Attributes:
        left: The positions that tasks left in good order.
        in_trouble: The partitions that waited at their last report, with the reason.
        has_unsettled: Whether a commit of a partition may take effect late, until a generation begins.

    """

    def __init__(self) -> None:
        self.left: dict[TopicPartition, InheritedPosition | None] = {}
        self.in_trouble: dict[TopicPartition, str] = {}
        self.has_unsettled = False

    def take(self, report: TaskReport) -> None:
        """Take a report of a task."""
        self.left |= {each: left.position for each, left in report.leaves.items() if left.is_settled}
        self.has_unsettled |= not all(left.is_settled for left in report.leaves.values())
        for each in report.partitions:
            if each.waiting_for:
                self.in_trouble[each.partition] = each.waiting_for
            else:
                self.in_trouble.pop(each.partition, None)

    def hand_over(self) -> Mapping[TopicPartition, Assigned]:
        """Return what the next task gets, as it reads it from the control connection."""
        given = {
            each: Assigned(1, CopyRange(*each, each.topic, 0, 0), left, self.in_trouble.get(each))
            for each, left in self.left.items()
        }
        self.left.clear()
        read = json.loads(json.dumps(Document(given).to_json_object()))
        return Document.from_json_object(read).partitions


class Turn(Watched):
    """A task's control in its turn: the turn ends at some check of the lease, or as told."""

    def __init__(self, driver: Driver, at_check: int | None = None) -> None:
        super().__init__()
        #: The partitions that a former task has left.
        self.takes_over = frozenset(driver.left)
        self._begins_generation, driver.has_unsettled = driver.has_unsettled, False
        self.assignment = driver.hand_over()
        self._driver = driver
        self._checks_left = at_check
        self._lock = threading.Lock()

    def hold_group(self, begin: Callable[[], MemberId], now: MemberId | None = None) -> None:
        super().hold_group(begin, now)
        if self._begins_generation and now is not None:
            self.begin_generation()

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
        """End the turn: another task follows."""
        self.request_stop()
        self.mirror_ends = False


def _as_read(report: TaskReport) -> TaskReport:
    values: Mapping[str, Any] = json.loads(json.dumps(report.to_json_object()))
    return TaskReport.from_json_object(values)

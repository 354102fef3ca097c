"""A copy task in a thread of the test: it copies some ranges, and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from shoal.errors import PartitionStopped
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import Assigned, TaskReport
from shoal.mirroring.task.task import follow_documents
from shoal.topic_partition import TopicPartition
from tests.world.control import Watched
from tests.world.waiting import InThread

__all__ = ["RunningTask", "TaskResult", "run_copy_task"]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task: the partitions that stopped, and whether all others are done."""

    stopped: tuple[PartitionStopped, ...]
    complete: bool


class _Ranges:
    """A control whose document has some ranges, until the task has left all of them."""

    def __init__(self, control: Any, ranges: Sequence[CopyRange]) -> None:
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


def run_copy_task(ranges: Sequence[CopyRange], settings: CopySettings, control: Any = None) -> TaskResult:
    """
    Copy ranges as a task does that gets no others.

    Returns:
        The result, as soon as every partition is done or stopped, or an end was requested. Everything
        acknowledged is committed then.

    Raises:
        Stopped: The driver is gone.
        ShoalError: The last commit failed.

    """
    followed: Any = _Ranges(Watched() if control is None else control, ranges)
    follow_documents(settings, followed)
    stopped = tuple(followed.stopped[each.source] for each in ranges if each.source in followed.stopped)
    return TaskResult(stopped, complete=all(followed.over.get(each.source) for each in ranges))


#: A copy task in a thread, for tests that act while it runs.
RunningTask: TypeAlias = InThread[TaskResult]

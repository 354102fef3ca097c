"""A driver for tests behind a control server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.model.window import WindowPlan
from shoal.topic_partition import TopicPartition

__all__ = ["Events"]


class Events:
    """Implements ``DriverEvents`` by functions; every partition can be taken at any time."""

    def __init__(
        self,
        on_report: Callable[[TaskReport], object] = lambda report: None,
        *,
        on_plan: Callable[[], WindowPlan] = lambda: WindowPlan({}),
        in_trouble: Callable[[], Mapping[TopicPartition, str]] = dict,
    ) -> None:
        self._on_report = on_report
        self._on_plan = on_plan
        self._in_trouble = in_trouble

    def apply(self, report: TaskReport) -> None:
        self._on_report(report)

    def plan(self) -> WindowPlan:
        return self._on_plan()

    def in_trouble(self) -> Mapping[TopicPartition, str]:
        return self._in_trouble()

    def accepted(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, IncidentKind]:
        return {}

    def has(self, partition: TopicPartition) -> bool:
        return True

"""A driver for tests behind a control server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.reports import TaskReport
from shoal.topic_partition import TopicPartition

__all__ = ["Events"]


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

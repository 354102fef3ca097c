"""Warn if no task reports to the driver: a mirror that copies nothing must not look as if all were well."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ...timing import Timing
from ...topic_partition import TopicPartition
from ..control import ControlServer
from ..model.reports import left_out_report
from ..monitoring.metrics import Metrics

__all__ = ["Silence"]


class Silence:
    """Looks at how long ago the driver received something from a task."""

    def __init__(
        self,
        control: ControlServer,
        metrics: Metrics,
        on_warning: Callable[[str], object],
        timing: Timing,
    ) -> None:
        self._patience_s = timing.silence_s
        self._control = control
        self._metrics = metrics
        self._on_warning = on_warning
        self._since = time.monotonic()
        self._is_silent = False

    def look(self) -> None:
        """Warn once if there is silence, and count the partitions as waiting until a task reports again."""
        partitions = [name for name, each in self._metrics.partitions().items() if each.stopped is None]
        silent_for_s = time.monotonic() - max(self._since, self._control.last_report_at)
        was_silent, self._is_silent = self._is_silent, silent_for_s >= self._patience_s and bool(partitions)
        if self._is_silent and not was_silent:
            self._begin(partitions)
        elif was_silent and not self._is_silent:
            self._control.ask_for_reports()

    def _begin(self, partitions: Sequence[TopicPartition]) -> None:
        self._on_warning(
            f"no task has reported for {self._patience_s:.0f} s, so nothing is copied. See Spark's log for "
            "executors that do not start, and check that tasks reach the driver's control port "
            f"{self._control.address[1]}"
        )
        self._metrics.apply(left_out_report(dict.fromkeys(partitions, "a task")))

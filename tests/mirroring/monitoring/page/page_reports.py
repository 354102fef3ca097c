"""Tasks' reports to the page's registry: of a running task, or made up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import CopyReport, ProcessReport, TaskReport
from shoal.mirroring.monitoring.door import Door
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.monitoring.page import About, MirrorPage
from shoal.mirroring.monitoring.processes import LocalProcesses
from shoal.net.address import Address
from shoal.topic_partition import TopicPartition
from tests import metrics_fed
from tests.world.control import Watched

__all__ = ["ServedPage", "Told", "expected", "partition_of", "report_of"]


class ServedPage(MirrorPage):
    """A page behind a server of its own."""

    def __init__(
        self,
        ui: Address | None,
        report: str | None,
        about: About,
        metrics: Metrics,
        on_warning: Callable[[str], object] = lambda _: None,
        token_file: Path | None = None,
    ) -> None:
        super().__init__(report, about, metrics, LocalProcesses(), on_warning)
        self._door = Door(token_file)
        self.address = self._door.listen("ui", ui, self.routes) if ui else None
        self.url = f"http://{self.address}/"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking)

    def _keep_looking(self) -> None:
        while not self._over.wait(0.2):
            self.look()

    def __enter__(self) -> ServedPage:
        super().__enter__()
        self._door.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._over.set()
        self._thread.join()
        self._door.__exit__(*exc_info)
        super().__exit__(*exc_info)


class Told(Watched):
    """A task's control that reports to a registry."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics

    def report(self, report: TaskReport) -> None:
        super().report(report)
        self._metrics.apply(report)


def expected(ranges: Sequence[CopyRange]) -> Metrics:
    """Return a registry with the partitions to copy."""
    metrics = Metrics()
    ends = {TopicPartition(each.topic, each.partition): each.end_offset for each in ranges}
    metrics.expect(dict.fromkeys(ends, 0), ends)
    return metrics


def report_of(*partitions: dict[str, Any], **task: Any) -> TaskReport:
    """A task's report."""
    used = ProcessReport("executor-1:4242", 0.5, 80_000_000, is_native=False)
    return TaskReport([CopyReport.of_json(each) for each in partitions], replace(used, **task))


def partition_of(topic: str, partition: int, **changes: Any) -> dict[str, Any]:
    """A task's report of one partition."""
    return metrics_fed.partition_of(
        TopicPartition(topic, partition),
        **{
            "source_offset": 1000,
            "end_offset": 1500,
            "committed_offset": 1000,
            "decisions": {"copied": 20, "rebuilt: holes": 1, "dropped: control": 3},
            "records": 1000,
            "bytes_in": 120_000,
            "bytes_out": 110_000,
            "retries": 1,
            **changes,
        },
    )

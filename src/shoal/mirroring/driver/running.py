"""A running mirror, as its parts share it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..control import ControlServer
from ..model.options import MirrorOptions
from ..monitoring.metrics import Metrics
from .schedule import PartitionSchedule

__all__ = ["Running"]


@dataclass(frozen=True, slots=True)
class Running:
    """
    A mirror that has its group and listens for tasks.

    Attributes:
        options: Its options.
        group: The consumer group on the source cluster.
        schedule: Its partitions.
        metrics: Its counts.
        control: The connection to its tasks.
        warn: A function for warnings; from any thread.
        warn_in_report: The same, for those that stay on the page and in the report.
        notify: A function for sentences that are no problem.

    """

    options: MirrorOptions
    group: str
    schedule: PartitionSchedule
    metrics: Metrics
    control: ControlServer
    warn: Callable[[str], object]
    warn_in_report: Callable[[str], object]
    notify: Callable[[str], object]

"""A running mirror for tests of one of its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.mirroring.driver.schedule import PartitionSchedule, Running
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.monitoring.metrics import Metrics

__all__ = ["running"]


def _ignore(sentence: str) -> None:
    """Drop a sentence."""


def running(
    options: MirrorOptions,
    schedule: PartitionSchedule,
    metrics: Metrics,
    *,
    control: Any = None,
    warn: Callable[[str], object] = _ignore,
    notify: Callable[[str], object] = _ignore,
) -> Running:
    """Return a mirror with a group of the name ``mirror``; without control it has no tasks."""
    return Running(options, options.group or "mirror", schedule, metrics, control, warn, warn, notify)

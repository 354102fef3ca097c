"""The engine that runs a mirror's tasks, as the driver sees it; :mod:`shoal.spark.engine` implements it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..control import ControlServer
from ..model.first_start import FirstStart
from ..model.options import MirrorOptions
from ..prepare.changes import Prepared
from .places import Places

__all__ = ["END_PATIENCE_S", "CopyJob", "Engine"]

#: The time for tasks to end, and for their last commits, from the request to stop on.
END_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class CopyJob:
    """
    The work that an engine's tasks share.

    Attributes:
        prepared: The topics that the destination is ready for.
        control: The server that every task connects to.
        places: The partitions that tasks copy, and the number of tasks that is of use.
        first_start: The group's first start, which tasks store with each position.

    """

    options: MirrorOptions
    prepared: Prepared
    control: ControlServer
    places: Places
    first_start: FirstStart


class Engine(Protocol):
    """Starts tasks for one mirror. The mirror calls these methods in their order, one at a time."""

    @property
    def listening_host(self) -> str:
        """The address that the control server has to listen on, so that tasks reach it."""

    def start(self, directory: Path) -> Path:
        """
        Start the engine's processes, which takes seconds; return the engine's log file. In any thread.

        Args:
            directory: The mirror's checkpoint, for the log and other files.

        Raises:
            ConfigError: The engine would not be safe: two attempts of a task could write at a time, or its
                connections would reveal the credentials of the clusters.
            ShoalError: The engine cannot be started.

        """

    def run(self, job: CopyJob, stop: threading.Event) -> None:
        """
        Run tasks until everything is copied (``job.places.is_done``), or until ``stop`` is set.

        An engine that loses its processes, and not the mirror's place in its group, may start tasks again.

        Raises:
            ShoalError: The tasks failed, or the engine did.

        """

    def stop(self) -> None:
        """End the processes that :meth:`start` started, or a start that is under way in another thread."""

"""
The tasks of a mirror: Spark runs one :class:`CopyTask` for each list of ranges of a job.

A mirror's own jobs are plain: an RDD with one list of ranges for each task. A data source would start a
daemon and a process for each step of its plan, which took 6 s at each start.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from shoal.client.config import ClientConfig
from shoal.mirroring.control import ControlConnection, ask_sealed_credentials
from shoal.mirroring.credentials import Credentials
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.ranges import CopyRange

__all__ = ["ControlAddress", "CopyTask"]


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """
    The address on which the driver of a mirror listens for its tasks.

    Attributes:
        token: The token that authenticates a task.
        locked: Whether tasks have to request the clusters' credentials from the driver.
        key: The key to the credentials, or the file that has the key.

    """

    host: str
    port: int
    token: str = field(repr=False)
    locked: bool = False
    key: str | Path = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class CopyTask:
    """
    Copies the ranges that Spark gives to a task. Spark pickles it, so it has no credentials of the clusters.

    Attributes:
        settings: The settings of all tasks, without the clusters' credentials.
        control: The address of the mirror's driver.
        window: The number of the window that the job belongs to.

    """

    settings: CopySettings
    control: ControlAddress
    window: int = 0

    @classmethod
    def of(cls, settings: CopySettings, control: ControlAddress) -> CopyTask:
        """Return the task for settings that may have credentials."""
        return cls(_with_security(settings, Credentials({})), control)

    @property
    def can_overlap(self) -> bool:
        """Whether the tasks of the next window may start before these end: a handler consumes at once."""
        return self.settings.handling is None

    def __call__(self, tasks: Iterable[Sequence[CopyRange]]) -> list[None]:
        """
        Copy the ranges of a task, and return nothing. Runs in the task.

        Raises:
            Stopped: The driver is gone.
            ShoalError: The last commit failed.

        """
        for ranges in tasks:
            self._run(ranges)
        return []

    def _run(self, ranges: Sequence[CopyRange]) -> None:
        # Only tasks need these modules, and the driver imports this one while a user waits.
        if self.settings.handling is not None:
            from shoal.mirrormaker.task import run_handler_task as run
        else:
            from shoal.mirroring.task.task import run_copy_task as run
        settings = self.settings
        if self.control.locked:
            settings = _with_security(settings, _credentials(self.control))
        address = self.control.host, self.control.port
        with ControlConnection(address, self.control.token, self.window) as control:
            run(ranges, settings, control)


# Spark uses a Python worker again, for tasks of this mirror and of others.
@lru_cache(maxsize=8)
def _credentials(control: ControlAddress) -> Credentials:
    return Credentials.unseal(
        ask_sealed_credentials((control.host, control.port), control.token), control.key
    )


def _with_security(settings: CopySettings, credentials: Credentials) -> CopySettings:
    def opened(config: ClientConfig) -> ClientConfig:
        return dataclasses.replace(config, security=credentials.by_cluster.get(config.name))

    return dataclasses.replace(
        settings, source=opened(settings.source), destination=opened(settings.destination)
    )

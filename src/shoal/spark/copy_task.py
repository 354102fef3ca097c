"""
The tasks of a mirror: Spark runs a :class:`CopyTask` in each, which gets its partitions from the driver.

A mirror's own job is plain: an RDD with one number for each task. A data source would start a daemon and a
process for each step of its plan, which took 6 s at each start.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark import TaskContext

from shoal.mirroring.control import ControlConnection
from shoal.mirroring.credentials import Credentials
from shoal.mirroring.model.copy_options import CopySettings

__all__ = ["ControlAddress", "CopyTask"]


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """
    The address on which the driver of a mirror listens for its tasks.

    Attributes:
        token: The token that authenticates a task.
        key: The key to the credentials, or the file that has the key.

    """

    host: str
    port: int
    token: str = field(repr=False)
    key: str | Path = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class CopyTask:
    """
    Copies what the driver assigns to a task. Spark pickles it, so it has no credentials of the clusters.

    Attributes:
        settings: The settings of all tasks, without the clusters' credentials.
        control: The address of the mirror's driver.
        job: The number of the job that the task belongs to.

    """

    settings: CopySettings
    control: ControlAddress
    job: int = 0

    @classmethod
    def of(cls, settings: CopySettings, control: ControlAddress) -> CopyTask:
        """Return the task for settings that may have credentials."""
        return cls(_with_security(settings, Credentials({})), control)

    def __call__(self, tasks: Iterable[int]) -> list[None]:
        """
        Copy until the driver requests an end, and return nothing. Runs in the task.

        Raises:
            Stopped: The driver is gone.
            ShoalError: The last commit failed.

        """
        for _ in tasks:
            self._run()
        return []

    def _run(self) -> None:
        # Only tasks need these modules, and the driver imports this one while a user waits.
        if self.settings.handling is not None:
            from shoal.mirrormaker.task import follow_documents
        elif self.settings.destination.choose(for_cluster=False, for_archive=True):
            from shoal.mirroring.task.archiving import follow_documents
        else:
            from shoal.mirroring.task.task import follow_documents
        address = self.control.host, self.control.port
        context = TaskContext.get()
        attempt = context.attemptNumber() if context else 0
        with ControlConnection(address, self.control.token, self.job, attempt) as control:
            settings = self.settings
            if sealed := control.sealed_credentials:
                settings = _with_security(settings, Credentials.unseal(sealed, self.control.key))
            follow_documents(settings, control)


def _with_security(settings: CopySettings, credentials: Credentials) -> CopySettings:
    source, destination = map(credentials.into, (settings.source, settings.destination))
    return dataclasses.replace(settings, source=source, destination=destination)

"""A task of an archiving or restoring mirror in a process to kill, without Spark."""

from __future__ import annotations

import base64
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

from shoal.mirroring.control import ControlConnection
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.task import archiving, task

__all__ = ["TaskProcess"]

_Given: TypeAlias = tuple[CopySettings, tuple[str, int], int]


class TaskProcess:
    """A running task."""

    def __init__(self, settings: CopySettings, address: tuple[str, int], job: int) -> None:
        """Start it for a driver that listens at an address."""
        given: _Given = (settings, address, job)
        self.job = job
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            env=os.environ,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(base64.b64encode(pickle.dumps(given)))
        self._process.stdin.close()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill it by SIGKILL; raise if it had failed."""
        self._process.kill()
        self.finish(-signal.SIGKILL)

    def finish(self, code: int = 0) -> None:
        """Wait for its end, and check its exit code; a process that is killed may have ended by itself."""
        assert self._process.stderr is not None
        with self._process.stderr as errors:
            told = errors.read().decode()
        assert self._process.wait(60) in (0, code), told


def main() -> None:
    given: _Given = pickle.loads(base64.b64decode(sys.stdin.read()))
    settings, address, job = given
    is_archive = settings.destination.directory is not None
    follow = archiving.follow_documents if is_archive else task.follow_documents
    with ControlConnection(address, "secret", job) as control:
        follow(settings, control)


if __name__ == "__main__":
    main()

"""``shoal mirror`` as a process, as an operator runs it, watched by its ``--json`` lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.class_archives import share_class_archives
from tests.integration.shared_spark import SharedSpark
from tests.python_workers import is_python_worker

__all__ = ["MirrorProcess", "close_shared_spark", "environment_of", "shoal"]

_SHARED = SharedSpark()

#: A stopped session leaves its settings in the JVM; a dry run starts none.
_NOT_SHARED = {"--conf", "--master", "--dry-run"}


def shoal(
    *args: str, state: Path, timeout_s: float = 240, own_process: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run ``shoal`` to its end.

    If a mirror has no settings of Spark, it shares a process and its JVM with others, unless ``own_process``
    is true.
    """
    if args[0] == "mirror" and not own_process and not _NOT_SHARED & set(args):
        return _SHARED.run(*args, environment=environment_of(state), timeout_s=timeout_s)
    return subprocess.run(
        [sys.executable, "-m", "shoal", *args],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environment_of(state),
        check=False,
    )


def close_shared_spark() -> None:
    """End the process that mirrors share."""
    _SHARED.close()


def environment_of(state: Path) -> dict[str, str]:
    """Return the variables of a process with this state directory."""
    share_class_archives(state / "shoal")
    return {**os.environ, "XDG_STATE_HOME": str(state)}


class MirrorProcess:
    """A running ``shoal mirror --json``; killed at the end of the ``with`` block if it still runs."""

    def __init__(self, *args: str, state: Path, verb: str = "mirror") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "shoal", verb, "--json", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment_of(state),
        )
        self._changed = threading.Condition()
        self._lines: list[dict[str, Any]] = []
        self._over = False
        self.stderr = ""
        self._threads = [threading.Thread(target=target) for target in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self.stderr = self._process.stderr.read()

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], timeout_s: float = 240) -> dict[str, Any]:
        """Wait for a JSON line that fulfils a condition, the last one or a later one, and return it."""
        with self._changed:
            # Each of them: several may come before this thread runs.
            begin = max(0, len(self._lines) - 1)
            found: dict[str, Any] | None = None

            def has_come() -> bool:
                nonlocal begin, found
                found = next((line for line in self._lines[begin:] if condition(line)), None)
                begin = len(self._lines)
                return self._over or found is not None

            self._changed.wait_for(has_come, timeout_s)
            if found is None:
                raise AssertionError(f"ended or timed out before that; last line {self._last}, {self.stderr}")
            return found

    @property
    def _last(self) -> dict[str, Any]:
        return self._lines[-1] if self._lines else {}

    def python_workers(self) -> list[psutil.Process]:
        """Return the processes that run Python tasks, without their daemon."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        return [each for each in children if is_python_worker(each)]

    @property
    def process_id(self) -> int:
        return self._process.pid

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = 240) -> dict[str, Any]:
        """Wait for the end; return the last JSON object, which is the summary if the mirror succeeded."""
        self._process.wait(timeout_s)
        for thread in self._threads:
            thread.join()
        return self._last

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def __enter__(self) -> MirrorProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.kill()
        self.wait()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

"""One run of pytest over chosen tests against a chosen copy of the package, and its outcome."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .areas import ROOT, SOURCES
from .plan import PACKAGE_NAMES, PLAN, Plan

__all__ = ["BrokenRun", "Outcome", "Runs"]


class BrokenRun(Exception):
    """Pytest ran otherwise than it was to: its result says nothing about a mutant."""


@dataclass(frozen=True)
class Outcome:
    """
    The result of a run.

    Attributes:
        exit_code: That of pytest; None if the run reached its deadline.
        passed: The tests that passed or were skipped, with their seconds.
        failed: The tests that failed, with the last line of each report.
        unfinished: The test that had started when the process ended.

    """

    exit_code: int | None
    passed: dict[str, float]
    failed: dict[str, str]
    unfinished: str | None


class Runs:
    """Runs of pytest, each in a process group of its own, that can be ended together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[int] = set()

    def end(self) -> None:
        """End all runs with the processes that they started."""
        with self._lock:
            for group in self._running:
                _kill(group)

    def run(
        self,
        sources: Path | None,
        arguments: Sequence[str],
        folder: Path,
        *,
        deadlines: dict[str, float] | None = None,
        timeout_s: float | None = None,
    ) -> Outcome:
        """
        Run pytest.

        Args:
            sources: The directory that has the packages ``shoal`` and ``shoal_broker``; None for the
                unmutated ones.
            arguments: Paths of tests, and further arguments.
            folder: An existing, empty directory for the files of this run.
            deadlines: As in `Plan`.
            timeout_s: The seconds after which the whole run is ended.

        Raises:
            BrokenRun: Python found another package.
        """
        plan, events, log = folder / "plan.json", folder / "events", folder / "log"
        plan.write_text(json.dumps(Plan(str(events), deadlines)._asdict()), encoding="utf-8")
        roots = SOURCES if sources is None else (sources, sources)
        path = [*map(str, roots), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), PLAN: str(plan)}
        environment["SHOAL_CAMPAIGN"] = "whole"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not integration and not long"]
        command += ["-p", "tests.mutants.recorder", "-p", "no:cacheprovider", "-p", "no:xdist"]
        # The setting would put the unmutated broker before the path.
        command += ["-o", "pythonpath=.", f"--basetemp={folder / 'tests'}", *arguments]
        with log.open("wb") as output:
            exit_code = self._wait(command, environment, output.fileno(), timeout_s)
        packages = [root / name / "__init__.py" for root, name in zip(roots, PACKAGE_NAMES, strict=True)]
        outcome = _read(events, exit_code, [str(each) for each in packages])
        if outcome is None:
            raise BrokenRun(log.read_text(encoding="utf-8", errors="replace")[-4_000:])
        return outcome

    def _wait(
        self, command: Sequence[str], environment: dict[str, str], output: int, timeout_s: float | None
    ) -> int | None:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output, process_group=0
        )
        with self._lock:
            self._running.add(process.pid)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with self._lock:
                self._running.discard(process.pid)
                _kill(process.pid)
            process.wait()


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _read(events: Path, exit_code: int | None, packages: list[str]) -> Outcome | None:
    """Return the result that a file of events has; None if it is of other packages."""
    passed: dict[str, float] = {}
    failed: dict[str, str] = {}
    unfinished: str | None = None
    is_right_package = False
    for line in events.read_text(encoding="utf-8").splitlines() if events.exists() else ():
        event: dict[str, Any] = json.loads(line)
        match event["event"]:
            case "package":
                is_right_package = event["paths"] == packages
            case "start":
                unfinished = event["test"]
            case "failed":
                failed[event["test"]], unfinished = event["message"], None
            case "passed":
                passed[event["test"]], unfinished = event["seconds"], None
    return Outcome(exit_code, passed, failed, unfinished) if is_right_package else None

"""The unmutated run of some tests, and the trial of a mutant by those that execute its line."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from coverage import CoverageData

from .areas import PACKAGES, ROOT, SOURCES, module_named, name_of
from .equivalent import reason_for
from .mutations import Site, mutate, sites

__all__ = ["BrokenRun", "Mutant", "Result", "Survey", "Verdict", "draw", "end_runs", "survey", "try_mutant"]

#: The deadline of a run: for pytest to start and to collect, and a multiple of its tests' unmutated time.
_START_S, _DEADLINE_FACTOR = 180.0, 5.0

#: How pytest ends if it found nothing to run, or not what it was to run.
_NOTHING_RAN = (4, 5)

#: The process groups of all runs of pytest.
_running: set[int] = set()


class BrokenRun(Exception):
    """Pytest ran otherwise than it was to: its result says nothing about a mutant."""


class Verdict(Enum):
    """The fate of a mutant."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    """The tests did not end, which kills the mutant, too, unless the machine was too slow."""
    SURVIVED = "survived"
    NOT_RUN = "not run"
    """No test executes its line: the mutant survived, and the tests lack an event."""
    EQUIVALENT = "equivalent"
    """It is in the list of `equivalent`: no test was run."""

    @property
    def has_survived(self) -> bool:
        """Whether no test told it from the source, though one could."""
        return self in (Verdict.SURVIVED, Verdict.NOT_RUN)

    @property
    def is_killed(self) -> bool:
        """Whether a test told the mutant from the source."""
        return self in (Verdict.KILLED, Verdict.TIMED_OUT)


@dataclass(frozen=True)
class Survey:
    """
    The results of the unmutated run.

    Attributes:
        seconds: The time of each test that passed.
        lines: For each module, by `name_of`, the tests that execute a line.

    """

    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[int, Collection[str]]]

    def tests_of(self, module: str, line: int) -> list[str]:
        """Return the tests that execute a line: the quickest first, since it costs least if it kills."""
        tests = self.lines.get(module, {}).get(line, ())
        return sorted(tests, key=lambda test: (self.seconds[test], test))


@dataclass(frozen=True)
class Mutant:
    """
    A mutant.

    Attributes:
        module: Its module, by `name_of`.
        tests: The tests that execute its line, in the order in which they run; none does if it is empty.

    """

    module: str
    site: Site
    tests: tuple[str, ...]

    @property
    def place(self) -> str:
        """Module and line."""
        return f"{self.module}:{self.site.line}"


@dataclass(frozen=True)
class Result:
    """
    A mutant's verdict.

    Attributes:
        said: The test that failed with the last line of its report, or the reason of an equivalent one.

    """

    mutant: Mutant
    verdict: Verdict
    said: str = ""


def survey(tests: Sequence[str]) -> Survey:
    """
    Run tests unmutated, with coverage.

    Args:
        tests: Paths of files and directories.

    Raises:
        BrokenRun: No test passed, or pytest collected none.

    """
    with TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        settings = folder / "coveragerc"
        settings.write_text(f"[run]\ndata_file = {folder / 'coverage'}\n", encoding="utf-8")
        coverage = [*(f"--cov={package}" for package in PACKAGES), "--cov-context=test", "--cov-report="]
        options = [*coverage, f"--cov-config={settings}", "-vv", "--durations=0", "--durations-min=0"]
        code, said = _pytest([*options, *tests], SOURCES, folder)
        failed = set(re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE))
        seconds = {
            test: float(took)
            for took, test in re.findall(r"^([\d.]+)s call +(.+?) *$", said, re.MULTILINE)
            if test not in failed
        }
        if code not in (0, 1) or not seconds:
            raise BrokenRun(f"the tests do not run unmutated\n{said[-4_000:]}")
        for test in sorted(failed):
            print(f"left out, it fails unmutated: {test}")
        return Survey(seconds, _lines(folder / "coverage", seconds))


def _lines(file: Path, passed: Collection[str]) -> dict[str, dict[int, set[str]]]:
    data = CoverageData(str(file))
    data.read()
    # A context is a test's id and the part of its run; lines of an import have an empty one.
    return {
        name_of(Path(module)): {
            line: {context.rpartition("|")[0] for context in contexts} & set(passed)
            for line, contexts in data.contexts_by_lineno(module).items()
        }
        for module in data.measured_files()
    }


def draw(
    surveyed: Survey, modules: Iterable[Path], seed: int, count: int, most_tests: int | None = None
) -> tuple[list[Mutant], int, int]:
    """
    Draw mutants from the modules, also from lines that no test executes.

    Args:
        most_tests: How many tests, the quickest first, judge a mutant; None for all that execute its line.

    Returns:
        The mutants, the number of all mutants that tests execute, and the number of all. The draw stays the
        same, but for what is new or gone, when the source or what tests execute of it changes.

    """
    everything = [
        (name_of(module), site) for module in modules for site in sites(module.read_text(encoding="utf-8"))
    ]
    executed = sum(bool(surveyed.tests_of(name, site.line)) for name, site in everything)
    everything.sort(key=lambda each: sha256(f"{seed} {each[0]} {each[1][2:4]}".encode()).digest())
    drawn = [
        Mutant(name, site, tuple(surveyed.tests_of(name, site.line)[:most_tests]))
        for name, site in everything[:count]
    ]
    return drawn, executed, len(everything)


def try_mutant(surveyed: Survey, mutant: Mutant) -> Result:
    """
    Run the mutant's tests against it, until one fails.

    Raises:
        BrokenRun: Pytest ended without a verdict.

    """
    if reason := reason_for(mutant.module, mutant.site):
        return Result(mutant, Verdict.EQUIVALENT, reason)
    if not mutant.tests:
        return Result(mutant, Verdict.NOT_RUN)
    timeout_s = _START_S + _DEADLINE_FACTOR * sum(surveyed.seconds[test] for test in mutant.tests)
    with TemporaryDirectory(prefix="mutants-") as name:
        shadow = Path(name) / "src"
        _write_packages(shadow, mutant)
        code, said = _pytest(["-x", *mutant.tests], (shadow, shadow), Path(name), timeout_s)
    if code is None:
        return Result(mutant, Verdict.TIMED_OUT)
    if code == 0:
        return Result(mutant, Verdict.SURVIVED)
    if code in _NOTHING_RAN and "Error" not in said:
        raise BrokenRun(f"{mutant.place}: {said[-4_000:]}")
    failed = re.findall(r"^(?:FAILED|ERROR) (.+)$", said, re.MULTILINE)
    return Result(mutant, Verdict.KILLED, (failed or [f"exit code {code}"])[0][:300])


def _write_packages(shadow: Path, mutant: Mutant) -> None:
    """Write packages of links to the files, compiled ones included, but for the mutated module."""
    for package in PACKAGES:
        shutil.copytree(package, shadow / package.name, copy_function=os.symlink)
    module = shadow / mutant.module
    module.unlink()
    for compiled in (module.parent / "__pycache__").glob(f"{module.stem}.*.pyc"):
        compiled.unlink()
    source = module_named(mutant.module).read_text(encoding="utf-8")
    module.write_text(mutate(source, mutant.site.number), encoding="utf-8")


def _pytest(
    arguments: Sequence[str], sources: Sequence[Path], folder: Path, timeout_s: float | None = None
) -> tuple[int | None, str]:
    """
    Run pytest against packages in some directories, with all seeds of the campaigns.

    Returns:
        Its exit code, and what it has printed; no exit code if it did not end in time.

    """
    path = os.pathsep.join(filter(None, [*map(str, sources), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "SHOAL_CAMPAIGN": "whole", "COLUMNS": "400"}
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-m", "not integration and not long"]
    # The setting `pythonpath` would put the unmutated broker before the path.
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", "-o", "pythonpath=."]
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, f"--basetemp={folder / 'tests'}", *arguments],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
            process_group=0,
        )
        _running.add(process.pid)
        code: int | None = None
        try:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout_s)
        finally:
            _running.discard(process.pid)
            _kill(process.pid)  # with what the tests have started
            process.wait()
    return code, log.read_text(encoding="utf-8", errors="replace")


def end_runs() -> None:
    """End all runs with the processes that they started."""
    for group in set(_running):
        _kill(group)


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)

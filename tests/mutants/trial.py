"""One mutant and its verdict, by the tests that execute its line."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from .areas import PACKAGES, module_named, name_of
from .equivalent import reason_for
from .mutations import Site, mutate, sites
from .run import BrokenRun, Outcome, Runs
from .survey import Survey

__all__ = ["Mutant", "Result", "Verdict", "draw", "try_mutant"]

#: A test's deadline is a multiple of its unmutated time, and some seconds in case the machine is busy.
_DEADLINE_FACTOR = 5.0
_DEADLINE_EXTRA_S = 30.0

#: For pytest to start and to collect.
_START_S = 120.0


class Verdict(Enum):
    """The fate of a mutant."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    """A test did not end, which kills the mutant, too, unless the machine was too slow."""
    SURVIVED = "survived"
    NOT_RUN = "not run"
    """No test executes its line: the mutant survived, and the tests lack an event."""
    EQUIVALENT = "equivalent"
    """It is listed in ``equivalent.toml``: no test was run."""

    @property
    def is_killed(self) -> bool:
        """Whether a test told the mutant from the source."""
        return self in (Verdict.KILLED, Verdict.TIMED_OUT)

    @property
    def has_survived(self) -> bool:
        """Whether no test told it from the source, though one could."""
        return self in (Verdict.SURVIVED, Verdict.NOT_RUN)


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
        killer: The test that failed, hung or crashed; None if it survived.
        message: The last line of that test's report, or the reason of an equivalent one.

    """

    mutant: Mutant
    verdict: Verdict
    killer: str | None = None
    message: str = ""


def draw(
    survey: Survey, modules: Iterable[Path], seed: int, count: int, most_tests: int | None = None
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
    executed = sum(bool(survey.tests_of(name, site.line)) for name, site in everything)
    everything.sort(key=lambda each: sha256(f"{seed} {each[0]} {each[1][2:4]}".encode()).digest())
    drawn = [
        Mutant(name, site, tuple(survey.tests_of(name, site.line)[:most_tests]))
        for name, site in everything[:count]
    ]
    return drawn, executed, len(everything)


def try_mutant(runs: Runs, survey: Survey, mutant: Mutant) -> Result:
    """
    Run the mutant's tests against it, until one fails.

    Raises:
        BrokenRun: Pytest ended without a verdict.
    """
    if reason := reason_for(mutant.module, mutant.site):
        return Result(mutant, Verdict.EQUIVALENT, message=reason)
    if not mutant.tests:
        return Result(mutant, Verdict.NOT_RUN)
    deadlines = {test: _DEADLINE_FACTOR * survey.seconds[test] + _DEADLINE_EXTRA_S for test in mutant.tests}
    with TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        shadow = folder / "src"
        _write_packages(shadow, mutant)
        files = sorted({test.partition("::")[0] for test in mutant.tests})
        timeout_s = _START_S + sum(deadlines.values())
        outcome = runs.run(shadow, files, folder, deadlines=deadlines, timeout_s=timeout_s)
        return judge(mutant, outcome)


def judge(mutant: Mutant, outcome: Outcome) -> Result:
    """
    Return the verdict that follows from a run.

    Raises:
        BrokenRun: Pytest ended well without having run all tests.
    """
    for test, message in outcome.failed.items():
        return Result(mutant, Verdict.KILLED, test, message)
    if outcome.exit_code is None or (outcome.unfinished and outcome.exit_code == 1):
        return Result(mutant, Verdict.TIMED_OUT, outcome.unfinished or "(end of the tests)")
    if outcome.unfinished:
        return Result(mutant, Verdict.KILLED, outcome.unfinished, f"exit code {outcome.exit_code}")
    if outcome.exit_code != 0:
        return Result(mutant, Verdict.KILLED, "(import)", f"exit code {outcome.exit_code}")
    if missing := set(mutant.tests) - outcome.passed.keys():
        raise BrokenRun(f"{mutant.place}: pytest did not run {', '.join(sorted(missing))}")
    return Result(mutant, Verdict.SURVIVED)


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

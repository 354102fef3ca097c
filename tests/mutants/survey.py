"""The unmutated run: how long each test takes, and which lines it executes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from coverage import CoverageData

from .areas import PACKAGES, ROOT, SOURCES, name_of
from .run import BrokenRun, Runs

__all__ = ["Survey", "survey"]


@dataclass(frozen=True)
class Survey:
    """
    The results of the unmutated run.

    Attributes:
        digest: A hash of the packages, of the tests and of the arguments.
        seconds: The time of each test that passed.
        failed: The tests that failed; they judge no mutant.
        lines: For each module, by `name_of`, the tests that execute a line.

    """

    digest: str
    seconds: dict[str, float]
    failed: dict[str, str]
    lines: dict[str, dict[int, list[str]]]

    def tests_of(self, module: str, line: int) -> list[str]:
        """Return the tests that execute a line: the quickest first, since it costs least if it kills."""
        tests = self.lines.get(module, {}).get(line, [])
        return sorted(tests, key=lambda test: (self.seconds[test], test))


def survey(runs: Runs, tests: Sequence[str], file: Path | None) -> Survey:
    """
    Run the tests unmutated, with coverage.

    Args:
        tests: Paths of files and directories.
        file: A file that keeps the result. It is used again if neither package nor tests have changed.

    Raises:
        BrokenRun: No test passed, or pytest collected none.
    """
    digest = _digest(tests)
    if file and file.exists() and (kept := _read(file)).digest == digest:
        return kept
    with TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        settings = folder / "coveragerc"
        settings.write_text(f"[run]\ndata_file = {folder / 'coverage'}\n", encoding="utf-8")
        coverage = [f"--cov={package}" for package in PACKAGES]
        coverage += ["--cov-context=test", "--cov-report=", f"--cov-config={settings}"]
        outcome = runs.run(None, [*coverage, *tests], folder)
        if outcome.exit_code not in (0, 1) or not outcome.passed:
            log = (folder / "log").read_text(encoding="utf-8", errors="replace")
            raise BrokenRun(f"the tests do not run unmutated\n{log[-4_000:]}")
        lines = _lines(folder / "coverage", set(outcome.passed))
    result = Survey(digest, outcome.passed, outcome.failed, lines)
    if file:
        file.write_text(json.dumps(asdict(result)), encoding="utf-8")
    return result


def _lines(file: Path, passed: set[str]) -> dict[str, dict[int, list[str]]]:
    data = CoverageData(str(file))
    data.read()
    lines = {}
    for module in data.measured_files():
        # A context is a test's id and the part of its run; lines of an import have an empty one.
        found = {
            line: sorted({context.rpartition("|")[0] for context in contexts} & passed)
            for line, contexts in data.contexts_by_lineno(module).items()
        }
        lines[name_of(Path(module))] = {line: each for line, each in found.items() if each}
    return lines


def _digest(tests: Sequence[str]) -> str:
    digest = sha256("\n".join(tests).encode())
    for folder in (*SOURCES, ROOT / "tests"):
        for module in sorted(folder.rglob("*.py")):
            if not module.is_relative_to(ROOT / "tests" / "mutants"):
                digest.update(module.read_bytes())
    return digest.hexdigest()


def _read(file: Path) -> Survey:
    values = json.loads(file.read_text(encoding="utf-8"))
    values["lines"] = {
        module: {int(line): tests for line, tests in lines.items()}
        for module, lines in values["lines"].items()
    }
    return Survey(**values)

"""Runs of the bench as JSON: ``bench/runs/DATE.json``, from which `bench.page` makes docs/performance.md."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figures

__all__ = ["RUNS", "Run", "Section", "newest", "read_runs", "write_run"]

RUNS = Path(__file__).parent / "runs"


@dataclass(frozen=True)
class Section:
    """The result of a row.

    Attributes:
        title: Its heading.
        text: The conditions, as Markdown.
        figures: The figures of each subject, such as a mover.
    """

    title: str
    text: str
    figures: Figures


@dataclass(frozen=True)
class Run:
    """One run of the bench.

    Attributes:
        date: The day, as 2026-11-23.
        commit: The commit of shoal.
        conditions: The machine, the versions, the number of turns, and the machine's load.
        sections: The result of each row, by the row's name.
    """

    date: str
    commit: str
    conditions: str
    sections: Mapping[str, Section]


def write_run(run: Run, directory: Path) -> Path:
    """Write a run into a new file, and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    names = (f"{run.date}{f'-{number}' if number > 1 else ''}.json" for number in range(1, 1000))
    path = next(directory / name for name in names if not (directory / name).exists())
    path.write_text(json.dumps(dataclasses.asdict(run), indent=1) + "\n")
    return path


def read_runs(directory: Path = RUNS) -> list[Run]:
    """Return all runs, the oldest first."""
    found = []
    for path in sorted(
        directory.glob("*.json"), key=lambda path: (path.stem[:10], len(path.stem), path.stem)
    ):
        values = json.loads(path.read_text())
        sections = {name: Section(**each) for name, each in values.pop("sections").items()}
        found.append(Run(**values, sections=sections))
    return found


def newest(runs: list[Run]) -> dict[str, Run]:
    """Return the newest run of each row."""
    return {name: run for run in runs for name in run.sections}

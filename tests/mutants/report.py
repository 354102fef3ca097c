"""The results of a draw as a table in Markdown, and as JSON for a later comparison."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .trial import Result, Verdict

__all__ = ["Share", "line_of", "table_of", "write_json"]


def line_of(result: Result) -> str:
    """Return a mutant and its verdict in one line."""
    site = result.mutant.site
    return f"{result.mutant.place}: `{_change(site.before, site.after)}`: {_verdict(result)}"


def table_of(results: Sequence[Result]) -> str:
    """Return all results as a table, survivors first."""
    lines = ["| place | mutation | verdict |", "|---|---|---|"]
    for each in sorted(results, key=lambda each: (each.verdict.is_killed, each.mutant.place)):
        site = each.mutant.site
        change = _change(site.before, site.after).replace("|", "\\|")
        lines.append(f"| {each.mutant.place} | `{change}` | {_verdict(each)} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Share:
    """
    The share of mutants that tests killed, of those that are not equivalent.

    Attributes:
        counts: The number of mutants of each verdict.
        least: The least share that passes, in percent.

    """

    counts: Counter[Verdict]
    least: float

    @property
    def judged(self) -> int:
        """How many mutants tests could have killed."""
        return self.counts.total() - self.counts[Verdict.EQUIVALENT]

    @property
    def percent(self) -> float:
        """The share; 0 if there is no mutant to kill, which shows nothing."""
        return 100 * (self.judged - self._survived) / max(1, self.judged)

    @property
    def _survived(self) -> int:
        return sum(count for verdict, count in self.counts.items() if verdict.has_survived)

    @property
    def exit_code(self) -> int:
        return 1 if self.percent < self.least else 0

    @property
    def sentence(self) -> str:
        counts = self.counts
        return (
            f"{self.percent:.1f} % of {self.judged} mutants were killed, {counts[Verdict.TIMED_OUT]} of them "
            f"by time, and at least {self.least:g} % are required: {self._survived} survived, "
            f"{counts[Verdict.NOT_RUN]} of them in lines that no test runs. "
            f"{counts[Verdict.EQUIVALENT]} more are equivalent"
        )


def write_json(file: Path, results: Sequence[Result], **settings: Any) -> None:
    """Write all results, and the settings of their draw."""
    mutants = [
        {
            "module": each.mutant.module,
            **each.mutant.site._asdict(),
            "tests": len(each.mutant.tests),
            "verdict": each.verdict.value,
            "killer": each.killer,
            "message": each.message,
        }
        for each in results
    ]
    file.write_text(json.dumps({**settings, "mutants": mutants}, indent=1) + "\n", encoding="utf-8")


def _verdict(result: Result) -> str:
    if result.verdict is Verdict.NOT_RUN:
        return "**not run** by any test"
    if result.verdict is Verdict.EQUIVALENT:
        return f"equivalent: {result.message}"
    if result.verdict is Verdict.SURVIVED:
        return f"**survived** {len(result.mutant.tests)} tests"
    return f"{result.verdict.value} by {result.killer}"


def _change(before: str, after: str) -> str:
    """Return both expressions with what they share at their ends cut to a few characters."""
    before, after = " ".join(before.split()), " ".join(after.split())
    if len(before) <= 70:
        return f"{before} → {after}"
    start = next(i for i in range(len(before)) if before[i] != after[i : i + 1])
    start = max(0, start - 30)
    return f"…{before[start : start + 65]}… → …{after[start : start + 65]}…"

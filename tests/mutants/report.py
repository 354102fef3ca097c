"""The results of a draw as a table in Markdown, and as JSON for a later comparison."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .trial import Result, Verdict

__all__ = ["line_of", "share_of", "table_of", "write_json"]


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


def share_of(results: Sequence[Result]) -> str:
    """Return how many mutants were killed, of those that are not equivalent."""
    killed = sum(each.verdict.is_killed for each in results)
    by_time = sum(each.verdict is Verdict.TIMED_OUT for each in results)
    not_run = sum(each.verdict is Verdict.NOT_RUN for each in results)
    equivalent = sum(each.verdict is Verdict.EQUIVALENT for each in results)
    return (
        f"{killed} of {len(results) - equivalent} killed, {by_time} of them by time; {not_run} in lines that "
        f"no test runs; {equivalent} more are equivalent"
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

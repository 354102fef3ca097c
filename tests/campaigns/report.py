"""The output of a run: a line for each trial, and a table at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rig.judge import Verdict

from .catalogue import Plan
from .kinds import Kind

__all__ = ["AnyPlan", "Outcome", "line_of", "markdown"]

AnyPlan: TypeAlias = Plan[Any, Any, Any]

#: Its head, and its rows.
Table: TypeAlias = tuple[tuple[str, ...], Sequence[tuple[str, ...]]]


@dataclass
class Outcome:
    """The result of a trial.

    Attributes:
        plan: The plan that was run.
        comparison: Verdict on the copies, after the last step.
        problems: Problems besides wrong records: a partition that stopped, a process that did not end.
        came: The names of the events that occurred.
        attempts: Number of processes or tasks started.
        failures: Number of processes that ended by themselves with an error.
        errors: The last error of each of them.
        seconds: Duration of the trial.
        phases: Seconds of each phase.
        reading: The verdict on what the consumers have read that moved.
        moves: Number of their moves.
        tables: The measurements of a long trial.
    """

    plan: AnyPlan
    comparison: Verdict = field(default_factory=Verdict)
    problems: list[str] = field(default_factory=list)
    came: list[str] = field(default_factory=list)
    attempts: int = 0
    failures: int = 0
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    reading: Verdict = field(default_factory=Verdict)
    moves: int = 0
    tables: list[Table] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        return self.comparison.is_exact and self.reading.is_exact and not self.problems


def line_of(outcome: Outcome) -> str:
    """Return one line about a trial; several if it was not exact."""
    plan, comparison = outcome.plan, outcome.comparison
    verdict = "exact" if outcome.is_exact else "NOT EXACT"
    phases = ", ".join(f"{name} {seconds:.0f}" for name, seconds in outcome.phases.items() if seconds >= 1)
    said = "; ".join(each.strip() for each in str(plan).splitlines())
    line = (
        f"{plan.kind.value}, {said}: {verdict}, {comparison.due} records, "
        f"{outcome.seconds:.0f} s ({phases}), {outcome.attempts} attempts"
    )
    if outcome.failures:
        line += f"; {outcome.failures} failed by themselves ({'; '.join(outcome.errors)})"
    if outcome.moves:
        line += f"; {outcome.moves} moves of consumers: {outcome.reading}"
    if outcome.is_exact:
        return line
    details = (*outcome.problems, *comparison.details, *outcome.reading.details)
    again = f"again: --seed {plan.seed} --kind {plan.kind.name.lower()} --trials 1"
    return "\n  ".join([line, str(comparison), *details, again])


def markdown(outcomes: Sequence[Outcome], seed: int, seconds: float) -> str:
    """Return the summary as Markdown."""
    by_kind = Counter(each.plan.kind for each in outcomes)
    kinds = ", ".join(f"{by_kind[kind]} {kind.value}" for kind in Kind if by_kind[kind])
    copied = sum((each.comparison for each in outcomes), Verdict())
    reading = sum((each.reading for each in outcomes), Verdict())
    rows = [
        ("trials", f"{len(outcomes)} ({kinds})"),
        ("exact", str(sum(each.is_exact for each in outcomes))),
        ("records compared", f"{copied.due:,}"),
        ("lost", str(copied.missing)),
        ("duplicated", str(copied.twice + copied.foreign)),
        ("there again, as at least once allows", str(copied.again)),
        ("reordered", str(copied.late)),
        ("moves of consumers", f"{sum(each.moves for each in outcomes):,}"),
        ("records read by them", f"{reading.arrived:,}"),
        ("records read twice", str(reading.twice)),
        ("records missing, late or foreign", str(reading.missing + reading.late + reading.foreign)),
        ("records read again, as the translation allows", str(reading.again)),
        ("trials with other problems", str(sum(bool(each.problems) for each in outcomes))),
        ("processes and tasks started", str(sum(each.attempts for each in outcomes))),
        ("processes that failed by themselves", str(sum(each.failures for each in outcomes))),
    ]
    drawn = Counter(event for each in outcomes for event in each.plan.events)
    came = Counter(event for each in outcomes for event in each.came)
    events = [(name, str(drawn[name]), str(came[name])) for name in sorted(drawn)]
    head = f"Seed {seed}, {seconds / 60:.0f} minutes."
    tables: list[Table] = [(("", ""), rows), (("event", "drawn", "came"), events)]
    tables += [table for each in outcomes for table in each.tables]
    return "\n".join([head, "", *(line for table in tables for line in (*_table(*table), ""))])


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]

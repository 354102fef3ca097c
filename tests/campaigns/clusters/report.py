"""The output of a run: a line for each trial, and a table at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rig.judge import Verdict

from .plan import Kind, Plan
from .scenarios import ScenarioPlan
from .trial import Outcome, TaskPlan

__all__ = ["line_of", "markdown"]


def line_of(outcome: Outcome) -> str:
    """Return one line about a trial; several if it was not exact."""
    plan, comparison = outcome.plan, outcome.comparison
    verdict = "exact" if outcome.is_exact else "NOT EXACT"
    phases = ", ".join(f"{name} {seconds:.0f}" for name, seconds in outcome.phases.items() if seconds >= 1)
    line = (
        f"trial {plan.number:3} seed {plan.seed}: {verdict}, {comparison.due} records, "
        f"{outcome.seconds:.0f} s ({phases}), {outcome.attempts} attempts; {plan}"
    )
    if outcome.failures:
        line += f"; {outcome.failures} failed by themselves ({'; '.join(outcome.errors)})"
    if isinstance(plan, Plan) and plan.groups:
        line += f"; {outcome.moves} moves of consumers: {outcome.reading}"
    if outcome.is_exact:
        return line
    details = (*outcome.problems, *comparison.details, *outcome.reading.details)
    again = f"--seed {plan.seed} --only {plan.number} {_kind_of(plan)} --trials 1"
    return "\n  ".join([line, str(comparison), *details, f"again: {again}"])


def _kind_of(plan: Plan | ScenarioPlan | TaskPlan) -> str:
    if isinstance(plan, ScenarioPlan):
        return f"--scenario '{plan.scenario}'"
    return f"--kind {plan.kind.name.lower()}"


def markdown(outcomes: Sequence[Outcome], seed: int, seconds: float) -> str:
    """Return the summary as Markdown."""
    exact = sum(each.is_exact for each in outcomes)
    by_kind = Counter(each.plan.kind for each in outcomes)
    kinds = ", ".join(f"{by_kind[kind]} {kind.value}" for kind in Kind)
    copied = sum((each.comparison for each in outcomes), Verdict())
    reading = sum((each.reading for each in outcomes), Verdict())
    rows = [
        ("trials", f"{len(outcomes)} ({kinds})"),
        ("exact", str(exact)),
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
        ("processes started", str(sum(each.attempts for each in outcomes))),
        ("processes that failed by themselves", str(sum(each.failures for each in outcomes))),
    ]
    came = Counter(name for each in outcomes for name in each.came)
    plans = [each.plan for each in outcomes if isinstance(each.plan, Plan)]
    drawn = Counter(fault.name for plan in plans for fault in plan.faults)
    ages = Counter(plan.age.value for plan in plans)
    scenarios = [each for each in outcomes if isinstance(each.plan, ScenarioPlan)]
    played = Counter(str(each.plan) for each in scenarios)
    kept = Counter(str(each.plan) for each in scenarios if each.is_exact)
    return "\n".join(
        [
            f"Seed {seed}, {seconds / 60:.0f} minutes.",
            "",
            *_table(("", ""), rows),
            "",
            *_table(
                ("fault", "drawn", "came"),
                [(name, str(drawn[name]), str(came[name])) for name in sorted(drawn)],
            ),
            "",
            *_table(("records", "trials"), [(age, str(count)) for age, count in sorted(ages.items())]),
            "",
            *_table(
                ("scenario", "trials", "as promised"),
                [(name, str(played[name]), str(kept[name])) for name in sorted(played)],
            ),
            "",
        ]
    )


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]

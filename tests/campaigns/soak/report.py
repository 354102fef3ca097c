"""The report of a soak: its table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from bench.latency import Percentiles

from .traffic import Arrival
from .world import Outcome, Window

__all__ = ["lag", "markdown", "undisturbed"]


def lag(arrivals: Iterable[Arrival]) -> Percentiles:
    return Percentiles.of(each.lag_ms for each in arrivals)


def undisturbed(outcome: Outcome) -> list[Arrival]:
    """Return the arrivals of records that were not in flight during any event."""
    return [each for each in outcome.arrivals if not any(window.touches(each) for window in outcome.windows)]


def markdown(outcome: Outcome) -> str:
    setup, found = outcome.plan.setup, outcome.comparison
    events = Counter(window.event for window in outcome.windows)
    noticed = [f"{each.noticed_s:.1f} s" for each in outcome.windows if each.noticed_s is not None]
    facts = [
        ("load", f"{setup.seconds / 60:.0f} minutes, {setup.records_per_s} records/s and bursts of 100"),
        ("events", "; ".join(f"{name} {count}" for name, count in sorted(events.items()))),
        ("records compared", f"{found.due:,}"),
        ("transactions", f"{outcome.transactions}"),
        ("lost", f"{found.missing}"),
        ("doubled", f"{found.twice + found.foreign}"),
        ("reordered", f"{found.late}"),
        ("`shoal verify`", f"exit code {outcome.verified}"),
        (f"first records of what is new, with --refresh {setup.refresh_s}", ", ".join(noticed)),
        ("SIGTERM to the mirror's end", ", ".join(f"{each:.1f} s" for each in outcome.ends)),
        *(
            (
                f"memory of the {role.value}",
                f"{outcome.memory[-1].used[role] / 1e6:.0f} MB at the end, {growth / 1e6:+.1f} MB an hour",
            )
            for role, growth in outcome.growth.items()
        ),
        ("problems", f"{len(outcome.problems)}"),
    ]
    by_kind: dict[str, list[Window]] = defaultdict(list)
    for window in sorted(outcome.windows, key=lambda each: each.event):
        by_kind[window.event].append(window)
    lags = [("whole run", lag(outcome.arrivals)), ("outside events", lag(undisturbed(outcome)))]
    lags += [
        (event, lag(each for each in outcome.arrivals if any(window.touches(each) for window in windows)))
        for event, windows in by_kind.items()
    ]
    head = ("lag in ms, without transactions", "records", "p50", "p90", "p99", "p99.9", "longest")
    rows = [(name, f"{each.count:,}", *_numbers(each)) for name, each in lags]
    return "\n".join(
        [*_table(("", ""), facts), "", *_table(head, rows), "", *(f"- {each}" for each in outcome.problems)]
    )


def _numbers(found: Percentiles) -> list[str]:
    ms = (found.p50, found.p90, found.p99, found.p999, found.longest)
    return [f"{each:.1f}" if each < 100 else f"{each:,.0f}" for each in ms]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]

"""The report of a soak: its table."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from bench.latency import Percentiles

from .ledger import Arrival
from .memory import Role
from .run import Outcome, Window

__all__ = ["lag", "markdown", "undisturbed"]


def lag(arrivals: Iterable[Arrival]) -> Percentiles:
    return Percentiles.of(each.lag_ms for each in arrivals)


def undisturbed(outcome: Outcome) -> list[Arrival]:
    """Return the arrivals of records that were not in flight during any event."""
    return [each for each in outcome.arrivals if not any(window.touches(each) for window in outcome.windows)]


def markdown(outcome: Outcome) -> str:
    setup, tally, comparison = outcome.plan.setup, outcome.tally, outcome.comparison
    minutes = (outcome.ended_ns - outcome.began_ns) / 60e9
    committed, aborted = outcome.transactions
    facts = [
        ("load", f"{minutes:.0f} minutes, {setup.records_per_s} records/s and bursts of 100"),
        ("events", _counted([window.event for window in outcome.windows])),
        ("records compared", f"{comparison.due:,} in {outcome.partitions} partitions at the end"),
        ("transactions", f"{committed:,} committed, {aborted:,} aborted"),
        ("lost", f"{max(tally.missing, comparison.missing)}"),
        ("doubled", f"{max(tally.twice + tally.foreign, comparison.twice + comparison.foreign)}"),
        ("reordered", f"{max(tally.late, comparison.late)}"),
        ("`shoal verify`", f"exit code {outcome.verified}"),
        ("new topics and partitions", _noticed(outcome)),
        ("SIGTERM to the mirror's end", ", ".join(f"{each.seconds:.1f} s" for each in outcome.ends)),
        ("CPU of the mirror", _cpu(outcome, minutes)),
        *(
            (f"memory of the {role.value}", f"{_last(outcome, role)}, {growth / 1e6:+.1f} MB an hour")
            for role, growth in outcome.growth.items()
        ),
        ("load average of the machine", _load(outcome)),
        ("problems", f"{len(outcome.problems)}"),
    ]
    lags = [
        ("whole run", lag(outcome.arrivals)),
        ("outside events", lag(undisturbed(outcome))),
        *(
            (
                event,
                lag(each for each in outcome.arrivals if any(window.touches(each) for window in windows)),
            )
            for event, windows in _by_kind(outcome).items()
        ),
    ]
    return "\n".join(
        [
            *_table(("", ""), facts),
            "",
            *_table(
                ("lag in ms", "records", "p50", "p90", "p99", "p99.9", "longest"),
                [(name, f"{each.count:,}", *_numbers(each)) for name, each in lags],
            ),
            *(["", "Problems:", "", *(f"- {each}" for each in outcome.problems)] if outcome.problems else []),
            "",
        ]
    )


def _by_kind(outcome: Outcome) -> dict[str, list[Window]]:
    found: dict[str, list[Window]] = defaultdict(list)
    for window in sorted(outcome.windows, key=lambda each: each.event):
        found[window.event].append(window)
    return found


def _counted(events: Sequence[str]) -> str:
    return "; ".join(f"{name} {count}" for name, count in sorted(Counter(events).items()))


def _noticed(outcome: Outcome) -> str:
    times = [each.noticed_s for each in outcome.windows if each.noticed_s is not None]
    if not times:
        return "none"
    refresh_s = outcome.plan.setup.refresh_s
    return f"first record after {min(times):.1f} to {max(times):.1f} s, with --refresh {refresh_s}"


def _cpu(outcome: Outcome, minutes: float) -> str:
    python, jvm = (
        sum(each.summary.get(name, math.nan) for each in outcome.ends)
        for name in ("python_cpu_s", "jvm_cpu_s")
    )
    return f"{python:.0f} s Python, {jvm:.0f} s JVM: {(python + jvm) / minutes / 60:.0%} of a core"


def _load(outcome: Outcome) -> str:
    loads = [each.load for each in outcome.memory]
    return f"median {statistics.median(loads):.1f}, highest {max(loads):.1f}" if loads else "unknown"


def _last(outcome: Outcome, role: Role) -> str:
    return f"{outcome.memory[-1].used[role] / 1e6:.0f} MB at the end"


def _numbers(found: Percentiles) -> list[str]:
    return [_short(ms) for ms in (found.p50, found.p90, found.p99, found.p999, found.longest)]


def _short(ms: float) -> str:
    return f"{ms:.1f}" if ms < 100 else f"{ms:,.0f}"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]

"""The report of a soak: a section for ``bench/results.md`` and its chart."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from bench.chart import line_layer, span_layer, svg
from bench.latency import Percentiles

from .ledger import Arrival
from .memory import Role
from .plan import EVENTS
from .run import Outcome, Window

__all__ = ["chart", "lag", "markdown", "undisturbed"]

_BUCKET_S = 10
_WIDTH = 900


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


def chart(outcome: Outcome) -> str:
    """Return lag and memory over time as SVG, the events shaded."""
    spans = [
        {
            "from": _minutes(outcome, window.began_ns),
            "to": _minutes(outcome, window.ended_ns),
            "span": window.event,
        }
        for window in outcome.windows
    ]
    shaded = span_layer(spans, list(EVENTS))
    lines = ("longest", "p99", "p50")
    lag_panel = line_layer(
        _lag_rows(outcome, lines),
        ("minute", "minutes"),
        ("ms", f"lag of the records sent in {_BUCKET_S} s, ms"),
        lines,
        logarithmic_y=True,
    )
    memory_panel = line_layer(
        _memory_rows(outcome),
        ("minute", "minutes"),
        ("megabytes", "memory, MB"),
        [role.value for role in Role],
    )
    own_colors = {"resolve": {"scale": {"color": "independent"}}, "width": _WIDTH}
    return svg(
        [
            {"layer": [shaded, lag_panel], "height": 280, **own_colors},
            {"layer": [memory_panel], "height": 140, **own_colors},
        ],
        "shoal mirror, two clusters of three brokers: lag and memory",
    )


def _lag_rows(outcome: Outcome, lines: Sequence[str]) -> list[dict[str, Any]]:
    buckets: dict[int, list[float]] = defaultdict(list)
    for each in outcome.arrivals:
        buckets[int((each.sent_ns - outcome.began_ns) / 1e9 / _BUCKET_S)].append(each.lag_ms)
    rows = []
    for number, times_ms in sorted(buckets.items()):
        found = Percentiles.of(times_ms)
        minute = round(number * _BUCKET_S / 60, 3)
        rows += [
            {"minute": minute, "ms": round(max(getattr(found, line), 0.1), 1), "line": line} for line in lines
        ]
    return rows


def _memory_rows(outcome: Outcome) -> list[dict[str, Any]]:
    if not outcome.memory:
        return []
    began_s = outcome.memory[-1].at_s - (outcome.ended_ns - outcome.began_ns) / 1e9
    return [
        {
            "minute": round((each.at_s - began_s) / 60, 3),
            "megabytes": round(size / 1e6, 1),
            "line": role.value,
        }
        for each in outcome.memory
        if each.at_s >= began_s
        for role, size in each.used.items()
    ]


def _minutes(outcome: Outcome, at_ns: int) -> float:
    return round((min(at_ns, outcome.ended_ns) - outcome.began_ns) / 60e9, 3)


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

"""The table and the chart of `bench.before_after`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from bench.chart import bar_layer, line_layer, rule_layer, svg
from bench.report import markdown

__all__ = ["KIP_AFTER", "KIP_BEFORE", "Run", "chart", "table"]

KIP_BEFORE, KIP_AFTER = 50.0, 15.0
"""Percent of a host's CPU, by KIP-712: MirrorMaker 1 unchanged, and with whole batches."""

_STEP_S = 0.5


@dataclass(frozen=True)
class Run:
    """One mover on one topic, from the first record until all are copied.

    Attributes:
        topic: The name of its shape.
        gigabytes: Size of the uncompressed records.
        samples: Samples of the mover's processes: seconds and CPU-seconds since the start, and resident
            bytes.
        gc_pauses_s: Garbage collection pauses of its JVM in that time.
        batches: Number of batches at the destination.
        batch_bytes: Their total size.
        batch_records: Their number of records.
        conversions: Records that the destination's broker converted.
    """

    topic: str
    mover: str
    gigabytes: float
    samples: Sequence[tuple[float, float, int]]
    gc_pauses_s: Sequence[float]
    batches: int
    batch_bytes: int
    batch_records: int
    conversions: int

    @property
    def seconds(self) -> float:
        return self.samples[-1][0]

    @property
    def cpu_s_per_gb(self) -> float:
        return self.samples[-1][1] / self.gigabytes

    @property
    def peak_rss_mb(self) -> float:
        return max(rss for _, _, rss in self.samples) / 1e6


_Quantity = Callable[[Run], float]

_COLUMNS: dict[str, tuple[_Quantity, str]] = {
    "CPU-s/GB": (lambda run: run.cpu_s_per_gb, ".2f"),
    "MB/s": (lambda run: run.gigabytes * 1000 / run.seconds, ".0f"),
    "peak RSS, MB": (lambda run: run.peak_rss_mb, ".0f"),
    "GC pauses": (lambda run: len(run.gc_pauses_s), ".0f"),
    "GC, ms": (lambda run: 1000 * sum(run.gc_pauses_s), ".0f"),
    "longest, ms": (lambda run: 1000 * max(run.gc_pauses_s, default=0.0), ".0f"),
    "KB a batch": (lambda run: run.batch_bytes / run.batches / 1000, ".1f"),
    "records a batch": (lambda run: run.batch_records / run.batches, ".0f"),
    "conversions": (lambda run: run.conversions, ".0f"),
}


def table(runs: Sequence[Run]) -> str:
    """Return a Markdown table: medians of each topic and mover, and the CPU relative to the first mover's."""
    rows = []
    for topic, movers in _by_topic(runs):
        first = _median(next(iter(movers.values())), _COLUMNS["CPU-s/GB"][0])
        for mover, own in movers.items():
            cells = [_cell(own, *column) for column in _COLUMNS.values()]
            share = _median(own, _COLUMNS["CPU-s/GB"][0]) / first
            rows.append([topic, mover, cells[0], f"**{share:.0%}**", *cells[1:]])
    heads = list(_COLUMNS)
    first_mover = runs[0].mover
    return "\n".join(
        [
            markdown(["topic", "mover", heads[0], "of the first", *heads[1:]], rows),
            "",
            f"*of the first* is CPU beside {first_mover}; KIP-712 says {KIP_BEFORE:.0f} % before and "
            f"{KIP_AFTER:.0f} % after, which is {KIP_AFTER / KIP_BEFORE:.0%}.",
        ]
    )


def chart(runs: Sequence[Run]) -> str:
    """Return the chart: bars of CPU and memory of each mover, and lines of both over time."""
    names = list(dict.fromkeys(run.mover for run in runs))
    panels: list[dict[str, Any]] = [
        {
            "width": 620,
            "height": 34 * len(names) + 20,
            "layer": [
                bar_layer(list(_scaled_cpu(runs)), ("value", "CPU, % of a host"), names, "topic"),
                *rule_layer(
                    {
                        KIP_BEFORE: f"KIP-712, before: {KIP_BEFORE:.0f} %",
                        KIP_AFTER: f"after: {KIP_AFTER:.0f} %",
                    }
                ),
            ],
            "title": _small(f"CPU at the traffic that takes {names[0]} {KIP_BEFORE:.0f} % of a host"),
        }
    ]
    for topic, movers in _by_topic(runs):
        middle = [_middle(own) for own in movers.values()]
        for title, points in (("CPU, cores", _cores), ("memory, MB", _memory)):
            lines = [{"line": run.mover, **point} for run in middle for point in points(run)]
            x = ("at_s", f"seconds since {topic} begins to fill")
            layer = line_layer(lines, x, ("value", title), names)
            panels.append({"width": 620, "height": 150, "layer": [layer]})
    for name in ("GC, ms", "KB a batch", "conversions"):
        rows = [
            {"line": mover, "topic": topic, "value": _median(own, _COLUMNS[name][0])}
            for topic, movers in _by_topic(runs)
            for mover, own in movers.items()
        ]
        layer = bar_layer(rows, ("value", name), names, "topic")
        panels.append({"width": 620, "height": 34 * len(names) + 20, **layer})
    return svg(
        panels, "Before and after: mirrors that decode, and mirrors of whole batches", shared_colours=False
    )


def _small(text: str) -> dict[str, Any]:
    return {"text": text, "anchor": "start", "fontSize": 12, "fontWeight": "normal"}


def _scaled_cpu(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """Yield the bars of CPU, scaled so that the first mover has the KIP's value of MirrorMaker 1."""
    for topic, movers in _by_topic(runs):
        first = median(run.cpu_s_per_gb for run in next(iter(movers.values())))
        for mover, own in movers.items():
            shares = [KIP_BEFORE * run.cpu_s_per_gb / first for run in own]
            yield {
                "line": mover,
                "topic": topic,
                "value": median(shares),
                "least": min(shares),
                "most": max(shares),
            }


def _cores(run: Run) -> Iterator[dict[str, float]]:
    """Yield the busy cores of each half second or longer."""
    kept = [run.samples[0]]
    for sample in run.samples[1:]:
        if sample[0] - kept[-1][0] >= _STEP_S:
            kept.append(sample)
    for before, after in pairwise(kept):
        yield {"at_s": after[0], "value": (after[1] - before[1]) / (after[0] - before[0])}


def _memory(run: Run) -> Iterator[dict[str, float]]:
    for at_s, _, rss in run.samples:
        yield {"at_s": at_s, "value": rss / 1e6}


def _by_topic(runs: Sequence[Run]) -> Iterator[tuple[str, dict[str, list[Run]]]]:
    for topic in dict.fromkeys(run.topic for run in runs):
        movers: dict[str, list[Run]] = {}
        for run in runs:
            if run.topic == topic:
                movers.setdefault(run.mover, []).append(run)
        yield topic, movers


def _middle(runs: Sequence[Run]) -> Run:
    """Return the run with the median CPU."""
    return sorted(runs, key=lambda run: run.cpu_s_per_gb)[len(runs) // 2]


def _median(runs: Sequence[Run], quantity: _Quantity) -> float:
    return median(map(quantity, runs))


def _cell(runs: Sequence[Run], quantity: _Quantity, digits: str) -> str:
    values = [quantity(run) for run in runs]
    least, middle, most = (format(each, digits) for each in (min(values), median(values), max(values)))
    return middle if least == most else f"{middle} ({least} to {most})"

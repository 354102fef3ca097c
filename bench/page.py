"""Make docs/performance.md and its charts from the runs of the bench: ``python -m bench.page``.

A row of the page is from the newest run that has it, so a run of some rows leaves the others as they are.
"""

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.chart import bars, svg
from bench.figures import CPU, FURTHER, RATIO, Figures, shown, table
from bench.report import markdown
from bench.runs import Run, newest, read_runs

__all__ = ["write_page"]

_DOCS = Path(__file__).parents[1] / "docs"
_COST = "performance-cost.svg"
_BEFORE_AFTER = "performance-before-and-after.svg"

_SHAPES = ("b16_lz4", "b256_gzip", "b1024_lz4", "b1_lz4", "tls", "transactions")

#: Percent of a host's CPU, by KIP-712: MirrorMaker 1 unchanged, and with whole batches.
_KIP_BEFORE, _KIP_AFTER = 50.0, 15.0

#: In runs of 2026-11-22 and before.
_RSS = "peak RSS, MB"

#: In runs of 2026-11-30 and before: the CPU of a fixed loop of Python beside a turn.
_YARDSTICK = "yardstick, ms"

#: The quantities of before and after that the chart shows beside the CPU.
_PANELS = (_RSS, "PSS, MB", "GC, ms", "KB a batch", "conversions")

_NATIVE, _PURE = "shoal, native", "shoal, pure Python"
_BY_PARTITION = "native, metrics by partition"


class _Aim(NamedTuple):
    """A bound of a median: at most, or at least if it is a speed."""

    text: str
    row: str
    subject: str
    quantity: str
    bound: float
    is_least: bool = False


_AIMS = (
    _Aim("16 records a batch", "b16_lz4", _NATIVE, CPU, 0.9),
    _Aim("the same in pure Python", "b16_lz4", _PURE, CPU, 2.0),
    _Aim("256 records, gzip", "b256_gzip", _NATIVE, CPU, 0.45),
    _Aim("1,024 records", "b1024_lz4", _NATIVE, CPU, 0.35),
    _Aim("1 record", "b1_lz4", _NATIVE, CPU, 6.0),
    _Aim("memory at work", "b16_lz4", _NATIVE, "PSS, MB", 700),
    _Aim("verify, batches of 9 KB", "verify", "b16_lz4, native", "wire MB/s a core", 1000, is_least=True),
    _Aim("verify, batches of 468 KB", "verify", "b1024_lz4, native", "wire MB/s a core", 2000, is_least=True),
    _Aim("lag at 200 records/s", "lag", _NATIVE, "p99, ms", 6.0),
    _Aim("the longest lag", "lag", _NATIVE, "longest, ms", 100),
    _Aim("the same load", "lag", _NATIVE, "CPU, % of a core", 6.0),
    _Aim("a start", "start", "native", "first batch, s", 7.0),
    _Aim("a start with 10,100 partitions", "many", _BY_PARTITION, "CPU-s until the first batch", 8.0),
    _Aim("10,000 idle partitions", "many", _BY_PARTITION, "idle, % of a core", 5.0),
    _Aim("a scrape of them", "many", _BY_PARTITION, "a scrape, CPU-s", 0.3),
    _Aim("a scrape of their topics", "many", "native, metrics by topic", "a scrape, MB", 2.0),
    _Aim(
        "one partition, its source 80 ms away",
        "far",
        "far source: shoal, native --fetch-buffer-bytes 32m",
        "wire MB/s",
        110,
        is_least=True,
    ),
    _Aim("TLS at the destination", "copy_path", "TLS at the destination, native", RATIO, 2.5),
    _Aim("TLS at both ends", "copy_path", "TLS at both ends, native", RATIO, 3.5),
    _Aim("committed transactions", "copy_path", "committed transactions, native", RATIO, 1.3),
    _Aim("one record, --rebatch 64k", "copy_path", "one record, --rebatch 64k, native", RATIO, 0.25),
    _Aim("one record, --rebatch 64k:lz4", "copy_path", "one record, --rebatch 64k:lz4, native", RATIO, 1.0),
    _Aim("commits before gaps", "gaps", "commits before gaps, native", "source broker, % of a core", 10),
    _Aim("archive of a further GB", "archive", "archive, native", FURTHER, 0.6),
    _Aim("restore of a further GB", "archive", "restore, native", FURTHER, 0.6),
    _Aim("a cut-over", "cutover", "shoal cutover", "after the last record, s", 60),
)

_HEAD = """\
# Performance

The cost of a mirror, and its speed. `make bench` writes this page from the runs in `bench/runs`.

A cost is in CPU-seconds for each GB of uncompressed records, for all processes of a mover, with Spark's JVM.
The movers run in turn: a figure is the median of the turns, with the extremes in parentheses.
A ratio compares two movers in the same turn, and stands as its extremes.
"""


def write_page(rows: Iterable[str], directory: Path = _DOCS) -> None:
    """Write the page and its charts.

    Args:
        rows: The order of the rows; others come last.
        directory: The directory of the page.
    """
    runs = read_runs()
    found = newest(runs)
    names = [name for name in rows if name in found] + [name for name in found if name not in set(rows)]
    parts = [_HEAD, "## Aims", _aims(found), "## Cost of each mover", f"![CPU of each mover]({_COST})"]
    for name in names:
        run, section = found[name], found[name].sections[name]
        left_out = (_YARDSTICK, *_PANELS) if name == "before_after" else (_YARDSTICK,)
        figures = table(_without(section.figures, left_out))
        parts += [f"## {section.title}", f"{run.date}: {section.text}", figures]
        if name == "before_after":
            kip = f"{_KIP_BEFORE:.0f} % of a host's CPU before, and {_KIP_AFTER:.0f} % after"
            parts += [f"KIP-712 reports {kip}.", f"![Before and after]({_BEFORE_AFTER})"]
    parts += ["## The runs", *(f"**{run.date}**, shoal at {run.commit}: {run.conditions}" for run in runs)]
    (directory / "performance.md").write_text("\n\n".join(part.strip() for part in parts) + "\n")
    costs = [found[name].sections[name] for name in _SHAPES if name in found]
    (directory / _COST).write_text(
        _cost_chart({each.title.removeprefix("Cost: "): each.figures for each in costs})
    )
    if "before_after" in found:
        (directory / _BEFORE_AFTER).write_text(
            _before_after_chart(found["before_after"].sections["before_after"].figures)
        )


def _without(figures: Figures, quantities: Collection[str]) -> Figures:
    """Leave out quantities that a chart shows, or that only say whether two runs can be compared."""
    return {
        subject: {name: turns for name, turns in found.items() if name not in quantities}
        for subject, found in figures.items()
    }


def _aims(found: Mapping[str, Run]) -> str:
    rows = []
    for aim in _AIMS:
        figures = found[aim.row].sections[aim.row].figures if aim.row in found else {}
        turns = figures.get(aim.subject, {}).get(aim.quantity, ())
        rows.append((aim.text, _bound(aim), shown(aim.quantity, turns), _verdict(aim, turns)))
    return markdown(("", "aim", "measured", ""), rows)


def _bound(aim: _Aim) -> str:
    return f"{aim.quantity}: at {'least' if aim.is_least else 'most'} {aim.bound:,g}"


def _verdict(aim: _Aim, turns: Sequence[float]) -> str:
    if not turns:
        return "not measured"
    median = statistics.median(turns)
    return "met" if (median >= aim.bound if aim.is_least else median <= aim.bound) else "**missed**"


def _cost_chart(sections: Mapping[str, Figures]) -> str:
    costs = {
        shape: {mover: found[CPU] for mover, found in figures.items()} for shape, figures in sections.items()
    }
    panel = bars(costs, f"{CPU}, logarithmic", logarithmic=True)
    return svg([panel], "CPU of each mover by shape of batches")


def _before_after_chart(figures: Figures) -> str:
    """Return bars of CPU, memory, garbage collection, batch sizes and conversions."""
    by_quantity: dict[str, dict[str, dict[str, Sequence[float]]]] = {}
    for subject, found in figures.items():
        topic, _, mover = subject.partition(": ")
        for quantity, turns in found.items():
            by_quantity.setdefault(quantity, {}).setdefault(mover, {})[topic] = turns
    first = next(iter(by_quantity[CPU].values()))
    # The traffic at which the first mover has the KIP's value of MirrorMaker 1.
    scaled = {
        mover: {
            topic: [_KIP_BEFORE * each / statistics.median(first[topic]) for each in turns]
            for topic, turns in topics.items()
        }
        for mover, topics in by_quantity[CPU].items()
    }
    marks = {_KIP_BEFORE: f"KIP-712, before: {_KIP_BEFORE:.0f} %", _KIP_AFTER: f"after: {_KIP_AFTER:.0f} %"}
    panels = [bars(scaled, "CPU, % of a host", marks=marks)]
    panels += [bars(by_quantity[name], name) for name in _PANELS if name in by_quantity]
    return svg(panels, "Mirrors that decode, and mirrors of whole batches")


if __name__ == "__main__":
    from bench.__main__ import ROWS

    write_page(ROWS)

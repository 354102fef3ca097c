"""The output of a verification: its progress and its result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple

from rich.console import Console, JustifyMethod
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from ..printable import printable
from ..verify import ComparedRange, Outcome, PartitionReport, VerifyProgress, VerifyReport
from .output import say

__all__ = ["DEFAULT_RANGES", "line", "print_report", "progress_to"]

#: Between two plain lines.
_PLAIN_INTERVAL_S = 10.0

_STYLES = {
    Outcome.EQUAL: "green",
    Outcome.DIFFERENT: "red",
    Outcome.NOT_COMPARED: "yellow",
    Outcome.NOTHING: "yellow",
}

#: The number of ranges of a partition that are printed by default.
DEFAULT_RANGES = 5

#: A terminal with fewer columns gets a narrow table.
_NARROW = 80

_COLUMNS: dict[str, JustifyMethod] = {
    "outcome": "left",
    "records": "right",
    "behind": "right",
    "differences": "right",
    "aligned by": "left",
}

_LEFT_OUT_IF_NARROW = {"behind", "aligned by"}

OnProgress = Callable[[VerifyProgress], object]


# At work


@contextmanager
def progress_to(*, as_json: bool) -> Iterator[OnProgress]:
    """Show progress on stderr: a bar on a terminal, a line now and then elsewhere; none with ``--json``."""
    if as_json:
        yield lambda progress: None
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task("comparing", total=1.0)
            yield lambda progress: bar.update(task, completed=progress.fraction, description=line(progress))
    else:
        yield _PlainProgress().show


def _bar() -> Bar:
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f}%"),
        console=Console(stderr=True),
        expand=True,
        transient=True,
    )


class _PlainProgress:
    def __init__(self) -> None:
        self._next_s = _PLAIN_INTERVAL_S

    def show(self, progress: VerifyProgress) -> None:
        if progress.elapsed_s >= self._next_s:
            say(f"{line(progress)}, {progress.fraction:.0%}")
            self._next_s = progress.elapsed_s + _PLAIN_INTERVAL_S


def line(progress: VerifyProgress) -> str:
    """Return progress as ``3/16 partitions, 812,004 records, 113.2 MB/s, 1 difference``."""
    rate = progress.bytes_read / progress.elapsed_s if progress.elapsed_s > 0 else 0.0
    return (
        f"{progress.done}/{progress.partitions} partitions, {progress.records:,} records, "
        f"{rate / 1e6:,.1f} MB/s, {_count(progress.differences, 'difference')}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


# The result


def print_report(
    report: VerifyReport, console: Console | None = None, *, most_ranges: int = DEFAULT_RANGES
) -> None:
    """
    Print a result to stdout: a table and the differences on a terminal, plain lines elsewhere.

    Args:
        console: The console to print to; stdout by default.
        most_ranges: The number of ranges of a partition to print; the others are counted.

    """
    console = console or Console()
    if console.is_terminal:
        console.print(_table(report, is_narrow=console.width < _NARROW))
    for partition in report.partitions:
        if not console.is_terminal:
            _print(console, _summary(partition))
        for detail in _details(partition, most_ranges):
            _print(console, f"{partition.source}: {detail}")
    _print(console, _total(report), style=_STYLES[report.outcome])


def _print(console: Console, text: str, style: str | None = None) -> None:
    # Whole lines: a terminal wraps them by itself, and a pipe has no width.
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def _table(report: VerifyReport, *, is_narrow: bool) -> Table:
    """Make a line of each partition; a narrow one drops columns that the details repeat."""
    headings = [heading for heading in _COLUMNS if not (is_narrow and heading in _LEFT_OUT_IF_NARROW)]
    table = Table(box=None, pad_edge=False)
    table.add_column("partition", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify=_COLUMNS[heading], no_wrap=True)
    for partition in report.partitions:
        cells = dict(zip(_COLUMNS, _cells(partition), strict=True))
        table.add_row(Text(printable(_name(partition))), *(cells[heading] for heading in headings))
    return table


def _cells(partition: PartitionReport) -> Sequence[str]:
    style = _STYLES[partition.verdict]
    behind = partition.not_mirrored
    return (
        f"[{style}]{partition.verdict.value}[/{style}]",
        f"{partition.records:,}",
        f"{behind.end - behind.start:,}" if behind else "",
        f"{len(partition.differences) + partition.differences_omitted:,}",
        partition.alignment.by.value if partition.alignment else "",
    )


def _name(partition: PartitionReport) -> str:
    if partition.source == partition.destination:
        return str(partition.source)
    return f"{partition.source} -> {partition.destination}"


def _summary(partition: PartitionReport) -> str:
    """Return one partition's result as one line."""
    result = f"{_name(partition)}: {partition.verdict.value}"
    if partition.alignment is None:
        return result
    by, source_offset, destination_offset, why = astuple(partition.alignment)
    return (
        f"{result}: {_the_same(partition)}, "
        f"aligned by {by.value}, from source offset {source_offset} and "
        f"destination offset {destination_offset} on: {why}"
    )


def _the_same(report: PartitionReport | VerifyReport) -> str:
    text = f"{report.records:,} records are the same"
    return f"{text} ({report.decoded_records:,} of them decoded)" if report.decoded_records else text


def _details(partition: PartitionReport, most_ranges: int) -> list[str]:
    """Return the details of a partition, one line each."""
    differing = len(partition.differences) + partition.differences_omitted
    not_compared = len(partition.not_compared) + partition.not_compared_omitted
    details = _first(partition.differences, differing, most_ranges, "that differ")
    details += _first(partition.not_compared, not_compared, most_ranges, "that could not be compared")
    if partition.ranges is not None:
        details.append(_compared_ranges(partition.ranges))
    if partition.reason:
        details.append(f"not compared: {partition.reason}")
    details += [str(each) for each in partition.open_transactions]
    behind = "not mirrored yet, or behind the open transaction" if partition.is_held else "not mirrored yet"
    for what, offsets in (
        (f"{behind}: source", partition.not_mirrored),
        ("only in the source, before the comparison begins: source", partition.source_skipped),
        ("only at the destination, before the comparison begins: destination", partition.destination_skipped),
    ):
        if offsets:
            details.append(f"{what} offsets {offsets}")
    return details


def _compared_ranges(ranges: Sequence[ComparedRange]) -> str:
    """Return the ranges of a part: one with its offsets, several by their number and size."""
    if not ranges:
        return "compared only: no range"
    offsets = sum(each.source.end - each.source.start for each in ranges)
    if len(ranges) == 1:
        return f"compared only: source offsets {ranges[0].source}"
    return (
        f"compared only: {len(ranges):,} ranges with {offsets:,} source offsets, from "
        f"{ranges[0].source.start} to {ranges[-1].source.end - 1} (--json lists them)"
    )


def _first(ranges: Sequence[object], count: int, most: int, what: str) -> list[str]:
    """Return the first ranges, and how many more there are."""
    lines = [str(each) for each in ranges[:most]]
    if count <= len(lines):
        return lines
    remedy = " (--all-ranges prints up to 100)" if most < len(ranges) else ""
    return [*lines, f"and {_count(count - len(lines), 'more range')} {what}{remedy}"]


def _total(report: VerifyReport) -> str:
    parts = [_the_same(report)]
    if report.is_empty:
        parts.append("both sides have no record")
    for outcome in (Outcome.DIFFERENT, Outcome.NOT_COMPARED):
        count = sum(partition.outcome is outcome for partition in report.partitions)
        if count:
            parts.append(f"{count:,} of {len(report.partitions):,} partitions {outcome.value}")
    if report.equal:
        parts.append(f"{len(report.partitions):,} partitions")
    if report.extent:
        parts.append(f"compared only {report.extent}")
    if report.group and any(partition.alignment for partition in report.partitions):
        parts.append(f"group {report.group}")
    parts.append(f"{report.bytes_read / 1e6:,.1f} MB read in {report.elapsed_s:.1f} s")
    return f"{report.outcome.value}: {', '.join(parts)}"

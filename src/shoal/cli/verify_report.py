"""The output of a verification: its progress and its result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from ..printable import printable
from ..static_page import Column
from ..verify import Outcome, PartitionReport, VerifyProgress, VerifyReport
from ..verify.tables import TERMINAL_COLUMNS, details, name_of, partitions_table, the_same, total
from .output import say_now_and_then

__all__ = ["DEFAULT_RANGES", "line", "print_report", "progress_to"]

_STYLES = {
    Outcome.EQUAL.value: "green",
    Outcome.DIFFERENT.value: "red",
    Outcome.NOT_COMPARED.value: "yellow",
    Outcome.NOTHING.value: "yellow",
}

#: The number of ranges of a partition that are printed by default.
DEFAULT_RANGES = 5

#: A terminal with fewer columns gets a narrow table.
_NARROW = 80


@contextmanager
def progress_to(*, as_json: bool) -> Iterator[Callable[[VerifyProgress], object]]:
    """Show progress on stderr: a bar on a terminal, a line now and then elsewhere; none with ``--json``."""
    if as_json:
        yield lambda progress: None
        return
    if not sys.stderr.isatty():
        yield say_now_and_then(lambda each: f"{line(each)}, {each.fraction:.0%}", lambda each: each.elapsed_s)
        return
    columns = TextColumn("{task.description}"), BarColumn(None), TextColumn("{task.percentage:>3.0f}%")
    with Progress(*columns, console=Console(stderr=True), expand=True, transient=True) as bar:
        task = bar.add_task("comparing", total=1.0)
        yield lambda progress: bar.update(task, completed=progress.fraction, description=line(progress))


def line(progress: VerifyProgress) -> str:
    """Return progress as ``3/16 partitions, 812,004 records, 113.2 MB/s, 1 difference``."""
    rate = progress.bytes_read / progress.elapsed_s if progress.elapsed_s > 0 else 0.0
    differences = "1 difference" if progress.differences == 1 else f"{progress.differences:,} differences"
    return (
        f"{progress.done}/{progress.partitions} partitions, {progress.records:,} records, "
        f"{rate / 1e6:,.1f} MB/s, {differences}"
    )


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
        narrow, wide = TERMINAL_COLUMNS
        console.print(_table(report, narrow if console.width < _NARROW else wide))
    for partition in report.partitions:
        if not console.is_terminal:
            _print(console, _summary(partition))
        for detail in details(partition, most_ranges):
            _print(console, f"{partition.source}: {detail}")
    outcome = report.outcome.value
    _print(console, f"{outcome}: {total(report)}", style=_STYLES[outcome])


def _print(console: Console, text: str, style: str | None = None) -> None:
    # Whole lines: a terminal wraps them by itself, and a pipe has no width.
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def _table(report: VerifyReport, count: int) -> Table:
    """Return the first columns of the table for a terminal."""
    found, shown = partitions_table(report), Table(box=None, pad_edge=False)
    for name, kind in list(found.columns.items())[:count]:
        side, is_name = "right" if kind is Column.NUMBER else "left", kind is Column.NAME
        shown.add_column(name, justify=side, overflow="fold", no_wrap=not is_name)  # type: ignore[arg-type]
    for row in found.rows:
        shown.add_row(*(Text(printable(cell), _STYLES.get(cell, "")) for cell in row[:count]))
    return shown


def _summary(partition: PartitionReport) -> str:
    """Return one partition's result as one line."""
    result, begin = f"{name_of(partition)}: {partition.verdict.value}", partition.alignment
    if begin is None:
        return result
    return (
        f"{result}: {the_same(partition)}, aligned by {begin.by.value}, from source offset "
        f"{begin.source_offset} and destination offset {begin.destination_offset} on: {begin.why}"
    )

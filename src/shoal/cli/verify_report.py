"""The output of a verification: its progress and its result."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..printable import printable
from ..static_page import Column
from ..verify import Outcome, PartitionReport, VerifyProgress, VerifyReport
from ..verify.tables import TERMINAL_COLUMNS, details, name_of, partitions_table, the_same, total
from .working import Done

__all__ = ["DEFAULT_RANGES", "done_of", "print_report"]

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


def done_of(progress: VerifyProgress) -> Done:
    """Return progress as ``3/16 partitions, 812,004 records, 1 difference``, with the bytes and the share."""
    differences = "1 difference" if progress.differences == 1 else f"{progress.differences:,} differences"
    text = f"{progress.done}/{progress.partitions} partitions, {progress.records:,} records, {differences}"
    return Done(text, progress.bytes_read, progress.fraction)


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
    for row in found.texts():
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

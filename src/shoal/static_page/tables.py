"""Tables of values: reports make them once, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import TypeAlias

from .document import text_in_html

__all__ = ["MOST_ROWS", "Column", "Row", "Table", "section", "table_section"]

#: A browser lays out a table of so many rows at once.
MOST_ROWS = 5_000


class Column(Enum):
    """A kind of column: its class in the style sheet."""

    TEXT = ""
    #: Text that may be longer than its column.
    NAME = "name"
    NUMBER = "number"
    #: A number from 0 to 1.
    PERCENT = "percent"
    #: The same, with a bar beside it on a page.
    SHARE = "share"
    #: Milliseconds since 1970.
    TIME = "time"
    #: A sentence, which gets the rest of the width.
    REASON = "reason"


#: The cells of a row.
Row: TypeAlias = Sequence[str | float | None]


@dataclass(frozen=True, slots=True)
class Table:
    """
    A table.

    Attributes:
        heading: Its heading.
        caption: A sentence about its columns.
        columns: The kinds of its columns by their headings.
        rows: The cells: texts, or values that a column of their kind shows; None for nothing.

    """

    heading: str
    caption: str
    columns: Mapping[str, Column]
    rows: Sequence[Row]

    def texts(self) -> list[list[str]]:
        """Return the cells as texts."""
        kinds = list(self.columns.values())
        return [[_text(kind, cell) for kind, cell in zip(kinds, row, strict=True)] for row in self.rows]


def _text(kind: Column, cell: str | float | None) -> str:
    if cell is None or isinstance(cell, str):
        return cell or ""
    match kind:
        case Column.PERCENT:
            return f"{cell:.0%}"
        case Column.SHARE:
            return f"{cell:.1%}"
        case Column.TIME:
            return _time(cell)
        case _:
            return f"{cell:,}"


def _time(timestamp_ms: float) -> str:
    """Return a time in UTC; nothing for one that is unknown or beyond the calendar."""
    if timestamp_ms < 0:
        return ""
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def table_section(table: Table) -> str:
    """Return a table with its heading as HTML, up to the largest number of rows."""
    kinds = [kind.value for kind in table.columns.values()]
    heads = "".join(
        f'<th scope="col" class="{kind}">{text_in_html(name)}</th>'
        for name, kind in zip(table.columns, kinds, strict=True)
    )
    shown = replace(table, rows=table.rows[:MOST_ROWS]).texts()
    rows = "".join(f"<tr>{_cells(row, kinds)}</tr>" for row in shown)
    caption = table.caption
    if len(table.rows) > MOST_ROWS:
        caption = f"{caption} The first {MOST_ROWS:,} of {len(table.rows):,}. The JSON has all of them."
    return section(
        table.heading,
        f'<div class="scroll long"><table><caption>{text_in_html(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>",
    )


def _cells(row: Sequence[str], kinds: Sequence[str]) -> str:
    return "".join(
        f'<td class="{kind}">{_bar(cell) if kind == Column.SHARE.value else ""}{text_in_html(cell)}</td>'
        for cell, kind in zip(row, kinds, strict=True)
    )


def _bar(share: str) -> str:
    return f'<meter max="100" value="{share.rstrip("%")}"></meter> '


def section(heading: str, content: str, kind: str = "") -> str:
    """Return a section of a page; ``kind`` is a class of the style sheet, such as ``warn``."""
    marked = f' class="{kind}"' if kind else ""
    return f"<section{marked}><h2>{text_in_html(heading)}</h2>{content}</section>"

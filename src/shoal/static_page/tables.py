"""Tables of texts: reports make them once, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from .document import text_in_html

__all__ = ["MOST_ROWS", "Column", "Table", "section", "table_section"]

#: A browser lays out a table of so many rows at once.
MOST_ROWS = 5_000


class Column(Enum):
    """A kind of column: its class in the style sheet."""

    TEXT = ""
    #: Text that may be longer than its column.
    NAME = "name"
    NUMBER = "number"
    #: A sentence, which gets the rest of the width.
    REASON = "reason"


@dataclass(frozen=True, slots=True)
class Table:
    """
    A table.

    Attributes:
        heading: Its heading.
        caption: A sentence about its columns.
        columns: The kinds of its columns by their headings.
        rows: The cells.

    """

    heading: str
    caption: str
    columns: Mapping[str, Column]
    rows: Sequence[Sequence[str]]


def table_section(table: Table) -> str:
    """Return a table with its heading as HTML, up to the largest number of rows."""
    kinds = [kind.value for kind in table.columns.values()]
    heads = "".join(
        f'<th scope="col" class="{kind}">{text_in_html(name)}</th>'
        for name, kind in zip(table.columns, kinds, strict=True)
    )
    rows = "".join(f"<tr>{_cells(row, kinds)}</tr>" for row in table.rows[:MOST_ROWS])
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
        f'<td class="{kind}">{text_in_html(cell)}</td>' for cell, kind in zip(row, kinds, strict=True)
    )


def section(heading: str, content: str, kind: str = "") -> str:
    """Return a section of a page; ``kind`` is a class of the style sheet, such as ``warn``."""
    marked = f' class="{kind}"' if kind else ""
    return f"<section{marked}><h2>{text_in_html(heading)}</h2>{content}</section>"

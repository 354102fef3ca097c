"""Lines of the command line: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ..printable import printable

__all__ = ["first_line", "print_json", "say", "stamp_lines", "table", "warn"]

_stamps = False


def stamp_lines(*, is_service: bool) -> None:
    """
    Set whether lines on stderr begin with the time, up to the line of a final error.

    Lines in the log of a service do. A terminal needs no times, and the systemd journal adds its own.
    """
    global _stamps  # of the process, as stderr is
    _stamps = is_service and not sys.stderr.isatty() and "JOURNAL_STREAM" not in os.environ


def say(sentence: str, program: str = "shoal") -> None:
    """Print one line to stderr: the first one, if an exception that is not ours has several."""
    stamp = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} " if _stamps else ""
    print(f"{stamp}{program}: {first_line(sentence)}", file=sys.stderr, flush=True)


def first_line(text: str) -> str:
    """Return the first line that is not empty, with single spaces and without control characters."""
    return printable(" ".join(text.strip().partition("\n")[0].split()))


def warn(sentence: str) -> None:
    """Print a warning to stderr."""
    say(f"warning: {sentence}")


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object as one line of stdout."""
    print(json.dumps(values), flush=True)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return columns, each as wide as its widest cell."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)

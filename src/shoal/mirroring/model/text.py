"""Sentences for users: the names in them, and each sentence once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

__all__ = ["first_few", "offsets", "once_each", "utc"]


def first_few(names: Sequence[object], *, most: int = 5) -> str:
    """Return ``a, b``, or ``a, b, c, d, e and 3 more`` if there are more names than ``most``."""
    named = ", ".join(map(str, names[:most]))
    return f"{named} and {len(names) - most} more" if len(names) > most else named


def offsets(first: int, last: int, noun: str = "offset") -> str:
    """Return ``offset 7``, or ``offsets 7 to 9`` if there are several; the same of other numbers."""
    return f"{noun} {last}" if first == last else f"{noun}s {first} to {last}"


def utc(at: float) -> str:
    """Return a Unix time as ``2026-11-24 14:58:16 UTC``."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def once_each(warn: Callable[[str], object]) -> Callable[[str], None]:
    """Return a function that hands each sentence on only once: a later look finds the same again."""
    warned: set[str] = set()

    def warn_once(sentence: str) -> None:
        if sentence not in warned:
            warned.add(sentence)
            warn(sentence)

    return warn_once

"""Name things in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["first_few", "offsets"]

#: A sentence has this many names, and the number of the others.
_NAMED = 5


def first_few(names: Sequence[object]) -> str:
    """Return ``a, b``, or ``a, b, c, d, e and 3 more`` if there are many names."""
    named = ", ".join(map(str, names[:_NAMED]))
    return f"{named} and {len(names) - _NAMED} more" if len(names) > _NAMED else named


def offsets(first: int, last: int) -> str:
    """Return ``offset 7``, or ``offsets 7 to 9`` if there are several."""
    return f"offset {last}" if first == last else f"offsets {first} to {last}"

"""How things are named in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["first_few"]

#: So many are named; of the others, how many they are.
_NAMED = 5


def first_few(names: Sequence[object]) -> str:
    """``a, b``; or, where there are many, ``a, b, c, d, e and 3 more``."""
    named = ", ".join(map(str, names[:_NAMED]))
    return f"{named} and {len(names) - _NAMED} more" if len(names) > _NAMED else named

"""Suggest the nearest known name for a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``. Did you mean NAME?`` with the nearest known name, or nothing if none is near."""
    nearest = difflib.get_close_matches(name, list(known), n=1)
    return f". Did you mean {nearest[0]}?" if nearest else ""

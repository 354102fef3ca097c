"""The source of producer ids."""

from __future__ import annotations

import itertools

__all__ = ["ProducerIds"]

_FIRST_ID = 1000


class ProducerIds:
    """The source of producer ids; it returns none twice. Safe to use from several threads."""

    def __init__(self) -> None:
        self._ids = itertools.count(_FIRST_ID)

    def new(self) -> int:
        """Return the next producer id."""
        return next(self._ids)

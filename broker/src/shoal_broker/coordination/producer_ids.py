"""
The source of producer ids.

As in Kafka, ids are taken from the journal in blocks, so that not every id needs a write.
"""

from __future__ import annotations

import threading

from ..storage.journal import Journal

__all__ = ["ProducerIds"]

_FIRST_ID = 1000
_BLOCK = 1000


class ProducerIds:
    """The source of producer ids; it returns none twice."""

    def __init__(self, journal: Journal | None = None) -> None:
        """Continue after the last block of a journal, or begin with the first id."""
        self._journal = journal or Journal()
        self._lock = threading.Lock()
        self._next: int = dict(self._journal.facts("producer_ids")).get((), _FIRST_ID)
        self._block_end = self._next

    def new(self) -> int:
        """Return the next producer id."""
        with self._lock:
            if self._next == self._block_end:
                # The rest of a block is lost when the process ends.
                self._block_end += _BLOCK
                self._journal.put("producer_ids", value=self._block_end)
            self._next += 1
            return self._next - 1

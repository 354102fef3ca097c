"""A partition of the source, and what a reader must see of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Self

from shoal_broker.storage.log import Log
from tests.world import batches
from tests.world.batches import Content
from tests.world.contents import decoded

__all__ = [
    "ABORT",
    "COMMIT",
    "NOW_MS",
    "History",
]

#: So young that no broker forgets its producer; more than one request may be in flight.
NOW_MS = int(time.time() * 1000)


ABORT, COMMIT = 0, 1


class History:
    """The history of a partition of the source, and the records that a reader must see of it.

    Attributes:
        committed: The records that ``read_committed`` shows.
        uncommitted: Those that ``read_uncommitted`` shows.
    """

    def __init__(self, log: Log, base_timestamp: int = NOW_MS) -> None:
        self.log = log
        self.base_timestamp = base_timestamp
        self.committed: list[Content] = []
        self.uncommitted: list[Content] = []
        self.next_offset = log.log_end_offset

    def store(self, batch: bytes | bytearray, *, shown: bool = False) -> None:
        """Append a batch to the log as it is; its base offset must be :attr:`next_offset` or later."""
        self.log.store(memoryview(batch))
        self.next_offset = self.log.log_end_offset
        if shown:
            self.committed += decoded(batch)
            self.uncommitted += decoded(batch)

    def batch(self, count: int = 3, **fields: Any) -> bytearray:
        """Build a batch for the log's end, with unique values."""
        values = [b"value at %d" % (self.next_offset + number) for number in range(count)]
        return batches.batch(
            values, **{"base_offset": self.next_offset, "base_timestamp": self.base_timestamp, **fields}
        )

    def plain(self, *counts: int, **fields: Any) -> Self:
        """Add batches with these numbers of records."""
        for count in counts:
            self.store(self.batch(count, **fields), shown=True)
        return self

    def transaction(self, *counts: int, ends: int, producer_id: int = 77) -> Self:
        """Add the batches of a transaction, and its marker."""
        for count in counts:
            batch = self.batch(count, flags=batches.TRANSACTIONAL, producer_id=producer_id, producer_epoch=0)
            self.store(batch)
            self.uncommitted += decoded(batch)
            if ends == COMMIT:
                self.committed += decoded(batch)
        self.marker(ends, producer_id)
        return self

    def marker(self, kind: int = COMMIT, producer_id: int = 77) -> Self:
        self.store(batches.marker(kind, producer_id, base_offset=self.next_offset))
        return self

    def empty(self, range_size: int = 2) -> Self:
        """Add a batch that compaction left without records."""
        self.store(self.batch(range_size, holes=range(range_size)))
        return self

    def holed(self, count: int, holes: Sequence[int], **fields: Any) -> Self:
        """Add a batch from which compaction removed some records."""
        self.store(self.batch(count, holes=holes, **fields), shown=True)
        return self

    def gap(self, offsets: int) -> Self:
        """Skip offsets, as if compaction removed their whole batches."""
        self.next_offset += offsets
        return self

    def gap_at_the_end(self, offsets: int) -> Self:
        """End the log after a gap: no client can do this, but a compacted and rolled log can."""
        self.next_offset += offsets
        self.log.end_at(self.next_offset)
        return self

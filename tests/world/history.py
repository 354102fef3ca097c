"""A partition of the source: what its producers wrote, and what a reader must see of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from shoal.records import Codec
from shoal_broker.storage.log import Log
from tests.world import batches
from tests.world.batches import Content
from tests.world.contents import content_of_batch

__all__ = ["ABORT", "COMMIT", "NOW_MS", "History", "LedHistory", "Written"]

#: The bytes of a batch's leader epoch, which are not under its CRC.
_LEADER_EPOCH = slice(12, 16)

#: So young that no broker forgets its producer; more than one request may be in flight.
NOW_MS = int(time.time() * 1000)

ABORT, COMMIT = 0, 1


@dataclass(slots=True, eq=False)
class Written:
    """
    A record that a producer wrote, and its fate.

    Attributes:
        offset: Its offset in the log that it was written to.
        is_shown: Whether readers of committed records see it: not while its transaction is open or aborted.
        is_there: Whether the source still has it.
        may_lack: Whether the copy need not have it: it was deleted before it was mirrored, or from the copy.
        was_refused: Whether a mirror named it as refused by the destination, and went on.

    """

    offset: int
    content: Content
    is_shown: bool = True
    is_there: bool = True
    may_lack: bool = False
    was_refused: bool = False


class History:
    """
    The history of a partition of the source.

    The bytes come from :mod:`tests.world.batches`, which shares no code with shoal.

    Attributes:
        records: All records that producers wrote, in their order.
        next_offset: The offset of the next batch.

    """

    def __init__(self, log: Log, base_timestamp: int = NOW_MS) -> None:
        self.log = log
        self.base_timestamp = base_timestamp
        self.records: list[Written] = []
        self.next_offset = log.log_end_offset
        #: The records of each producer's open transaction.
        self._open: dict[int, list[Written]] = {}

    @property
    def committed(self) -> list[Content]:
        """The records that ``read_committed`` shows."""
        return [each.content for each in self.records if each.is_shown]

    @property
    def uncommitted(self) -> list[Content]:
        """The records that ``read_uncommitted`` shows."""
        return [each.content for each in self.records]

    def store(self, batch: bytes | bytearray, *, shown: bool = False) -> None:
        """Append a batch to the log as it is; its base offset must be :attr:`next_offset` or later."""
        self.log.store(memoryview(batch))
        self.next_offset = self.log.log_end_offset
        if shown:
            self._note(content_of_batch(batch))

    def _note(self, placed: Iterable[tuple[int, Content]], *, is_shown: bool = True) -> list[Written]:
        noted = [Written(offset, content, is_shown) for offset, content in placed]
        self.records += noted
        return noted

    def batch(self, records: int | Sequence[bytes] = 3, **fields: Any) -> bytearray:
        """Build a batch for the log's end, of some values or with unique ones."""
        if isinstance(records, int):
            records = [b"value at %d" % (self.next_offset + number) for number in range(records)]
        return batches.batch(
            records, **{"base_offset": self.next_offset, "base_timestamp": self.base_timestamp, **fields}
        )

    def plain(self, *counts: int, **fields: Any) -> Self:
        """Add batches with these numbers of records."""
        for count in counts:
            self.store(self.batch(count, **fields), shown=True)
        return self

    def named(self, name: str, count: int, first: int = 0) -> Self:
        """Add batches of one record each, in the log's leader epoch, whose values are a name and a number."""
        for number in range(first, first + count):
            value = f"{name} {number}".encode()
            self.store(self.batch([value], leader_epoch=self.log.leader_epoch), shown=True)
        return self

    def write(
        self,
        records: Sequence[Content],
        codec: Codec = Codec.NONE,
        *,
        deltas: Sequence[int] | None = None,
        **layout: Any,
    ) -> list[Written]:
        """Add a batch of these records, see :func:`tests.world.batches.encode`."""
        deltas = range(len(records)) if deltas is None else deltas
        places = [self.next_offset + delta for delta in deltas]
        self.store(batches.encode(records, codec, base_offset=self.next_offset, deltas=deltas, **layout))
        return self._note(zip(places, records, strict=True))

    def messages(
        self,
        records: Sequence[Content],
        magic: int,
        codec: Codec = Codec.NONE,
        offsets: Sequence[int] | None = None,
        *,
        is_relative: bool = True,
    ) -> Self:
        """Add messages of magic 0 or 1, or a compressed one that has them; magic 0 keeps no time."""
        offsets = range(self.next_offset, self.next_offset + len(records)) if offsets is None else offsets
        if codec:
            self.store(batches.old_wrapper(records, magic, codec, offsets, is_relative=is_relative))
        else:
            for offset, each in zip(offsets, records, strict=True):
                self.store(batches.old_message(each, magic, offset))
        kept = records if magic else [each._replace(timestamp=-1) for each in records]
        self._note(zip(offsets, kept, strict=True))
        return self

    def transaction(self, *counts: int, ends: int, producer_id: int = 77) -> Self:
        """Add the batches of a transaction, and its marker."""
        for count in counts:
            self.begin(count, producer_id)
        return self.marker(ends, producer_id)

    def begin(self, records: int | Sequence[bytes], producer_id: int = 77) -> Self:
        """Add a batch to a transaction that stays open."""
        batch = self.batch(records, flags=batches.TRANSACTIONAL, producer_id=producer_id, producer_epoch=0)
        self.store(batch)
        noted = self._note(content_of_batch(batch), is_shown=False)
        self._open.setdefault(producer_id, []).extend(noted)
        return self

    def marker(self, kind: int = COMMIT, producer_id: int = 77) -> Self:
        """Add a marker, which ends the producer's open transaction."""
        for each in self._open.pop(producer_id, []):
            each.is_shown = each.is_shown or kind == COMMIT
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


class LedHistory(History):
    """The same, of which each batch has the leader epoch that the log is in."""

    def store(self, batch: bytes | bytearray, *, shown: bool = False) -> None:
        """Append a batch as the present leader does."""
        batch = bytearray(batch)
        if batch[16] == 2:  # messages of older formats have no epoch
            batch[_LEADER_EPOCH] = self.log.leader_epoch.to_bytes(4)
        super().store(batch, shown=shown)

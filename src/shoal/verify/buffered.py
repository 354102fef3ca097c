"""The batches of the last record set, still in the buffer, to decode those that differ."""

from __future__ import annotations

from contextlib import suppress

from ..errors import CorruptBatch
from ..records import RecordBatch, verify_crc
from .damage import split_all
from .digest import Digest

__all__ = ["BufferedBatches"]


class BufferedBatches:
    """
    The batches of a record set in a buffer, by their ends.

    The record set is split once a batch of it is wanted: most are not.

    """

    def __init__(self, record_set: memoryview, *, are_checked: bool = True) -> None:
        self._record_set = record_set
        self._are_checked = are_checked
        self._by_end: dict[int, RecordBatch] | None = None
        self._mended: dict[int, RecordBatch] = {}

    def mend(self, batch: RecordBatch) -> None:
        """Take a batch that was fetched once more for the one in the buffer."""
        self._mended[batch.header.next_offset] = batch

    def find(self, wanted: Digest) -> RecordBatch | None:
        """Return the batch that was summarised, if it is here and not damaged."""
        if self._by_end is None:
            self._by_end = {}
            with suppress(CorruptBatch):
                for each in split_all(self._record_set):
                    self._by_end[each.header.next_offset] = each
            self._by_end |= self._mended
        found = self._by_end.get(wanted.next_offset)
        if found is None or not _is(found, wanted):
            return None
        if not self._are_checked:
            try:
                verify_crc(found)
            except CorruptBatch:
                return None
        return found


def _is(batch: RecordBatch, wanted: Digest) -> bool:
    """Whether a batch is the one that was summarised."""
    return batch.header.next_offset == wanted.next_offset and batch.header.codec_id == wanted.codec_id

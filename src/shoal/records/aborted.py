"""
Which batches belong to an aborted transaction.

A ``read_committed`` Fetch response has all batches, and a list of
``(producer_id, first_offset)`` for the aborted transactions among them.
The rule is the Java consumer's (``CompletedFetch.nextFetchedRecord``).
"""

from __future__ import annotations

import enum
import heapq
import struct
from collections.abc import Iterable

from ..errors import CorruptBatch
from .batch import OFFSET_LIMIT, BatchHeader, Codec, RecordBatch
from .record import read_key_value_headers, read_records

__all__ = ["AbortedTransactions", "Marker", "read_marker"]


class Marker(enum.IntEnum):
    """The type in a control record's key; all other types are ignored."""

    ABORT = 0
    COMMIT = 1


class AbortedTransactions:
    """
    The aborted transactions of one partition in one Fetch response.

    Pass it every batch of magic 2, in order: data to :meth:`covers`, control
    batches to :meth:`see_marker`.

    """

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        """Take ``(producer_id, first_offset)`` pairs in any order."""
        self._upcoming = [(first_offset, producer_id) for producer_id, first_offset in transactions]
        heapq.heapify(self._upcoming)
        self._open: set[int] = set()

    @property
    def none_before(self) -> int:
        """The offset before which no batch that is still to be passed is part of an aborted transaction."""
        if self._open:
            return 0
        return self._upcoming[0][0] if self._upcoming else OFFSET_LIMIT

    def covers(self, header: BatchHeader) -> bool:
        """Whether a data batch is part of an aborted transaction."""
        self._open_up_to(header.last_offset)
        return header.is_transactional and header.producer_id in self._open

    def see_marker(self, batch: RecordBatch) -> None:
        """
        Let a control batch end its producer's transaction.

        A control batch that compaction emptied ends nothing, as in the Java consumer.

        Raises:
            CorruptBatch: The batch has no control record.

        """
        header = batch.header
        self._open_up_to(header.last_offset)
        if header.records_count == 0:
            return
        if header.producer_id in self._open and read_marker(batch) == Marker.ABORT:
            self._open.discard(header.producer_id)

    def _open_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= offset:
            self._open.add(heapq.heappop(self._upcoming)[1])


_KEY = struct.Struct(">hh")


def read_marker(batch: RecordBatch) -> int:
    """
    Return the type of a control batch's one record (:class:`Marker`, or newer).

    Control batches are never compressed: this opens no payload.

    Raises:
        CorruptBatch: The batch is compressed, or its record is none, or has a key of less than four bytes.

    """
    base_offset = batch.header.base_offset
    if batch.header.codec_id != Codec.NONE:
        raise CorruptBatch("a control batch that is compressed", base_offset)
    records = read_records(batch, len(batch.payload))
    key = read_key_value_headers(records[0])[0] if records else None
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch("a control batch without a control record", base_offset)
    return int(_KEY.unpack_from(key)[1])

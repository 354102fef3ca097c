"""
The index of aborted transactions, in the format of Kafka's own ``.txnindex`` (``AbortedTxn``).

=====  ===  ====================================================
 at    len  field, big-endian
=====  ===  ====================================================
   0     2  version: 0
   2     8  producer id
  10     8  first offset of the transaction
  18     8  last offset: that of its abort marker
  26     8  last stable offset behind it
=====  ===  ====================================================

An entry is in the index of the segment that has the marker. A transaction may have its batches in a segment,
and its marker in a later one that is not archived yet. So a segment also lists those (``aborted_later``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..records import RecordBatch
from ..records.aborted import Marker, read_marker

__all__ = ["AbortedEntry", "OpenAborted", "read_index"]

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedEntry(NamedTuple):
    """One entry of the index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        """Return the entry in Kafka's format."""
        return _ENTRY.pack(_VERSION, *self)


def read_index(data: bytes) -> list[AbortedEntry]:
    """
    Read an index.

    Raises:
        ValueError: The index is cut short, or has another version.

    """
    if len(data) % _ENTRY.size:
        raise ValueError(f"{len(data)} bytes are no whole number of entries")
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise ValueError(f"version {version} is unknown")
        entries.append(AbortedEntry(*fields))
    return entries


class OpenAborted:
    """The aborted transactions whose markers are still to come, as Fetch responses list them."""

    def __init__(self) -> None:
        self._open: list[tuple[int, int]] = []

    def learn(self, transactions: Iterable[tuple[int, int]]) -> None:
        """
        Replace them by those of a Fetch response, each ``(producer_id, first_offset)``.

        A response lists all aborted transactions of its range whose marker is not before it.
        """
        self._open = sorted(set(transactions), key=lambda each: each[1])

    def see(self, batch: RecordBatch) -> AbortedEntry | None:
        """Return the entry for a batch that aborts one of them; None for any other batch."""
        header = batch.header
        if not header.is_control or header.records_count == 0:
            return None
        mine = (
            each for each in self._open if each[0] == header.producer_id and each[1] <= header.last_offset
        )
        ended = next(mine, None)
        if ended is None or read_marker(batch) != Marker.ABORT:
            return None
        self._open.remove(ended)
        stable = min([header.next_offset, *(first for _, first in self._open)])
        return AbortedEntry(*ended, header.last_offset, stable)

    def before(self, offset: int) -> Sequence[tuple[int, int]]:
        """Return those that began before an offset."""
        return [each for each in self._open if each[1] < offset]

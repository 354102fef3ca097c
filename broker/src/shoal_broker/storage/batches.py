"""The batches of a log, in the order of their offsets: those from an offset on, or the first since a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from shoal.records import BatchHeader, RecordBatch, read_records

from .validate import MOST_DECOMPRESSED_BYTES, walked

__all__ = ["Batches", "TimestampAndOffset"]

_EMPTY = memoryview(b"")


class TimestampAndOffset(NamedTuple):
    """A record's timestamp and offset, and the leader epoch of its batch; each is -1 if there is none."""

    timestamp: int
    offset: int
    leader_epoch: int = -1


_NONE = TimestampAndOffset(-1, -1)


class Batches:
    """All batches of a log. The log's lock guards them."""

    def __init__(self) -> None:
        self._all: list[RecordBatch] = []

    def __iter__(self) -> Iterator[RecordBatch]:
        return iter(self._all)

    def append(self, batch: RecordBatch) -> None:
        """Append a batch, whose bytes must not change from now on."""
        self._all.append(batch)

    def flip_bit(self, index: int, position: int, bit: int) -> None:
        """Flip one bit of a byte of a batch. The header that was read from it stays."""
        data = bytearray(self._all[index].view)
        data[position] ^= 1 << bit
        self._all[index] = self._all[index]._replace(view=memoryview(data))

    def header_at(self, offset: int) -> BatchHeader | None:
        """Return the header of the batch that holds an offset; None if there is none of magic 2."""
        index = self._index_of(offset)
        header = self._all[index].header if index < len(self._all) else None
        return header if header is not None and header.magic == 2 else None

    def _index_of(self, offset: int) -> int:
        """Return the index of the first batch that ends at an offset or after it."""
        return bisect_left(self._all, offset, key=lambda batch: batch.header.last_offset)

    def read(
        self, offset: int, upper_offset: int, max_bytes: int, *, at_least_one_batch: bool
    ) -> tuple[memoryview, int]:
        """
        Return batches one after the other, and the offset after them.

        Args:
            offset: The first batch is the one that holds it.
            upper_offset: The first batch that is not returned begins here.
            max_bytes: The size limit; it may fall into the middle of a batch (KIP-74).
            at_least_one_batch: Return the first batch whole, however large it is.

        """
        found: list[memoryview] = []
        left = max_bytes
        index = self._index_of(offset)
        while index < len(self._all) and (left > 0 or not found):
            header, view = self._all[index]
            if header.base_offset >= upper_offset:
                break
            if not found and len(view) > left:
                if not at_least_one_batch:
                    break
                left = len(view)
            found.append(view[:left])
            left -= len(view)
            index += 1
        if not found:
            return _EMPTY, offset
        end_offset = self._all[index].header.base_offset if index < len(self._all) else upper_offset
        together = found[0] if len(found) == 1 else memoryview(b"".join(found))
        return together, min(end_offset, upper_offset)

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of all batches of magic 2, in milliseconds; -1 for none."""
        return max((batch.header.max_timestamp for batch in self._all), default=-1)

    def first_record_since(self, timestamp_ms: int, start: int) -> TimestampAndOffset:
        """
        Find the first record with this timestamp or a later one, at an offset or after it.

        Raises:
            ApiError: A batch on the way is damaged, as :func:`~.validate.walked` reports it.

        """
        for batch in self._all[self._index_of(start) :]:
            header = batch.header
            if header.magic != 2:
                found = _first_in_message(batch, timestamp_ms, start)
            elif header.records_count and header.max_timestamp >= timestamp_ms:
                found = _first_in_batch(batch, timestamp_ms, start)
            else:
                found = None  # too old, or compaction emptied it
            if found is not None:
                return found
        return _NONE

    def delete_before(self, offset: int) -> None:
        """Delete the batches that end before an offset."""
        del self._all[: self._index_of(offset)]


def _first_in_message(message: RecordBatch, timestamp_ms: int, start: int) -> TimestampAndOffset | None:
    """
    Search a message of magic 0 or 1. One of magic 0 has no time, and neither has a leader epoch.

    Only a test stores such messages, so they are taken to be intact.

    """
    for record in read_records(message, MOST_DECOMPRESSED_BYTES):
        if record.timestamp >= timestamp_ms and record.offset >= start:
            return TimestampAndOffset(record.timestamp, record.offset)
    return None


def _first_in_batch(batch: RecordBatch, timestamp_ms: int, start: int) -> TimestampAndOffset | None:
    header = batch.header
    # Kafka reads whole records here, and compares no CRC: only damage to their structure shows.
    for record in walked(batch):
        offset = header.base_offset + record.offset_delta
        if record.timestamp >= timestamp_ms and offset >= start:
            return TimestampAndOffset(record.timestamp, offset, header.leader_epoch)
    return None

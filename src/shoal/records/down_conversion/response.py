"""
A record set that is converted while it is sent: Kafka's ``LazyDownConversionRecords`` and its ``Send``.

A response begins with its length, and the size of the converted records is
known only after their conversion. So the response announces the size of the
record set, or that of its converted first batch if it is larger: a client makes
progress with one batch. Converted bytes beyond that are cut off. Missing ones
are filled with the front of a batch whose length is larger. Clients treat both
as a message that the limit of their own request has cut.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...error_codes import ErrorCode
from ...errors import CorruptBatch, NotConvertible, UnsupportedBatch, UnsupportedCompression
from ..aborted import AbortedTransactions
from ..batch import HEADER_SIZE, RecordBatch
from ..compression import DEFAULT_LIMIT_BYTES
from ..decide import Decision
from ..scan import Scan
from .messages import convert

__all__ = ["DEFAULT_CHUNK_BYTES", "ConvertedCounts", "DownConversion"]

#: As in KIP-283; Kafka's implementation has 128 KiB.
DEFAULT_CHUNK_BYTES = 16 * 1024

_OVERFLOW = struct.Struct(">qi")
_OVERFLOW_OFFSET = -1

_Failed = (CorruptBatch, UnsupportedBatch)

#: An old client has no form for these; it gets emptied batches as nothing.
_LEFT_OUT = (Decision.DROP_CONTROL, Decision.DROP_ABORTED)


class ConvertedCounts(NamedTuple):
    """
    The work of a conversion.

    Attributes:
        batches: Converted batches, and messages of magic 0 and 1, wrappers included.
        messages: The records in those; a wrapper of magic 0 or 1 counts as one.
        source_bytes: Their size before.
        converted_bytes: Their size after.

    """

    batches: int = 0
    messages: int = 0
    source_bytes: int = 0
    converted_bytes: int = 0


class DownConversion:
    """
    One partition's record set on its way to a client that reads magic 0 or 1.

    If nothing of the record set has a form in that magic, as with transaction
    markers alone, there are no bytes. A client cannot pass such a place by
    itself: the owner of the log must read on from :attr:`next_offset` for it.
    (Kafka sends twelve bytes of padding instead, and a Java client stops there
    with a RecordTooLargeException.)

    Attributes:
        size: How many bytes :meth:`chunks` gives in all.
        counts: Receives the work with each batch; the owner may set another list. None to count nothing.
        held_bytes: How many converted bytes are in memory here now.

    """

    size: int
    held_bytes = 0

    def __init__(
        self,
        record_set: memoryview,
        *,
        magic: int,
        fetch_offset: int,
        source_bytes: int | None = None,
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        aborted: Sequence[tuple[int, int]] | None = None,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        counts: list[ConvertedCounts] | None = None,
    ) -> None:
        """
        Convert the first batch that has a form in that magic; it is kept until it is sent, or released.

        Args:
            record_set: Batches of any magic, in the order of the log; one that is cut short is the end.
            magic: The newest that the client reads, 0 or 1.
            fetch_offset: The offset of the client's fetch.
            source_bytes: The size to announce; by default that of the record set.
            chunk_bytes: How much of the source is converted at a time: whole
                batches, of which only a single one may be larger.
            aborted: ``(producer_id, first_offset)`` of the transactions whose
                records are left out, as a Fetch response lists them; None
                keeps all records, as Kafka does for a client of that age.
            limit_bytes: The most that a batch may expand to.
            counts: As the attribute.

        Raises:
            NotConvertible: The first batch cannot be converted; its code is
                the answer to the client.

        """
        if magic not in (0, 1):
            raise ValueError(f"magic {magic} is not 0 or 1")
        self.counts = counts
        self._source = record_set
        self._aborted_pairs = aborted
        self._magic = magic
        self._fetch_offset = fetch_offset
        self._chunk_bytes = chunk_bytes
        self._limit_bytes = limit_bytes
        self._begin()
        try:
            self._first = self._convert_chunk(0)
        except _Failed as error:
            raise NotConvertible(_code(error), str(error)) from error
        self.held_bytes = len(self._first)
        announced = len(record_set) if source_bytes is None else source_bytes
        self.size = max(announced, len(self._first)) if self._first else 0

    def _begin(self) -> None:
        aborted = None if self._aborted_pairs is None else AbortedTransactions(self._aborted_pairs)
        self._scan: Scan[RecordBatch] = Scan(self._source, 0, aborted)

    def release(self) -> None:
        """
        Forget the first batch, to convert it again when it is sent.

        So a response of many partitions holds no more than one of them.

        """
        self._first = bytearray()
        self.held_bytes = 0
        self._begin()

    def __len__(self) -> int:
        """Return :attr:`size`."""
        return self.size

    @property
    def next_offset(self) -> int:
        """The offset behind the last batch that was read until now; of none, the one to fetch from."""
        return self._scan.offset or self._fetch_offset

    def chunks(self) -> Iterator[bytearray]:
        """
        Yield the bytes of the record set, once; no more than one chunk of them is alive here.

        A batch that cannot be converted ends the chunks: the client fetches it
        next, and gets the error as its answer.

        The source is not read to its end if the announced size is filled
        before that.
        """
        remaining = self.size
        chunk, self._first = self._first, bytearray()
        if remaining and not chunk:
            chunk = self._convert_what_can_be(0)
        while remaining:
            if not chunk:
                chunk = self._overflow(remaining)
            if len(chunk) > remaining:
                del chunk[remaining:]
            remaining -= len(chunk)
            self.held_bytes = len(chunk)
            yield chunk
            del chunk  # or there would be two for a moment
            self.held_bytes = 0
            chunk = self._convert_what_can_be(self._chunk_bytes) if remaining else bytearray()

    def _convert_what_can_be(self, most_source_bytes: int) -> bytearray:
        try:
            return self._convert_chunk(most_source_bytes)
        except _Failed:
            self._end()
            return bytearray()

    def _convert_chunk(self, most_source_bytes: int) -> bytearray:
        """Convert batches until there is something and the next would be too much; empty at the end."""
        chunk = bytearray()
        try:
            while not chunk and (found := self._take()) is not None:
                source_bytes = 0
                while found is not None:
                    decision, batch = found
                    source_bytes += batch.header.size
                    if decision not in _LEFT_OUT:
                        chunk += self._convert(batch)
                    found = self._take(most_source_bytes - source_bytes)
        except _Failed:
            if not chunk:
                raise
            self._end()
        return chunk

    def _take(self, most_bytes: int | None = None) -> tuple[Decision, RecordBatch] | None:
        """Go past the next batch, and return it, unless it is larger than that, or there is none."""
        if most_bytes is not None and most_bytes <= 0:
            return None
        found = next(iter(self._scan), None)
        if found is None or (most_bytes is not None and found[1].header.size > most_bytes):
            return None
        self._scan.go_past(found[1])
        return found

    def _end(self) -> None:
        """Let there be no more batches."""
        self._scan.position = len(self._source)

    def _convert(self, batch: RecordBatch) -> bytearray | memoryview:
        converted = convert(batch, self._magic, self._fetch_offset, self._limit_bytes)
        messages = batch.header.records_count if batch.header.magic == 2 else 1
        if self.counts is not None:
            self.counts.append(ConvertedCounts(1, messages, batch.header.size, len(converted)))
        return converted

    def _overflow(self, remaining: int) -> bytearray:
        """Return the front of a batch that is longer than what remains (``buildOverflowBatch``)."""
        front = _OVERFLOW.pack(_OVERFLOW_OFFSET, max(remaining + 1, HEADER_SIZE))
        return bytearray(front.ljust(min(remaining, self._chunk_bytes), b"\0"))


def _code(error: CorruptBatch | UnsupportedBatch) -> ErrorCode:
    match error:
        case UnsupportedCompression():
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        case CorruptBatch():
            return ErrorCode.CORRUPT_MESSAGE
        case _:
            return ErrorCode.MESSAGE_TOO_LARGE

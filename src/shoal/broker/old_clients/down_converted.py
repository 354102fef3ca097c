"""
What a client that reads no magic 2 gets of a log: converted while it is sent (KIP-283).

How many bytes that will be is known before: :mod:`shoal.records.down_conversion`
converts the first batch for it. That one is kept for one partition of a
response only; the others convert it again when it is their turn. So a response
has never more than one chunk of converted data in memory, however many
partitions are in it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence

from ...errors import NotConvertible
from ...net.converting import begin, chunks
from ...records.down_conversion import DownConversion
from ..api_error import ApiError
from ..storage.ranges import FileRange

__all__ = ["DownConverted"]


class DownConverted:
    """
    A slice of a log, as messages of magic 0 or 1.

    Its length is announced and exact. Where nothing of the slice has a form
    in that magic, it is 0: then whatever there is comes after :attr:`next_offset`.

    Attributes:
        next_offset: Behind the last batch that was looked at for the length.

    """

    def __init__(
        self,
        source: memoryview | FileRange,
        aborted: Sequence[tuple[int, int]],
        *,
        magic: int,
        fetch_offset: int,
        chunk_bytes: int,
        keep_first: bool,
    ) -> None:
        """
        Find out how long it will be; converts a batch for that.

        Args:
            source: Batches; the last may be cut.
            aborted: ``(producer_id, first_offset)`` of the transactions that
                are left out.
            magic: The newest that the client reads.
            fetch_offset: What it asked for.
            chunk_bytes: How much of the source is converted at a time.
            keep_first: Whether to keep the batch until it is sent.

        Raises:
            ApiError: With the error that the client gets instead.

        """
        try:
            conversion = begin(
                _Batches(source),
                magic=magic,
                fetch_offset=fetch_offset,
                source_bytes=len(source),
                chunk_bytes=chunk_bytes,
                aborted=aborted,
            )
        except NotConvertible as error:
            raise ApiError(error.code, error.reason) from error
        self.next_offset = conversion.next_offset
        if not keep_first:
            conversion.release()
        self._size = conversion.size
        self._conversion: DownConversion | None = conversion

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self._chunks())

    def send_to(self, sock: socket.socket) -> None:
        """
        Convert and send, once, chunk by chunk, as fast as the client takes them.

        Raises:
            OSError: The connection broke.

        """
        for chunk in self._chunks():
            sock.sendall(chunk)
            del chunk  # or it would be there until the next one is

    def _chunks(self) -> Iterator[bytearray]:
        """Return all bytes, and keep nothing of what was read for them while other partitions are sent."""
        conversion, self._conversion = self._conversion, None
        assert conversion is not None, "it is sent once"
        return chunks(conversion)


class _Batches:
    """The batches of a slice, as often as they are asked for."""

    def __init__(self, source: memoryview | FileRange) -> None:
        self._source = source

    def __iter__(self) -> Iterator[memoryview]:
        return self._source.batches() if isinstance(self._source, FileRange) else iter((self._source,))

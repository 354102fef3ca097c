"""
Batches for clients that cannot read magic 2, converted while they are sent (KIP-283).

The size is known before: :mod:`shoal.records.down_conversion` converts the first batch for it. Only one
partition of a response keeps that batch; the others convert it again when they are sent. So a response never
has more than one chunk of converted data in memory, however many partitions it has.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence

from shoal.errors import NotConvertible
from shoal.net.converting import begin, chunks
from shoal.records.down_conversion import DownConversion

from ..api_error import ApiError
from ..storage.ranges import FileRange

__all__ = ["DownConverted"]


class DownConverted:
    """
    A slice of a log, as messages of magic 0 or 1.

    ``len()`` is exact. It is 0 if no batch of the slice has a form in that magic: then batches after
    :attr:`next_offset` may have one.

    Attributes:
        next_offset: The offset after the last batch that was read for the length.

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
        Compute the length, for which a batch is converted.

        Args:
            source: Batches; the last may be cut.
            aborted: ``(producer_id, first_offset)`` of the transactions to skip.
            magic: The newest magic that the client reads.
            fetch_offset: The offset of the request.
            chunk_bytes: The size of the parts that are converted at a time.
            keep_first: Whether to keep the converted batch until it is sent.

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
        Convert and send, once, chunk by chunk, as fast as the client receives.

        Raises:
            OSError: The connection broke.

        """
        for chunk in self._chunks():
            sock.sendall(chunk)
            del chunk  # otherwise it stays until the next one exists

    def _chunks(self) -> Iterator[bytearray]:
        """Return all bytes, and release the first batch, since other partitions are sent later."""
        conversion, self._conversion = self._conversion, None
        assert conversion is not None, "it is sent once"
        return chunks(conversion)


class _Batches:
    """The batches of a slice, which can be read several times."""

    def __init__(self, source: memoryview | FileRange) -> None:
        self._source = source

    def __iter__(self) -> Iterator[memoryview]:
        return self._source.batches() if isinstance(self._source, FileRange) else iter((self._source,))

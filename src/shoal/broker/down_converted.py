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
from collections.abc import Iterable, Sequence

from ..errors import NotConvertible
from ..records.aborted import AbortedTransactions
from ..records.down_conversion import DownConversion
from .file_segment import FileRange
from .refusal import Refused

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
        is_first: bool,
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
            is_first: Whether to keep the batch until it is sent.

        Raises:
            Refused: With the error that the client gets instead.

        """
        self._source = source
        self._aborted = aborted
        self._magic = magic
        self._fetch_offset = fetch_offset
        self._chunk_bytes = chunk_bytes
        try:
            conversion = self._begin()
        except NotConvertible as error:
            raise Refused(error.code, error.reason) from error
        self.next_offset = conversion.next_offset
        self._size = conversion.size
        self._begun = conversion if is_first else None

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self._take().chunks())

    def send_to(self, sock: socket.socket) -> None:
        """
        Convert and send, chunk by chunk, as fast as the client takes them.

        Raises:
            OSError: The connection broke.

        """
        for chunk in self._take().chunks():
            sock.sendall(chunk)

    def _take(self) -> DownConversion:
        begun, self._begun = self._begun, None
        return begun or self._begin()

    def _begin(self) -> DownConversion:
        return DownConversion(
            _batches(self._source),
            magic=self._magic,
            fetch_offset=self._fetch_offset,
            source_bytes=len(self._source),
            chunk_bytes=self._chunk_bytes,
            aborted=AbortedTransactions(self._aborted),
        )


def _batches(source: memoryview | FileRange) -> Iterable[memoryview]:
    return source.batches() if isinstance(source, FileRange) else (source,)

"""
Parts of a log on their way to a socket: views of memory, or ranges of a file.

A file's range is never copied into this process if it can be sent as it is (``sendfile``).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Bytes", "FileRange", "OpenFile"]

Bytes = bytes | bytearray | memoryview

#: A batch's base offset, and its length from there on.
_BATCH_OVERHEAD = struct.Struct(">qi")

#: How much :meth:`FileRange.batches` reads at a time, or one batch that is larger.
_PIECE_BYTES = 16 * 1024


class OpenFile:
    """
    An open file, which is closed once no segment and no range refers to it.

    A deleted segment's ranges stay readable until then.

    """

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


class FileRange:
    """
    Bytes of a file that are on their way to a client.

    ``len()`` is their number, and ``bytes()`` reads them.
    """

    def __init__(self, file: OpenFile, start: int, end: int) -> None:
        self._file = file
        self._start = start
        self._end = end

    def __len__(self) -> int:
        return self._end - self._start

    def __bytes__(self) -> bytes:
        return os.pread(self._file.descriptor, len(self), self._start)

    def batches(self) -> Iterator[memoryview]:
        """
        Read the batches, piece by piece; one that is cut at the end is left out.

        Yields:
            A view of one or more batches, valid until the next is asked for.

        Raises:
            OSError: The file ends before the range does.

        """
        buffer = bytearray(_PIECE_BYTES)
        position = self._start
        while position < self._end:
            piece = memoryview(buffer)[: self._end - position]
            if os.preadv(self._file.descriptor, [piece], position) < len(piece):
                raise OSError(f"a segment ends before {self._end}")
            size = _batch_size(piece, 0)
            if size is None or size > self._end - position:
                return
            if size > len(piece):
                buffer = bytearray(size)
                continue
            whole = 0
            while size is not None and size <= len(piece) - whole:
                whole += size
                size = _batch_size(piece, whole)
            yield piece[:whole]
            position += whole

    def send_to(self, sock: socket.socket) -> None:
        """
        Have the system copy them from the file to the socket (``sendfile``).

        Raises:
            OSError: The connection broke.

        """
        position = self._start
        while position < self._end:
            sent = os.sendfile(sock.fileno(), self._file.descriptor, position, self._end - position)
            if sent == 0:
                raise OSError(f"a segment ends at {position}, not at {self._end}")
            position += sent


def _batch_size(piece: memoryview, position: int) -> int | None:
    """Return what the batch at a position takes; None if its length is not there, or is none."""
    if len(piece) - position < _BATCH_OVERHEAD.size:
        return None
    length: int = _BATCH_OVERHEAD.unpack_from(piece, position)[1]
    return length + _BATCH_OVERHEAD.size if length > 0 else None

"""The interface of directories and their files, and the files of this machine."""

from __future__ import annotations

import errno
import io
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from ..errors import StorageFailed

__all__ = [
    "FileRange",
    "Listed",
    "LocalCopy",
    "Store",
    "StoredFile",
    "open_local",
    "pieces_of",
    "read_whole",
    "spare_cache",
    "storage_failed",
]

_COPY_BYTES = 8 * 1024 * 1024

#: The bytes of a file that may be in the page cache.
_MOST_CACHED_BYTES = 8 * 1024 * 1024

#: The most bytes of a store's files that a process has on its local disk while it reads them.
MOST_COPIED_BYTES = 4 * 1024 * 1024 * 1024


class Listed(NamedTuple):
    """An entry of a directory: its name, whether it is a directory itself, and its size in bytes."""

    name: str
    is_directory: bool
    size: int


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes of a local file that the system sends: this process copies none of them."""

    file: io.FileIO
    position: int
    size: int

    def __len__(self) -> int:
        return self.size

    def send(self, connection: socket.socket) -> None:
        """Send them; raises OSError if the file was cut short."""
        if connection.sendfile(self.file, self.position, self.size) < self.size:
            raise OSError("the file was cut short")
        spare_cache(self.file.fileno(), self.position, self.position + self.size)


class StoredFile(Protocol):
    """
    A file that is read.

    Attributes:
        piece_bytes: How much to read at a time.

    """

    piece_bytes: int

    @property
    def size(self) -> int:
        """Its size in bytes."""

    def part(self, position: int, size: int, room: memoryview) -> memoryview:
        """Return bytes that are sent and not looked at: in the room, or a :class:`FileRange`."""

    def read_into(self, position: int, room: memoryview) -> int:
        """Fill the room with the bytes from a position on; return their number, which is less at the end."""

    def local_copy(self) -> LocalCopy | None:
        """Return an empty local file for its bytes; None if it is local, or the local disk has no room."""

    def close(self) -> None:
        """Close it."""


class Store(Protocol):
    """
    A directory. Paths are relative to it, with slashes, and built by :mod:`.names` alone.

    Each method raises :class:`Disconnected` if a retry may help. It raises :class:`AccessRefused` if the
    store refuses the credentials, and :class:`ConfigError` if there is no such bucket.
    """

    @property
    def url(self) -> str:
        """Its URL or path, for messages."""

    @property
    def is_local(self) -> bool:
        """Whether it is in the file system of this machine."""

    def names(self, path: str) -> list[Listed]:
        """List a directory; one that does not exist has no entries."""

    def open(self, path: str) -> StoredFile:
        """Open a file; raises FileNotFoundError if it does not exist."""

    def write(self, path: str, data: bytes | Path) -> None:
        """Write a file that does not exist: bytes, or a local file, which nothing changes afterwards."""


def read_whole(file: StoredFile) -> bytes:
    """Return all bytes of a small file."""
    room = bytearray(file.size)
    file.read_into(0, memoryview(room))
    return bytes(room)


def pieces_of(data: bytes | Path) -> Iterator[bytes]:
    """Yield bytes, or a local file piece by piece."""
    if not isinstance(data, Path):
        yield data
        return
    with data.open("rb", buffering=0) as file:
        while piece := file.read(_COPY_BYTES):
            yield piece


def spare_cache(descriptor: int, begin: int, end: int) -> None:
    """
    Drop the pages of a file from the page cache from time to time, and have the disk take those that are new.

    An archive is larger than memory, and passes once. Its pages are soon used again for the rest of it: new
    ones would cost more CPU than all else, since a hypervisor may have to find memory for each.

    Args:
        begin: The position from which the file was read or written just now.
        end: The position behind that.

    """
    if sys.platform == "linux" and begin // _MOST_CACHED_BYTES < end // _MOST_CACHED_BYTES:
        os.posix_fadvise(descriptor, 0, end, os.POSIX_FADV_DONTNEED)


def storage_failed(where: str, error: OSError) -> StorageFailed:
    """Return the error of a file that the system cannot read or write for now."""
    remedy = ". Make room on its disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return StorageFailed(where, f"{error.strerror or error}{remedy}")


class _LocalFile:
    piece_bytes = 1024 * 1024

    def __init__(self, file: io.FileIO, where: str) -> None:
        self._where = where
        self._file = file
        self.size = os.fstat(file.fileno()).st_size

    def read_into(self, position: int, room: memoryview) -> int:
        try:
            size = os.preadv(self._file.fileno(), [room], position)
        except OSError as error:
            raise storage_failed(self._where, error) from error
        spare_cache(self._file.fileno(), position, position + size)
        return size

    def part(self, position: int, size: int, room: memoryview) -> memoryview:
        return cast(memoryview, FileRange(self._file, position, size))

    def local_copy(self) -> LocalCopy | None:
        return None

    def close(self) -> None:
        self._file.close()


def open_local(path: Path, where: str) -> StoredFile:
    """Open a file of this machine, which has a name for messages."""
    return _LocalFile(io.FileIO(path), where)


class LocalCopy(_LocalFile):
    """The bytes of a store's file in a local one without a name, which is gone once it is closed."""

    _lock = threading.Lock()
    _copied_bytes = 0

    @classmethod
    def of(cls, size: int, where: str) -> LocalCopy | None:
        """Make one for so many bytes; return None if there is no room for them."""
        with cls._lock:
            if cls._copied_bytes + size > MOST_COPIED_BYTES:
                return None
            cls._copied_bytes += size
        try:
            return cls(tempfile.TemporaryFile(buffering=0), where, size)
        except OSError:
            cls._give_back(size)
            return None

    @classmethod
    def _give_back(cls, size: int) -> None:
        with cls._lock:
            cls._copied_bytes -= size

    def __init__(self, file: io.FileIO, where: str, size: int) -> None:
        """Take an empty file, which is to have so many bytes."""
        super().__init__(file, where)
        self.size = size

    def append(self, piece: memoryview) -> bool:
        """Write the next bytes; return False if the local disk does not take them."""
        try:
            return self._file.write(piece) == len(piece)
        except OSError:
            return False

    def close(self) -> None:
        """Give the room back."""
        if not self._file.closed:
            self._give_back(self.size)
        super().close()

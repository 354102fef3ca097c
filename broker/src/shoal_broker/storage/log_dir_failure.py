"""
A log directory that failed: Kafka's ``LogDirFailureChannel``, for the one directory of a broker.

An I/O error takes the directory offline: its partitions answer KAFKA_STORAGE_ERROR and have no leader in
Metadata, and since there is no other directory the broker stops
(``ReplicaManager.handleLogDirFailure``, ``LogManager``). Kafka does so for every ``IOException``. Here a
full disk or a lack of descriptors is not final: an incomplete write was cut off again, and the next
request may succeed.

A flush that failed is always final. The system drops the pages that it could not write, so the next
``fsync`` succeeds although they are lost. A cut that failed is final, too: the next write would follow an
incomplete one.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

from shoal.error_codes import ErrorCode
from shoal.printable import logger

from ..api_error import ApiError

__all__ = ["CutFailed", "FlushFailed", "LogDirFailure", "flush_data", "flush_directory", "flush_file"]

_log = logger("shoal_broker")

#: Errors of a broken device, network or file system: no later request will succeed.
_FINAL = frozenset(
    {errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.EBADMSG}
    | {number for name in ("EUCLEAN", "EREMOTEIO") if (number := getattr(errno, name, None)) is not None}
)


class FlushFailed(OSError):
    """Written bytes may never reach the disk."""


class CutFailed(OSError):
    """An incomplete write stays at the end of a file."""


def flush_file(descriptor: int) -> None:
    """
    Flush a file to the disk.

    Raises:
        FlushFailed: Its bytes may never reach the disk.

    """
    _flush(os.fsync, descriptor)


def flush_data(descriptor: int) -> None:
    """Flush a file's bytes, but not its times, as :func:`flush_file`."""
    _flush(os.fdatasync, descriptor)


def _flush(flush: Callable[[int], None], descriptor: int) -> None:
    try:
        flush(descriptor)
    except OSError as error:
        raise FlushFailed(error.errno, error.strerror) from error


def flush_directory(path: Path) -> None:
    """Flush the names in a directory, as :func:`flush_file`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        flush_file(descriptor)
    finally:
        os.close(descriptor)


class LogDirFailure:
    """
    The failure of a broker's directory, if it failed. Safe to use from several threads, under any lock.

    Attributes:
        reason: The reason why it is offline, as a sentence; None if it is online.

    """

    def __init__(self, path: Path | None = None) -> None:
        """Begin with a directory that works; None is memory, which does not fail."""
        self.reason: str | None = None
        self._path = path
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    def check(self) -> None:
        """
        Check that the directory is online.

        Raises:
            ApiError: With KAFKA_STORAGE_ERROR.

        """
        if self.reason is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.reason)

    def error_for(self, what: str, error: OSError) -> ApiError:
        """
        Return the ApiError for an I/O error, which may take the directory offline.

        Args:
            what: The file or the log.

        """
        if self._path is not None and (isinstance(error, CutFailed | FlushFailed) or error.errno in _FINAL):
            self._fail(f"log directory {self._path} failed at {what}: {error.strerror}")
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {error.strerror}")

    def when_failed(self, call: Callable[[], None]) -> None:
        """Call a function once the directory fails; it must not wait."""
        self._listeners.append(call)

    def _fail(self, reason: str) -> None:
        with self._lock:
            if self.reason is not None:
                return
            self.reason = reason
        _log.error("%s. Its partitions are offline, and the broker stops", reason)
        for call in self._listeners:
            call()

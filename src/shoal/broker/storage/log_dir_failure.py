"""
A log directory that failed: Kafka's ``LogDirFailureChannel``, for the one directory of a broker.

An input or output error takes the directory off line: its partitions answer KAFKA_STORAGE_ERROR, have no
leader in Metadata, and since there is no other directory the broker stops
(``ReplicaManager.handleLogDirFailure``, ``LogManager``). Kafka does so for every ``IOException``. Here a
full disk or a lack of descriptors is none: what could not be written was cut off again, and the next
request may succeed.

A flush that failed is always final. The system drops the pages that it could not write, so the next
``fsync`` succeeds although they are lost. So is a cut that failed: what would be written next would follow
half of something.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

from ...error_codes import ErrorCode
from ...printable import logger
from ..api_error import ApiError

__all__ = ["CutFailed", "FlushFailed", "LogDirFailure", "flush_data", "flush_directory", "flush_file"]

_log = logger("shoal.broker")

#: The device, the network behind it or the file system is broken; no later request will do better.
_FINAL = frozenset(
    {errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.EBADMSG}
    | {number for name in ("EUCLEAN", "EREMOTEIO") if (number := getattr(errno, name, None)) is not None}
)


class FlushFailed(OSError):
    """What was written may never reach the disk."""


class CutFailed(OSError):
    """The beginning of something that could not be written stays at a file's end."""


def flush_file(descriptor: int) -> None:
    """
    Have a file on the disk itself.

    Raises:
        FlushFailed: It may never be.

    """
    _flush(os.fsync, descriptor)


def flush_data(descriptor: int) -> None:
    """Have a file's bytes on the disk itself, as :func:`flush_file`; not its times."""
    _flush(os.fdatasync, descriptor)


def _flush(flush: Callable[[int], None], descriptor: int) -> None:
    try:
        flush(descriptor)
    except OSError as error:
        raise FlushFailed(error.errno, error.strerror) from error


def flush_directory(path: Path) -> None:
    """Have the names in a directory on the disk itself, as :func:`flush_file`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        flush_file(descriptor)
    finally:
        os.close(descriptor)


class LogDirFailure:
    """
    Whether a broker's directory failed. Safe to use from several threads, under any lock.

    Attributes:
        reason: Why it is off line, as a sentence; None while it is not.

    """

    def __init__(self, path: Path | None = None) -> None:
        """Begin with a directory that works; None is memory, which does not fail."""
        self.reason: str | None = None
        self._path = path
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    def check(self) -> None:
        """
        Refuse what needs the directory, if it is off line.

        Raises:
            ApiError: With KAFKA_STORAGE_ERROR.

        """
        if self.reason is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.reason)

    def refused(self, what: str, error: OSError) -> ApiError:
        """
        Take note of an error, which may take the directory off line, and return the refusal for it.

        Args:
            what: What could not be read or written.
            error: Why.

        """
        if self._path is not None and (isinstance(error, CutFailed | FlushFailed) or error.errno in _FINAL):
            self._fail(f"log directory {self._path} failed at {what}: {error.strerror}")
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {error.strerror}")

    def when_failed(self, call: Callable[[], None]) -> None:
        """Have something called once it fails; it must not wait for anything."""
        self._listeners.append(call)

    def _fail(self, reason: str) -> None:
        with self._lock:
            if self.reason is not None:
                return
            self.reason = reason
        _log.error("%s; its partitions are offline, and the broker stops", reason)
        for call in self._listeners:
            call()

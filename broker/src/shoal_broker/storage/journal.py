"""
The broker's state beside its logs, on disk: topics, settings, group offsets, transactions.

Kafka keeps these in topics of its own (``__cluster_metadata``,
``__consumer_offsets``, ``__transaction_state``). Here is one file of JSON
lines, ``journal.jsonl``, each a fact with its key::

    ["topic", ["orders"], {"id": "…", "partitions": 3, "config": {}}]

If several facts have one key, the last one counts, and ``null`` deletes. Facts are appended; the file is
rewritten when it is opened, and when it has grown large. An incomplete last line was never acknowledged.

Without a directory the journal keeps nothing.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError
from shoal.printable import logger

from .log_dir_failure import CutFailed, FlushFailed, LogDirFailure, flush_directory, flush_file

__all__ = ["Journal"]

_log = logger("shoal_broker")

_NAME = "journal.jsonl"
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC

#: The file is rewritten after so many new bytes, if they are more than the rest.
_LARGE_BYTES = 16 * 1024 * 1024

_Key = tuple[str, ...]


class Journal:
    """Facts by kind and key. Safe to use from several threads."""

    def __init__(self, directory: Path | None = None, failure: LogDirFailure | None = None) -> None:
        """
        Read the journal of a directory, or begin one; None keeps nothing.

        Args:
            directory: The directory of the file.
            failure: Takes the directory offline after an I/O error.

        Raises:
            ConfigError: The file is damaged before its last line.
            OSError: The file cannot be read or created.

        """
        self._failure = failure or LogDirFailure()
        self._lock = threading.Lock()
        self._facts: dict[tuple[str, _Key], Any] = {}
        self._path = directory / _NAME if directory is not None else None
        self._descriptor: int | None = None
        self._added_bytes = self._rewritten_bytes = 0
        # Whether the file's name is flushed to the disk, as the file is.
        self._is_named = True
        if self._path is not None:
            self._fresh_path(self._path).unlink(missing_ok=True)
            is_new = not self._path.exists()
            self._read(self._path)
            if is_new:
                self._rewrite(self._path)
            else:
                self._descriptor = os.open(self._path, _FLAGS)
                self._try_to_rewrite(self._path)

    @staticmethod
    def _fresh_path(path: Path) -> Path:
        return path.with_suffix(".new")

    def _read(self, path: Path) -> None:
        content = path.read_bytes() if path.exists() else b""
        lines = content.split(b"\n")
        if lines[-1]:
            os.truncate(path, len(content) - len(lines[-1]))
        # After the last newline there is nothing, or an incomplete line.
        for number, line in enumerate(lines[:-1], 1):
            try:
                kind, key, value = json.loads(line)
            except ValueError as error:
                raise ConfigError(f"{path}, line {number}: {error}") from error
            self._facts[kind, tuple(key)] = value

    def _try_to_rewrite(self, path: Path) -> None:
        """Rewrite the file. If that fails, keep the old one, and try again when it has grown as much."""
        self._added_bytes = 0
        try:
            self._rewrite(path)
        except OSError as error:
            if isinstance(error, FlushFailed):
                self._failure.error_for(_NAME, error)
            _log.warning("%s: it could not be rewritten, so it keeps growing: %s", path, error.strerror)

    def _rewrite(self, path: Path) -> None:
        """Write a new file and give it the name; the old one stays open and complete until then."""
        facts = {key: value for key, value in self._facts.items() if value is not None}
        fresh = self._fresh_path(path)
        descriptor = os.open(fresh, _FLAGS | os.O_TRUNC, 0o644)
        try:
            for (kind, key), value in facts.items():
                _write_all(descriptor, _line(kind, key, value))
            flush_file(descriptor)
            fresh.replace(path)
        except OSError:
            os.close(descriptor)
            with suppress(OSError):
                fresh.unlink()
            raise
        before, self._descriptor = self._descriptor, descriptor
        if before is not None:
            os.close(before)
        self._facts = facts
        self._added_bytes, self._rewritten_bytes = 0, os.fstat(descriptor).st_size
        self._is_named = False
        try:
            self._flush_name(path)
        except FlushFailed:
            raise
        except OSError as error:  # for example, no descriptor is left
            _log.debug("%s: its name is flushed later: %s", path, error.strerror)

    def _flush_name(self, path: Path) -> None:
        """Flush the file's name: without that, a power cut may bring the former file back."""
        if not self._is_named:
            flush_directory(path.parent)
            self._is_named = True

    def put(self, kind: str, *key: str | int, value: Any) -> None:
        """
        Keep a fact, or with None delete it. It survives the process from now on.

        Raises:
            ApiError: With KAFKA_STORAGE_ERROR, if the disk is full or fails; the journal is unchanged.

        """
        if self._path is None or self._descriptor is None:
            return
        texts = tuple(map(str, key))
        line = _line(kind, texts, value)
        self._failure.check()
        with self._lock:
            try:
                _append(self._descriptor, line)
            except OSError as error:
                raise self._failure.error_for(_NAME, error) from error
            self._facts[kind, texts] = value
            self._added_bytes += len(line)
            if self._added_bytes > max(_LARGE_BYTES, self._rewritten_bytes):
                self._try_to_rewrite(self._path)

    def facts(self, kind: str) -> Iterator[tuple[_Key, Any]]:
        """Yield the facts of a kind with their keys; the parts of a key are text."""
        with self._lock:
            found = [
                (key, value)
                for (each, key), value in self._facts.items()
                if each == kind and value is not None
            ]
        yield from found

    @property
    def is_current(self) -> bool:
        """Whether no other process opened the journal since, which would have rewritten it."""
        if self._path is None or self._descriptor is None:
            return True
        return os.fstat(self._descriptor).st_ino == self._path.stat().st_ino

    def flush(self) -> None:
        """
        Flush the journal to the disk.

        Raises:
            ApiError: With KAFKA_STORAGE_ERROR.

        """
        with self._lock:
            if self._path is None or self._descriptor is None:
                return
            try:
                flush_file(self._descriptor)
                self._flush_name(self._path)
            except OSError as error:
                raise self._failure.error_for(_NAME, error) from error


def _append(descriptor: int, line: bytes) -> None:
    """Write a line or nothing, since the next line would follow an incomplete one."""
    size = os.fstat(descriptor).st_size
    try:
        _write_all(descriptor, line)
    except OSError:
        _cut(descriptor, size)
        raise


def _cut(descriptor: int, size: int) -> None:
    try:
        os.ftruncate(descriptor, size)
    except OSError as error:
        raise CutFailed(error.errno, error.strerror) from error


def _write_all(descriptor: int, line: bytes) -> None:
    left = memoryview(line)
    while left:
        left = left[os.write(descriptor, left) :]


def _line(kind: str, key: _Key, value: Any) -> bytes:
    return json.dumps([kind, key, value], separators=(",", ":")).encode() + b"\n"

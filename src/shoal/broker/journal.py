"""
What a broker knows beside its logs, on disk: topics, settings, group offsets, transactions.

Kafka keeps these in topics of its own (``__cluster_metadata``,
``__consumer_offsets``, ``__transaction_state``). Here is one file of JSON
lines, ``journal.jsonl``, each a fact with its key::

    ["topic", ["orders"], {"id": "…", "partitions": 3, "config": {}}]

Of several with one key the last counts, and ``null`` says that there is none
any more. It grows at its end, and is written anew when it is opened and when
it has grown large. A last line that was cut short by the end of the process
was never acknowledged.

Without a file nothing is kept.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import ConfigError, ErrorCode
from .file_segment import flush_directory
from .refusal import Refused

__all__ = ["Journal"]

_NAME = "journal.jsonl"

#: It is written anew when so many bytes were added, and more than there were before.
_LARGE_BYTES = 16 * 1024 * 1024

_Key = tuple[str, ...]


class Journal:
    """Facts by kind and key. Safe to use from several threads."""

    def __init__(self, directory: Path | None = None) -> None:
        """
        Read the journal of a directory, or begin one; None keeps nothing.

        Raises:
            ConfigError: The file is damaged in its middle.

        """
        self._lock = threading.Lock()
        self._facts: dict[tuple[str, _Key], Any] = {}
        self._path = directory / _NAME if directory is not None else None
        self._descriptor: int | None = None
        self._added_bytes = self._rewritten_bytes = 0
        if self._path is not None:
            self._read(self._path)
            self._rewrite(self._path)

    def _read(self, path: Path) -> None:
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        # Behind the last line there is nothing, or one that was cut short.
        for number, line in enumerate(lines[:-1], 1):
            try:
                kind, key, value = json.loads(line)
            except ValueError as error:
                raise ConfigError(f"{path}, line {number}: {error}") from error
            self._facts[kind, tuple(key)] = value

    def _rewrite(self, path: Path) -> None:
        self._facts = {key: value for key, value in self._facts.items() if value is not None}
        fresh = path.with_suffix(".new")
        with fresh.open("wb") as file:
            for (kind, key), value in self._facts.items():
                file.write(_line(kind, key, value))
            file.flush()
            os.fsync(file.fileno())
            self._added_bytes, self._rewritten_bytes = 0, file.tell()
        fresh.replace(path)
        flush_directory(path.parent)
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def put(self, kind: str, *key: str | int, value: Any) -> None:
        """
        Keep a fact, or with None forget it; it outlives the process from now on.

        Raises:
            Refused: With KAFKA_STORAGE_ERROR: the disk is full, or worse; the journal is as it was.

        """
        if self._path is None or self._descriptor is None:
            return
        texts = tuple(map(str, key))
        line = _line(kind, texts, value)
        with self._lock:
            _append(self._descriptor, line)
            self._facts[kind, texts] = value
            self._added_bytes += len(line)
            if self._added_bytes > max(_LARGE_BYTES, self._rewritten_bytes):
                self._rewrite(self._path)

    def facts(self, kind: str) -> Iterator[tuple[_Key, Any]]:
        """Yield the facts of a kind with their keys, whose parts are text."""
        with self._lock:
            found = [
                (key, value)
                for (each, key), value in self._facts.items()
                if each == kind and value is not None
            ]
        yield from found

    @property
    def is_current(self) -> bool:
        """Whether nobody opened the journal since: that writes it anew."""
        if self._path is None or self._descriptor is None:
            return True
        return os.fstat(self._descriptor).st_ino == self._path.stat().st_ino

    def flush(self) -> None:
        """Have it on the disk itself."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)


def _append(descriptor: int, line: bytes) -> None:
    """Write a line, all of it or nothing: the next one would be glued to a half."""
    size = os.fstat(descriptor).st_size
    left = memoryview(line)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError as error:
        os.ftruncate(descriptor, size)
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{_NAME}: {error}") from error


def _line(kind: str, key: _Key, value: Any) -> bytes:
    return json.dumps([kind, key, value], separators=(",", ":")).encode() + b"\n"

"""The JSON files of an archive: each is one object that names the layout's format."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing

from ..errors import ConfigError, ShoalError
from .names import ARCHIVE_FILE, is_cluster_id, read_timed_file
from .store import Listed, Store

__all__ = [
    "FORMAT",
    "DamagedObject",
    "NoArchive",
    "decode",
    "encode",
    "listed",
    "newest_time",
    "now_ms",
    "read_archive_id",
    "read_json",
    "read_small",
]

#: The number of the layout, in each file of JSON.
FORMAT = 1

#: The largest file of JSON that is read: a description of a topic with all of Kafka's configurations, or of a
#: segment with a hundred thousand aborted transactions.
_LARGEST_BYTES = 4 * 1024 * 1024


class DamagedObject(ShoalError):
    """An object is not what its description says, or what shoal writes."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where = where
        self.reason = reason

    def _text(self) -> str:
        return (
            f"{self.where}: {self.reason}. Nothing of it was used. Put back a version of the object that is "
            "whole, or begin behind it by --start"
        )


class NoArchive(ConfigError):
    """A directory is no archive, or is not there."""

    def __init__(self, store: Store) -> None:
        super().__init__(
            f"{store.url} is no archive: it has no {ARCHIVE_FILE}. Correct the path, or bring the bucket or "
            "the disk back. A mirror with --to writes the first one"
        )


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def encode(values: Mapping[str, object]) -> bytes:
    """Return the file of an object."""
    return (json.dumps({"format": FORMAT, **values}, indent=1) + "\n").encode()


def decode(data: bytes) -> Mapping[str, object]:
    """
    Return the object of a file.

    Raises:
        ValueError: The file is no JSON, or has another format.

    """
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    if not isinstance(values, dict):
        raise ValueError("it is no JSON object")
    if values.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}: another version of shoal wrote it")
    return values


def read_small(store: Store, path: str, most_bytes: int = _LARGEST_BYTES) -> bytes:
    """
    Return a file of an archive.

    Raises:
        DamagedObject: The file has more bytes.
        FileNotFoundError: There is no such file.

    """
    with closing(store.open(path)) as file:
        if file.size > most_bytes:
            raise DamagedObject(
                f"{store.url}/{path}", f"{file.size:,} bytes are more than any that shoal writes"
            )
        return file.read_at(0, file.size)


def read_json(store: Store, path: str, most_bytes: int = _LARGEST_BYTES) -> Mapping[str, object]:
    """
    Return the object of a file of an archive.

    Raises:
        DamagedObject: The file has more bytes, is no JSON, or has another format.
        FileNotFoundError: There is no such file.

    """
    data = read_small(store, path, most_bytes)
    try:
        return decode(data)
    except ValueError as error:
        raise DamagedObject(f"{store.url}/{path}", str(error)) from None


def listed(store: Store, directory: str) -> list[Listed]:
    """
    List a directory of an archive.

    Raises:
        NoArchive: Nothing else is there, either: the bucket was deleted, or the disk is not mounted.

    """
    found = store.names(directory)
    if not found:
        read_archive_id(store)
    return found


def newest_time(store: Store, directory: str, prefix: str = "", by_ms: int | None = None) -> int | None:
    """
    Return the time of the newest of the files of which each change writes another one; None without any.

    Args:
        prefix: The beginning of their names.
        by_ms: Later files do not count.

    """
    found = (read_timed_file(each.name, prefix) for each in listed(store, directory))
    times = [each for each in found if each is not None]
    return max((each for each in times if by_ms is None or each <= by_ms), default=None)


def read_archive_id(store: Store) -> str:
    """
    Return the id of the archive in a directory.

    Raises:
        NoArchive: The file is not there.
        DamagedObject: The file cannot be read, or has no id.

    """
    try:
        found = read_json(store, ARCHIVE_FILE).get("id")
    except FileNotFoundError:
        raise NoArchive(store) from None
    if not isinstance(found, str) or not is_cluster_id(found):
        raise DamagedObject(f"{store.url}/{ARCHIVE_FILE}", "it has no id")
    return found

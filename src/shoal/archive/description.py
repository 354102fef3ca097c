"""The JSON files of an archive: each is one object that names the layout's format."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from ..errors import ConfigError, ShoalError
from ..json_values import read_value, to_json, typed
from .files import Listed, Store, read_whole
from .names import ARCHIVE_FILE, UnsafeName, is_cluster_id, read_timed_file, timed_file

__all__ = [
    "FORMAT",
    "DamagedObject",
    "NoArchive",
    "encode",
    "listed",
    "now_ms",
    "read_archive_id",
    "read_json",
    "read_newest",
    "times",
]

T = TypeVar("T")

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
            "whole. docs/archive.md, 'A damaged object', says how to go on without one"
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


def encode(value: object) -> bytes:
    """Return the file of a dataclass or of a mapping."""
    return (json.dumps({"format": FORMAT, **to_json(value)}, indent=1) + "\n").encode()


def read_json(kind: type[T], store: Store, path: str, most_bytes: int = _LARGEST_BYTES, **known: object) -> T:
    """
    Return a file of an archive as a dataclass.

    Args:
        kind: The dataclass.
        most_bytes: The largest file that is read.
        known: The values of fields that the file's path says.

    Raises:
        DamagedObject: The file has more bytes, is no JSON, has another format, or is no such dataclass.
        FileNotFoundError: There is no such file.

    """
    with closing(store.open(path)) as file:
        where = f"{store.url}/{path}"
        if file.size > most_bytes:
            raise DamagedObject(where, f"{file.size:,} bytes are more than any that shoal writes")
        data = read_whole(file)
    try:
        values = typed(dict, json.loads(data))
        if values["format"] != FORMAT:
            raise ValueError(f"its format is not {FORMAT}: another version of shoal wrote it")
        # No answer can have half a character, which JSON can have.
        json.dumps(values, ensure_ascii=False).encode()
        found: T = read_value(kind, {**values, **known})
        return found
    except KeyError as error:
        raise DamagedObject(where, f"it has no {error}") from None
    except (TypeError, ValueError, RecursionError, UnsafeName) as error:
        raise DamagedObject(where, f"it is not what shoal writes there: {error!s:.200}") from None


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


def times(store: Store, directory: str, prefix: str = "", by_ms: int | None = None) -> list[int]:
    """
    Return the times of the files of which each change writes another one, in their order.

    Args:
        prefix: The beginning of their names.
        by_ms: Later files do not count.

    """
    found = (read_timed_file(each.name, prefix) for each in listed(store, directory))
    return sorted(each for each in found if each is not None and (by_ms is None or each <= by_ms))


def read_newest(
    kind: type[T], store: Store, directory: str, most_bytes: int, by_ms: int | None = None
) -> T | None:
    """Return the newest of such files, as :func:`read_json` does; None without any."""
    found = times(store, directory, by_ms=by_ms)
    return read_json(kind, store, f"{directory}/{timed_file(found[-1])}", most_bytes) if found else None


@dataclass(frozen=True, slots=True)
class _Identity:
    id: str

    def __post_init__(self) -> None:
        if not is_cluster_id(self.id):
            raise ValueError(f"id {self.id!r}")


def read_archive_id(store: Store) -> str:
    """
    Return the id of the archive in a directory.

    Raises:
        NoArchive: The file is not there.
        DamagedObject: The file cannot be read, or has no id.

    """
    try:
        return read_json(_Identity, store, ARCHIVE_FILE).id
    except FileNotFoundError:
        raise NoArchive(store) from None

"""The JSON files of an archive: each is one object that names the layout's format."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing

from ..errors import ShoalError
from .store import Store

__all__ = ["FORMAT", "DamagedObject", "decode", "encode", "now_ms", "read_json", "read_small"]

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
    if not isinstance(values, dict) or values.get("format") != FORMAT:
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

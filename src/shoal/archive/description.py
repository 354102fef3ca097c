"""The JSON files of an archive: each is one object that names the layout's format."""

from __future__ import annotations

import json
from collections.abc import Mapping

__all__ = ["FORMAT", "decode", "encode"]

#: The number of the layout, in each file of JSON.
FORMAT = 1


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

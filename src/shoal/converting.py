"""
Conversions between batches and old messages by turns: as many at the same time as there are cores.

To convert one batch takes two to three times what it expands to, while it lasts, and a thread can be
interrupted in the midst of it: all clients' batches would be expanded at once. Nothing waits for a socket
in there, so nobody waits long for his turn.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager

from .records.down_conversion import DownConversion

__all__ = ["chunks", "turn"]

_TURNS = threading.BoundedSemaphore(os.cpu_count() or 1)


def turn() -> AbstractContextManager[object]:
    """Return what is entered to convert something, or to wait until somebody else has."""
    return _TURNS


def chunks(conversion: DownConversion) -> Iterator[bytearray]:
    """Yield the chunks of a conversion, each converted in a turn of its own."""
    converting = conversion.chunks()
    while True:
        with turn():
            chunk = next(converting, None)
        if chunk is None:
            return
        yield chunk
        del chunk  # or it would be alive while the next one is made

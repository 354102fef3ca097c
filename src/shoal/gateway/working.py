"""
Turns at requests without records: to decode, to translate and to encode them takes CPU.

Each of a request's bytes becomes many as Python's objects. A turn is given away while its thread waits for a
broker, so a slow broker holds up nobody. Large requests have a single turn for all clients, and small ones
others: nobody's small request waits for a large one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ..net.converting import client_of_thread
from ..net.turns import Turns

__all__ = ["LARGE_REQUEST_BYTES", "waiting", "working"]

#: What the compiled decoder of :mod:`..protocol.codec` still gets: such a request takes 0.3 s.
LARGE_REQUEST_BYTES = 64 * 1024

_SMALL = Turns(os.cpu_count() or 1)
_LARGE = Turns(1)

_thread = threading.local()


@contextmanager
def working(request_bytes: int) -> Iterator[None]:
    """Wait for a turn, and work on a request of so many bytes."""
    turns = _LARGE if request_bytes > LARGE_REQUEST_BYTES else _SMALL
    with ExitStack() as turn:
        turn.enter_context(turns.turn(*client_of_thread()))
        _thread.turns, _thread.turn = turns, turn
        try:
            yield
        finally:
            _thread.turns = None


@contextmanager
def waiting() -> Iterator[None]:
    """Wait for a socket without this thread's turn, if it has one, and for another turn afterwards."""
    turns = getattr(_thread, "turns", None)
    if turns is None:
        yield
        return
    _thread.turn.close()
    yield
    _thread.turn.enter_context(turns.turn(*client_of_thread()))

"""
Turns for requests without records and for their answers, which take CPU to decode, translate and encode.

Each of their bytes becomes many bytes of Python objects. A thread returns its turn while it waits for a
broker, so a slow broker does not delay other clients. Large requests and answers have one turn for all
clients. Small ones have turns of their own, and never wait for a large one. The gateway receives a large
answer within that turn, so it holds and decodes one at a time; the broker buffers the others.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from ..net.converting import client_of_thread
from ..net.turns import Turns

__all__ = ["LARGE_BYTES", "LARGE_TURNS", "SMALL_TURNS", "answer_is_large", "waiting", "working"]

#: The largest message for the compiled decoder of :mod:`..protocol.codec`, which needs up to 0.3 s for it.
LARGE_BYTES = 64 * 1024

#: Turns at small and at large messages.
SMALL_TURNS = Turns(os.cpu_count() or 1)
LARGE_TURNS = Turns(1)

_thread = threading.local()


@contextmanager
def working(size_bytes: int, check: Callable[[], object] | None = None) -> Iterator[None]:
    """
    Wait for a turn, and work on a request or an answer.

    Args:
        size_bytes: The size of the request or answer.
        check: Called at intervals during the wait; its error ends the wait.

    """
    turns = LARGE_TURNS if size_bytes > LARGE_BYTES else SMALL_TURNS
    with ExitStack() as turn:
        turn.enter_context(turns.turn(*client_of_thread(), check=check))
        _thread.turns, _thread.turn = turns, turn
        try:
            yield
        finally:
            _thread.turns = None


@contextmanager
def waiting(check: Callable[[], object] | None = None) -> Iterator[None]:
    """
    Return this thread's turn, if it has one, during a wait for a socket, and take another one afterwards.

    Args:
        check: Called at intervals during the wait for that turn; its error ends the wait.

    """
    turns = getattr(_thread, "turns", None)
    if turns is None:
        yield
        return
    _thread.turn.close()
    yield
    _thread.turn.enter_context(_thread.turns.turn(*client_of_thread(), check=check))


def answer_is_large() -> None:
    """Let :func:`waiting` end with the turn for large answers, if this thread takes turns."""
    if getattr(_thread, "turns", None) is not None:
        _thread.turns = LARGE_TURNS

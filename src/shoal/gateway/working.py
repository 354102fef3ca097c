"""
Turns at requests without records and at their answers: to decode, to translate and to encode them takes CPU.

Each of their bytes becomes many as Python's objects. A turn is given away while its thread waits for a
broker to answer, so a slow broker holds up nobody. Large requests and answers have a single turn for all
clients, and small ones others: nobody's small request waits for a large one. A large answer is received
within that turn, so one is held and decoded at a time; until then it is the broker's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from ..net.converting import client_of_thread
from ..net.turns import Turns

__all__ = ["LARGE_BYTES", "answer_is_large", "waiting", "working"]

#: What the compiled decoder of :mod:`..protocol.codec` still gets: such a request takes 0.3 s.
LARGE_BYTES = 64 * 1024

_SMALL = Turns(os.cpu_count() or 1)
_LARGE = Turns(1)

_thread = threading.local()


@contextmanager
def working(size_bytes: int, check: Callable[[], object] | None = None) -> Iterator[None]:
    """
    Wait for a turn, and work on a request or an answer.

    Args:
        size_bytes: How large it is.
        check: Called now and then during the wait; an error of it ends the wait.

    """
    turns = _LARGE if size_bytes > LARGE_BYTES else _SMALL
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
    Wait for a socket without this thread's turn, if it has one, and for another turn afterwards.

    Args:
        check: Called now and then during the wait for that turn; an error of it ends the wait.

    """
    turns = getattr(_thread, "turns", None)
    if turns is None:
        yield
        return
    _thread.turn.close()
    yield
    _thread.turn.enter_context(_thread.turns.turn(*client_of_thread(), check=check))


def answer_is_large() -> None:
    """Take the large ones' turn from the end of :func:`waiting` on, if this thread takes turns."""
    if getattr(_thread, "turns", None) is not None:
        _thread.turns = _LARGE

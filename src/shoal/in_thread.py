"""A call in a thread of its own, for what has no timeout: a name server, or a server that drips bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["in_thread"]

T = TypeVar("T")


def in_thread(name: str, call: Callable[[], T]) -> Future[T]:
    """Begin a call; its thread is left to itself if it takes longer than the caller waits."""
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(call())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return found

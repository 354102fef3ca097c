"""
The objects that this process downloads, or reads from a disk, against their digests.

That may take longer than any client waits. So a thread does it, and a client that needs the object asks again
and again, perhaps over another connection. It joins a download that is under way. A download ends a minute
after the last client has asked, and an object that no client has taken is closed then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from typing import Any, Generic, Protocol, TypeVar

from ..errors import BeingDownloaded, StorageFailed

__all__ = ["MOST_AT_ONCE", "UNASKED_S", "begin", "take", "wait_for_any"]

#: More wait for their turn: each has two pieces of an object in memory.
MOST_AT_ONCE = 4

#: A client that still wants an object asks more often, also if it has to connect again.
UNASKED_S = 60.0


class _Closable(Protocol):
    def close(self) -> None:
        """Close it."""


T = TypeVar("T", bound=_Closable)


class _Download(Generic[T]):
    def __init__(self, where: str) -> None:
        self._where = where
        self.began_at = self.asked_at = time.monotonic()
        self.result: Future[T] = Future()
        self.is_taken = threading.Event()

    @property
    def _wanted_for_s(self) -> float:
        return self.asked_at + UNASKED_S - time.monotonic()

    def _check(self) -> None:
        if self._wanted_for_s < 0:
            raise StorageFailed(self._where, "no client has asked for it lately")

    def run(self, read: Callable[[Callable[[], None]], T]) -> None:
        """Read it, and keep it until it is taken, or not wanted any more."""
        try:
            self.result.set_result(read(self._check))
        except BaseException as error:
            self.result.set_exception(error)
        while not self.is_taken.wait(max(0.0, self._wanted_for_s)):
            with _lock:
                if self._wanted_for_s > 0 or _known.get(self._where) is not self:
                    continue
                del _known[self._where]
            if self.result.exception() is None:
                self.result.result().close()
            return


_lock = threading.RLock()
#: By the URL of the object.
_known: dict[str, _Download[Any]] = {}


def begin(where: str, read: Callable[[Callable[[], None]], T]) -> BeingDownloaded | None:
    """
    Begin to read an object, unless that is under way.

    Args:
        where: The URL of the object.
        read: Reads it in a thread, and often calls what it is given, which ends it once no client asks.

    Returns:
        None if it has ended; else the error for the client.

    """
    with _lock:
        now, found = time.monotonic(), _known.get(where)
        if found is None:
            others = [each.began_at for each in _known.values() if not each.result.done()]
            if len(others) >= MOST_AT_ONCE:
                return BeingDownloaded(where, "it is downloaded after others", now - min(others))
            found = _Download(where)
            threading.Thread(target=found.run, args=(read,), name="shoal-download", daemon=True).start()
            _known[where] = found  # not before: without its thread, nothing would end it
        found.asked_at = now
        if found.result.done():
            return None
    return BeingDownloaded(where, "it is being downloaded", now - found.began_at)


def take(where: str, read: Callable[[Callable[[], None]], T]) -> T:
    """
    Return what was read; the next one who asks begins again.

    Raises:
        BeingDownloaded: The reading has not ended. Ask again.
        ShoalError: The reading raised it.

    """
    with _lock:
        if (pending := begin(where, read)) is not None:
            raise pending
        found: _Download[T] = _known.pop(where)
    found.is_taken.set()
    return found.result.result()


def wait_for_any(where: Iterable[str], seconds: float) -> None:
    """Wait until the reading of one of some objects has ended, or one of them can begin."""
    with _lock:
        awaited = [_known[each].result for each in where if each in _known]
        under_way = [each.result for each in _known.values() if not each.result.done()]
    wait(awaited or under_way, max(0.0, seconds), "FIRST_COMPLETED")

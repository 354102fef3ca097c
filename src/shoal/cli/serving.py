"""Signals, files and memory of the verbs that serve until a signal."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["HeldSignals", "allow_many_files", "give_freed_memory_back", "signals_held"]

_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM})

#: Settings of glibc's allocator: the environment variable, the parameter (malloc.h) and the value. By
#: default, once an allocation of up to 32 MiB was freed, the next one of that size comes from a thread's
#: arena. There are eight arenas for each core, and they keep freed memory.
_MALLOC = (
    ("MALLOC_MMAP_THRESHOLD_", -3, 1 << 20),
    ("MALLOC_TRIM_THRESHOLD_", -1, 1 << 20),
    ("MALLOC_ARENA_MAX", -8, 2),
)


def allow_many_files() -> None:
    """Raise the limit of open files, such as connections, above the usual 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def give_freed_memory_back() -> None:
    """
    Let glibc return large allocations to the system when they are freed. Without glibc, do nothing.

    Environment variables of mallopt(3) win.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for variable, parameter, value in _MALLOC:
        if mallopt is not None and variable not in os.environ:
            mallopt(parameter, value)


class HeldSignals:
    """SIGINT and SIGTERM, which interrupt nothing until :meth:`wait`. Used by the main thread."""

    def __init__(self) -> None:
        self._came = False
        self._news = threading.Semaphore(0)
        threading.Thread(target=self._watch, name="shoal-signals", daemon=True).start()

    def _watch(self) -> None:
        signal.sigwait(_SIGNALS)
        self._came = True
        self._news.release()

    def wait(self) -> None:
        """Wait for a signal."""
        if not self._came:
            self._news.acquire()

    def begin(self, call: Callable[[], object]) -> bool:
        """
        Call a function that may wait for long, and return whether it ended before a signal.

        The function runs in another thread. If a signal comes first, the thread continues, since nothing
        interrupts a ``connect`` or a name lookup. The caller then stops what the function began, and exits.

        Raises:
            BaseException: The function's own error.

        """
        raised: list[BaseException] = []

        def run() -> None:
            try:
                call()
            except BaseException as error:
                raised.append(error)
            finally:
                self._news.release()

        threading.Thread(target=run, name="shoal-start", daemon=True).start()
        self._news.acquire()
        if self._came:
            return False
        if raised:
            raise raised[0]
        return True


@contextmanager
def signals_held() -> Iterator[HeldSignals]:
    """Block SIGINT and SIGTERM in this thread, and in threads that start meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield HeldSignals()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

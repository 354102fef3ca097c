"""What the verbs share that listen until a signal comes."""

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

#: Settings of glibc's allocator: by the environment variable, the parameter (malloc.h) and the value. With
#: its defaults an allocation of up to 32 MiB comes from an arena of its thread, of which there are eight for
#: each core, as soon as one of that size has been freed, and arenas keep what is freed in them.
_MALLOC = (
    ("MALLOC_MMAP_THRESHOLD_", -3, 1 << 20),
    ("MALLOC_TRIM_THRESHOLD_", -1, 1 << 20),
    ("MALLOC_ARENA_MAX", -8, 2),
)


def allow_many_files() -> None:
    """Segments are open files, and so are connections: the usual 1,024 would not go far."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def give_freed_memory_back() -> None:
    """
    Let glibc return large allocations to the system when they are freed; elsewhere this does nothing.

    Environment variables of mallopt(3) that are set win.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for variable, parameter, value in _MALLOC:
        if mallopt is not None and variable not in os.environ:
            mallopt(parameter, value)


class HeldSignals:
    """SIGINT and SIGTERM, seen only where they are waited for; by the main thread."""

    def __init__(self) -> None:
        self._came = False
        self._news = threading.Semaphore(0)
        threading.Thread(target=self._watch, name="shoal-signals", daemon=True).start()

    def _watch(self) -> None:
        signal.sigwait(_SIGNALS)
        self._came = True
        self._news.release()

    def wait(self) -> None:
        """Wait until one comes, or :meth:`wake` is called."""
        if not self._came:
            self._news.acquire()

    def wake(self) -> None:
        """Have :meth:`wait` return without a signal."""
        self._news.release()

    def begin(self, call: Callable[[], object]) -> bool:
        """
        Call what may wait for long, and return whether it had ended before a signal came.

        It is called in another thread, and where a signal came it is left there, since nothing ends a
        ``connect`` or the look-up of a name: what it began is to be stopped then, and the process to end.

        Raises:
            BaseException: What it raises.

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
    """Hold SIGINT and SIGTERM back, also in threads that are started meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield HeldSignals()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

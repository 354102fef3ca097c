"""The most memory meanwhile: what Python allocates, by tracemalloc, or what the process has."""

import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rig.process import forget_peak_rss_of, peak_rss_of

__all__ = ["peak_below", "peak_bytes", "rss_grows_below"]


def peak_bytes(run: Callable[[], object]) -> int:
    """Return the most bytes that a call has allocated at a time."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@contextmanager
def peak_below(limit: int) -> Iterator[None]:
    """Check that fewer bytes are allocated at a time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


@contextmanager
def rss_grows_below(limit: int) -> Iterator[None]:
    """Check that the process has never so many bytes more than now, whatever it had before."""
    forget_peak_rss_of(os.getpid())
    before = peak_rss_of(os.getpid())
    yield
    assert peak_rss_of(os.getpid()) - before < limit

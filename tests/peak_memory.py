"""The most memory that Python allocates meanwhile, by tracemalloc."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["peak_below", "peak_bytes"]


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

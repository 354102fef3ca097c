"""The number of inputs of the fuzz tests, and the limits of an input's cost.

In the normal suite each test draws some dozens of inputs, always the same ones, so that a failure always
belongs to the current change. The nights draw 2,000 new ones. If you want to search for new
ones: ``SHOAL_FUZZ_EXAMPLES=20000 pytest tests/fuzz``.
"""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import HealthCheck, settings

__all__ = ["bounded", "effort", "number_of_inputs"]

_SEARCH = "SHOAL_FUZZ_EXAMPLES"

#: Python's objects for the smallest elements on the wire: 200 bytes and more for a byte or two.
_BYTES_FOR_EACH = 600
#: The decoder of a message's version is compiled at its first use. A false count would take gigabytes.
_BYTES_ANYHOW = 16 * 1024 * 1024


def effort(examples: int) -> settings:
    """Return settings for this many examples in the normal suite; a search replaces the number."""
    return settings(
        max_examples=number_of_inputs(examples),
        derandomize=_SEARCH not in os.environ,
        deadline=None,
        # All examples share a broker: its survival is the point.
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.filter_too_much,
        ],
    )


def number_of_inputs(usual: int) -> int:
    """Return the usual number of inputs, or the number of a search."""
    return int(os.environ.get(_SEARCH, usual))


@contextmanager
def bounded(size: int, *, more_bytes: int = 0) -> Iterator[None]:
    """Check the memory of reading an input; a loop over a false count takes minutes, which no test has.

    Args:
        size: Size of the input, in bytes.
        more_bytes: Additional memory that may be allocated, if a limit was given.
    """
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= size * _BYTES_FOR_EACH + _BYTES_ANYHOW + more_bytes, f"{peak} bytes for {size}"

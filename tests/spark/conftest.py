"""The fixtures of the tests of Spark."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def failed_starts() -> Iterator[None]:
    """
    Collect what a JVM that did not start left.

    PySpark's ``launch_gateway`` drops its Popen object then, and with it an open pipe. Python warns of it
    whenever it is collected, which would be in any later test.
    """
    yield
    gc.collect()

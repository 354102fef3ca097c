"""No long waits."""

from collections.abc import Iterator

import pytest

from tests.world.retries import quick_retries as retrying_quickly


@pytest.fixture
def quick_retries() -> Iterator[None]:
    """Let partitions and fetches wait for milliseconds instead of seconds."""
    with retrying_quickly():
        yield

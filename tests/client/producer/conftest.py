"""The brokers of the raw producer's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal_broker import Broker


@pytest.fixture
def generous() -> Iterator[Broker]:
    """A broker that takes several batches of a partition in a request."""
    with Broker(config={"shoal.multi.batch.produce": "true"}) as running:
        running.create_topic("topic", 2)
        yield running

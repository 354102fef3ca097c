"""The broker that the behaviour tests talk to: ours; any other Kafka would do as well."""

from collections.abc import Iterator

import pytest

from shoal.broker import Broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def broker_address(broker: Broker) -> str:
    """All that a behaviour test may know of the broker."""
    return broker.bootstrap

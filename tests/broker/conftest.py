"""
The embedded broker, for tests that look into it.

Tests that know nothing but the protocol are in ``tests/conformance``: they run against any Kafka.
"""

from collections.abc import Iterator

import pytest

from shoal_broker import Broker
from tests.broker.new_topic import new_topic, topic, unique
from tests.broker.wire import Wire
from tests.world.clocks import Ahead

__all__ = ["new_topic", "topic", "unique"]


@pytest.fixture(scope="session")
def broker_clock() -> Ahead:
    """The clock that ends the embedded broker's sessions, rebalances and transactions."""
    return Ahead()


@pytest.fixture(scope="session")
def session_broker(broker_clock: Ahead) -> Iterator[Broker]:
    with Broker(clock=broker_clock) as running:
        yield running


@pytest.fixture
def broker(session_broker: Broker) -> Iterator[Broker]:
    yield session_broker
    session_broker.faults.clear()


@pytest.fixture
def wire(session_broker: Broker) -> Iterator[Wire]:
    with Wire(session_broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def creator(wire: Wire) -> Wire:
    """The connection that creates topics."""
    return wire

"""
The broker that the behaviour tests talk to.

Tests that ask for ``broker_address`` (or ``wire`` and ``new_topic``, which
build on it) know nothing but the protocol. They run unchanged against any
Kafka: ``SHOAL_TEST_BROKER=HOST:PORT pytest tests/broker``. Tests that ask for
``broker`` look into the embedded one.
"""

import itertools
import os
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests.broker.wire import PATIENCE_S, Wire
from tests.clocks import Ahead

_UNIQUE = uuid.uuid4().hex[:8]
_numbers = itertools.count()

NewTopic = Callable[..., str]


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
    """The embedded broker, to look into; it is the one behind ``broker_address``."""
    if "SHOAL_TEST_BROKER" in os.environ:
        pytest.skip("looks into the embedded broker")
    yield session_broker
    session_broker.faults.clear()


@pytest.fixture
def pass_by(broker_clock: Ahead) -> Callable[[float], None]:
    """Let seconds be over at the embedded broker; those of a real one pass while the test waits."""
    return broker_clock.pass_by


@pytest.fixture
def broker_address(session_broker: Broker) -> str:
    """All that a behaviour test may know of the broker."""
    return os.environ.get("SHOAL_TEST_BROKER", session_broker.bootstrap)


@pytest.fixture
def wire(broker_address: str) -> Iterator[Wire]:
    with Wire(broker_address) as connected:
        yield connected


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A name that nothing else has."""
    return f"{_UNIQUE}-{next(_numbers)}"


@pytest.fixture
def new_topic(wire: Wire) -> NewTopic:
    """Create a topic with a name of its own: ``new_topic(partitions, retention_ms="-1")``."""

    def create(partitions: int = 1, **config: str) -> str:
        return create_and_await(wire, f"topic-{_UNIQUE}-{next(_numbers)}", partitions, **config)

    return create


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic()


def create_and_await(wire: Wire, name: str, partitions: int = 1, **config: str) -> str:
    """Create a topic, and wait until it can be used; a real cluster takes a moment."""
    # The test batches are old, and a real broker would delete them after a while.
    created = wire.create_topic(name, partitions, **{"retention_ms": "-1", **config})
    assert created.error_code == ErrorCode.NONE, created
    deadline = time.monotonic() + PATIENCE_S
    while any(wire.list_offset(name, -1, partition=each).error_code for each in range(partitions)):
        assert time.monotonic() < deadline, f"{name} has no leaders"
    return name


@pytest.fixture
def api_versions(wire: Wire) -> dict[int, tuple[int, int]]:
    response = wire.call(ApiKey.API_VERSIONS, 3, client_software_name="test", client_software_version="1")
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}

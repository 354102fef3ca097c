"""Embedded brokers, a gateway before them, and clients on raw sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from shoal_broker import BrokerCluster
from tests.broker.wire import Wire
from tests.gateway.behind import Behind, gateway_before


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(3) as running:
        yield running


@pytest.fixture(scope="module")
def _behind(cluster: BrokerCluster) -> Iterator[Behind]:
    with gateway_before(cluster) as running:
        yield running


@pytest.fixture
def behind(_behind: Behind) -> Iterator[Behind]:
    yield _behind
    for node in _behind.cluster.nodes:
        node.faults.clear()


@pytest.fixture
def topic(behind: Behind) -> str:
    return behind.new_topic()


@pytest.fixture
def wire(behind: Behind, topic: str) -> Iterator[Wire]:
    """A client of the leader of ``topic``, by way of the gateway."""
    with Wire(behind.address(topic)) as connected:
        yield connected


@pytest.fixture
def connect() -> Iterator[Callable[[str], Wire]]:
    """Connect as often as a test likes."""
    with ExitStack() as stack:
        yield lambda address: stack.enter_context(Wire(address))

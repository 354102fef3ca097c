"""Embedded brokers of Kafka 4's versions, a gateway before them, and clients on raw sockets."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest
from aiokafka.record import MemoryRecords  # type: ignore[import-untyped]
from broker.wire import PATIENCE_S, Wire

from shoal.broker import BrokerCluster
from shoal.client.config import ClientConfig
from shoal.gateway import Gateway, GatewaySettings
from shoal.protocol.apis import ApiKey

_numbers = itertools.count()


class Behind(NamedTuple):
    """A gateway and the cluster behind it."""

    gateway: Gateway
    cluster: BrokerCluster

    def address(self, topic: str | None = None, partition: int = 0) -> str:
        """Where a client connects to: to bootstrap, or for a partition's leader."""
        if topic is None:
            return str(self.gateway.bootstrap)
        return str(self.gateway.brokers[self.cluster.leader_of(topic, partition)])

    def direct(self, topic: str, partition: int = 0) -> str:
        """Where the leader itself is."""
        return str(self.cluster.node(self.cluster.leader_of(topic, partition)).bootstrap)

    def new_topic(self, partitions: int = 1, **config: str) -> str:
        name = f"topic-{next(_numbers)}"
        named = {key.replace("_", "."): value for key, value in config.items()}
        self.cluster.create_topic(name, partitions, {"retention.ms": "-1", **named})
        return name


Start = Callable[..., Gateway]


def upstream(cluster: BrokerCluster, **properties: str) -> ClientConfig:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return ClientConfig.from_properties("upstream", {"bootstrap.servers": cluster.bootstrap, **named})[0]


@contextmanager
def gateway_before(
    cluster: BrokerCluster, config: ClientConfig | None = None, **settings: Any
) -> Iterator[Behind]:
    """Run a gateway on free ports."""
    with Gateway(GatewaySettings("127.0.0.1", 0, config or upstream(cluster), **settings)) as running:
        yield Behind(running, cluster)


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


class Message(NamedTuple):
    """What a client of another make reads from a record set."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None


def messages(record_set: memoryview | bytes) -> list[Message]:
    """Read a record set by aiokafka, and see that each message in it is an old one."""
    found = []
    records = MemoryRecords(bytes(record_set))
    while records.has_next():
        batch = records.next_batch()
        assert type(batch).__name__.lstrip("_").startswith("LegacyRecordBatch")
        found += [Message(each.offset, each.timestamp, each.key, each.value) for each in batch]
    return found


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def served(wire: Wire) -> dict[int, tuple[int, int]]:
    """Return what ApiVersions announces."""
    answer = wire.call(ApiKey.API_VERSIONS, 0)
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

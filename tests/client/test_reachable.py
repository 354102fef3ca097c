"""A cluster that advertises unreachable addresses: the error names the address and its server."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.client.reachable import check_advertised
from shoal.errors import Disconnected, Unreachable
from shoal.net.address import Address
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests.world.clusters import config_of
from tests.world.faults import answers

UNKNOWN = Address("kafka-internal.invalid", 65092)

HERE = socket.gethostname()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        started.create_topic("topic", 1)
        yield started


@pytest.fixture
def refusing() -> Iterator[Address]:
    with socket.socket() as bound:
        # No broker of another test of this process was reached at this host: such an address has no remedy.
        bound.bind(("127.0.0.77", 0))  # and not listened at
        yield Address(*bound.getsockname())


@pytest.fixture
def silent() -> Iterator[Address]:
    """An address that drops SYNs: its backlog is full."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = Address(*listening.getsockname())
        waiting = []
        for _ in range(3):
            each = socket.socket()
            each.setblocking(False)
            each.connect_ex(address)
            waiting.append(each)
        yield address
        for each in waiting:
            each.close()


def advertise(broker: Broker, *addresses: Address, also_itself: bool = False) -> None:
    """Let a broker advertise other addresses, the first of them as its own unless it is also there."""

    def advertising(response: Any) -> Any:
        (here,) = response.brokers
        others = [
            type(here)(node_id=here.node_id + also_itself + number, host=host, port=port, rack=None)
            for number, (host, port) in enumerate(addresses)
        ]
        response.brokers[:] = [here, *others] if also_itself else others
        return response

    answers(broker, ApiKey.METADATA, advertising, math.inf)


def failing(broker: Broker) -> str:
    with Cluster(config_of("source", broker)) as cluster, pytest.raises(Unreachable) as raised:
        check_advertised(cluster, patience_s=1.0)
    return str(raised.value)


def test_unresolvable_advertised_name_is_reported_with_its_server(broker: Broker) -> None:
    advertise(broker, UNKNOWN)
    sentence = failing(broker)
    assert all(each in sentence for each in (str(UNKNOWN), "'kafka-internal.invalid'", HERE))
    assert all(each in sentence for each in (broker.bootstrap, "advertised.listeners", HERE, "/etc/hosts"))


def test_refusing_advertised_address_is_reported_with_its_server(broker: Broker, refusing: Address) -> None:
    advertise(broker, refusing)
    parameters = (f"{refusing}:", f"Server {broker.bootstrap}", "source", "advertised.listeners", HERE)
    reason = failing(broker)
    assert all(each in reason for each in parameters)


def test_silent_advertised_address_is_reported_with_its_server(broker: Broker, silent: Address) -> None:
    advertise(broker, silent)
    assert broker.bootstrap in failing(broker)


def test_unreachable_brokers_beside_a_reachable_one_are_warnings(broker: Broker, refusing: Address) -> None:
    advertise(broker, UNKNOWN, refusing, also_itself=True)
    with Cluster(config_of("destination", broker)) as cluster:
        warnings = check_advertised(cluster)
    assert [each.partition(": ")[0] for each in warnings] == [
        f"no connection to {UNKNOWN}",
        f"no connection to {refusing}",
    ]
    assert all(broker.bootstrap in each for each in warnings)


def test_check_of_an_unresolvable_bootstrap_server_raises(refusing: Address) -> None:
    with Cluster(ClientConfig("source", (UNKNOWN,))) as cluster, pytest.raises(Unreachable) as raised:
        check_advertised(cluster)
    assert all(each in str(raised.value) for each in ("connection", str(UNKNOWN)))
    with Cluster(ClientConfig("source", (refusing,))) as cluster:
        assert check_advertised(cluster) == []
        with pytest.raises(Disconnected) as refused:
            cluster.refresh()
    assert all(each in str(refused.value) for each in ("connection", str(refusing)))


@pytest.mark.parametrize("connect", [Cluster.connection, Cluster.connect])
def test_request_to_an_unreachable_address_names_the_advertising_server(
    broker: Broker, connect: Callable[[Cluster, int], object]
) -> None:
    advertise(broker, UNKNOWN)
    with Cluster(config_of("source", broker)) as cluster:
        cluster.refresh()
        with pytest.raises(Unreachable, match=f"{broker.bootstrap}"):
            connect(cluster, broker.node_id)


def test_broker_reached_before_is_not_reported_as_misadvertised(broker: Broker) -> None:
    with Broker() as bootstrap:
        with Broker() as second:
            there = Address(second.host, second.port)
            advertise(bootstrap, there, also_itself=True)
            with Cluster(config_of("source", bootstrap)) as cluster:
                cluster.refresh()
                cluster.connection(bootstrap.node_id + 1)
        with Cluster(config_of("source", bootstrap)) as cluster:
            cluster.refresh()
            with pytest.raises(Unreachable) as raised:
                cluster.connection(bootstrap.node_id + 1)
    assert all(each in str(raised.value) for each in (str(there), "Connection"))

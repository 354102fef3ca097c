"""Java clients of old versions log in at a cluster, through the gateway.

Java 0.10.2.2 supports SaslHandshake v0 and sends tokens without headers, 1.0.2 sends them in requests
(KIP-152), and 2.8.2 can log in again (KIP-368). The cluster is the embedded broker behind listeners that ask
for a login; test_gateway_logins has a real one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rig import Record
from rig.load import FIRST_TIMESTAMP
from rig.locked import PASSWORDS, jaas
from rig.old_clients import OLD_CLIENTS, OldClientFailed
from shoal.client.config import ClientConfig
from shoal.gateway import Gateway, GatewaySettings
from shoal_broker import Broker
from tests.login_front import locked_cluster

RECORDS = [(0, Record(b"key", b"value %d" % number, (), FIRST_TIMESTAMP + number)) for number in range(20)]

CLIENTS = {
    each.name: each for each in OLD_CLIENTS if each.name in {"Java 0.10.2.2", "Java 1.0.2", "Java 2.8.2"}
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(broker: Broker) -> Iterator[Gateway]:
    with locked_cluster(str(broker.bootstrap), PASSWORDS) as locked:
        config = ClientConfig.from_properties("upstream", {"bootstrap.servers": locked.bootstrap})[0]
        with Gateway(GatewaySettings("127.0.0.1", 0, config, pass_through=True)) as running:
            yield running


def login(mechanism: str, password: str | None = None) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(mechanism, "alice", password),
    }


# SCRAM of clients before 1.0 runs only on Java 8 (KAFKA-4501).
@pytest.mark.parametrize(
    ("name", "mechanism"),
    [("Java 0.10.2.2", "PLAIN"), ("Java 1.0.2", "SCRAM-SHA-512"), ("Java 2.8.2", "SCRAM-SHA-256")],
)
def test_old_java_client_logs_in_writes_and_reads(
    broker: Broker, gateway: Gateway, topic: str, name: str, mechanism: str
) -> None:
    client = CLIENTS[name]
    broker.create_topic(topic, 1, {"retention.ms": "-1"})
    address = str(gateway.bootstrap)
    client.produce(address, topic, RECORDS, login(mechanism))
    read = client.read(address, topic, partitions=1, records=len(RECORDS), settings=login(mechanism))
    assert [each.value for each in read[0]] == [record.value for _, record in RECORDS]


def test_wrong_password_is_named_by_the_java_client(gateway: Gateway, topic: str) -> None:
    chosen = {**login("SCRAM-SHA-512", "wrong"), "max.block.ms": "10000"}
    with pytest.raises(OldClientFailed, match=r"SASL.*SCRAM-SHA-512"):
        CLIENTS["Java 2.8.2"].produce(str(gateway.bootstrap), topic, RECORDS[:1], chosen)

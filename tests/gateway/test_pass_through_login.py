"""Logins that the gateway passes on to the brokers."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.error_codes import ErrorCode
from shoal.errors import AccessRefused
from shoal.gateway import Gateway, GatewaySettings
from shoal.protocol.apis import ApiKey
from shoal_broker import BrokerCluster
from tests.broker.wire import Wire, framed
from tests.gateway.behind import Behind, free_ports, served, wait_until
from tests.login_front import MECHANISMS, LockedCluster, locked_cluster

Connect = Callable[[str], Wire]

USERS = {"alice": "alice=secret, 7c1e", "bob": "bob-secret"}
SECONDS = 30


@pytest.fixture(scope="module")
def locked(cluster: BrokerCluster) -> Iterator[LockedCluster]:
    with locked_cluster(cluster.bootstrap, USERS) as running:
        yield running


def settings(locked: LockedCluster, **changed: Any) -> GatewaySettings:
    config = ClientConfig.from_properties("upstream", {"bootstrap.servers": locked.bootstrap})[0]
    return GatewaySettings(
        **{"host": "127.0.0.1", "port": 0, "upstream": config, "pass_through": True, **changed}
    )


@pytest.fixture(scope="module")
def passing(locked: LockedCluster, cluster: BrokerCluster) -> Iterator[Behind]:
    with Gateway(settings(locked)) as running:
        yield Behind(running, cluster)


# Bytes


def handshake(version: int, mechanism: str) -> bytes:
    return framed(
        struct.pack(">hhih", 17, version, 7, -1) + struct.pack(">h", len(mechanism)) + mechanism.encode()
    )


def authenticate(version: int, token: bytes) -> bytes:
    if version < 2:
        return framed(struct.pack(">hhih", 36, version, 8, -1) + framed(token))
    # Flexible: no tagged fields in the header, the token's length plus one as a varint, no tagged fields.
    assert len(token) < 127
    return framed(struct.pack(">hhihb", 36, version, 8, -1, 0) + bytes([len(token) + 1]) + token + b"\0")


#: Error 0, and three mechanisms.
SHAKEN = b"\0\0\0\7" + b"\0\0" + b"\0\0\0\3" + b"\0\5PLAIN" + b"\0\rSCRAM-SHA-256" + b"\0\rSCRAM-SHA-512"
PLAIN_TOKEN = b"\0bob\0bob-secret"


def test_token_without_header_is_forwarded_as_a_request(passing: Behind, connect: Connect) -> None:
    wire = connect(passing.address())
    wire.send_bytes(handshake(0, "PLAIN"))
    assert wire.receive_frame() == SHAKEN
    wire.send_bytes(framed(PLAIN_TOKEN))
    assert wire.receive_frame() == b""
    assert len(wire.call(ApiKey.METADATA, 0, topics=[]).brokers) == 3


@pytest.mark.parametrize("version", [0, 1, 2])
def test_login_in_requests_is_forwarded(passing: Behind, connect: Connect, version: int) -> None:
    wire = connect(passing.address())
    assert served(wire)[ApiKey.SASL_AUTHENTICATE] == (0, 2)
    wire.send_bytes(handshake(1, "PLAIN"))
    assert wire.receive_frame() == SHAKEN
    wire.send_bytes(authenticate(version, PLAIN_TOKEN))
    frame = wire.receive_frame()
    assert frame is not None
    assert frame[:6] == b"\0\0\0\x08\0\0" or frame[:7] == b"\0\0\0\x08\0\0\0"
    assert wire.call(ApiKey.METADATA, 0, topics=[]).brokers


def test_refusal_of_the_broker_reaches_the_client(passing: Behind, connect: Connect) -> None:
    wire = connect(passing.address())
    assert wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == ErrorCode.NONE
    answer = wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0bob\0wrong")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "username or password" in answer.error_message
    assert wire.receive_frame() is None


def test_refused_token_without_header_closes_the_connection(passing: Behind, connect: Connect) -> None:
    wire = connect(passing.address())
    wire.send_bytes(handshake(0, "PLAIN") + framed(b"\0bob\0wrong"))
    assert wire.receive_frame() == SHAKEN
    assert wire.receive_frame() is None


@pytest.mark.parametrize("version", [0, 1])
def test_mechanism_unknown_to_the_cluster_is_answered_with_33(
    passing: Behind, connect: Connect, version: int
) -> None:
    wire = connect(passing.address())
    answer = wire.call(ApiKey.SASL_HANDSHAKE, version, mechanism="GSSAPI")
    assert (answer.error_code, answer.mechanisms) == (33, list(MECHANISMS))
    assert wire.receive_frame() is None


def test_request_before_login_closes_the_connection(passing: Behind, connect: Connect) -> None:
    wire = connect(passing.address())
    wire.send(ApiKey.METADATA, 0, topics=[])
    assert wire.receive_frame() is None
    half = connect(passing.address())
    half.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
    half.call(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=b"n,,n=bob,r=mine")
    half.send(ApiKey.METADATA, 0, topics=[])
    assert half.receive_frame() is None


def test_gateway_without_login_listens_for_the_given_broker_ids(
    locked: LockedCluster, passing: Behind, cluster: BrokerCluster, connect: Connect
) -> None:
    node_ids = sorted(locked.node_ids)
    port = free_ports(2 + node_ids[-1])
    chosen = settings(locked, port=port, broker_ids=frozenset(node_ids))
    topics = {cluster.leader_of(topic, 0): topic for topic in (passing.new_topic() for _ in range(6))}
    with Gateway(chosen) as running:
        assert sorted(running.brokers) == node_ids
        for node_id, topic in topics.items():
            address = f"127.0.0.1:{port + 1 + node_id}"
            for is_learned in (False, True) if node_id == next(iter(topics)) else (True,):
                wire = connect(address)
                wire.send_bytes(handshake(0, "PLAIN") + framed(PLAIN_TOKEN))
                assert [wire.receive_frame(), wire.receive_frame()] == [SHAKEN, b""]
                if not is_learned:  # it was another broker's connection
                    assert wire.receive_frame() is None
                else:
                    assert wire.fetch(topic, version=1).error_code == ErrorCode.NONE


def test_clients_before_their_broker_s_address_is_known_reach_it_later(
    locked: LockedCluster, connect: Connect
) -> None:
    node_id = min(locked.node_ids)
    with Gateway(settings(locked, broker_ids=frozenset({node_id}))) as running:
        wires = [connect(str(running.brokers[node_id])) for _ in range(2)]
        for wire in wires:
            assert served(wire)  # it has a connection to some broker now
        for wire in wires:
            wire.send_bytes(handshake(0, "PLAIN") + framed(PLAIN_TOKEN))
            assert [wire.receive_frame(), wire.receive_frame()] == [SHAKEN, b""]
            assert wire.receive_frame() is None


def test_token_beyond_the_limit_closes_the_connection(passing: Behind, connect: Connect) -> None:
    for sent in (
        handshake(0, "PLAIN") + struct.pack(">i", 512 * 1024 + 1),
        handshake(1, "PLAIN") + struct.pack(">ihhih", 512 * 1024 + 1, 36, 0, 8, -1),
    ):
        wire = connect(passing.address())
        wire.send_bytes(sent)
        assert wire.receive_frame() == SHAKEN
        assert wire.receive_frame() is None


def test_refused_login_is_a_warning_with_the_client_s_address(
    locked: LockedCluster, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with Gateway(settings(locked)) as running:
        wire = connect(str(running.bootstrap))
        wire.send_bytes(handshake(0, "PLAIN") + framed(b"\0bob\0wrong"))
        assert wire.receive_frame() == SHAKEN
        assert wire.receive_frame() is None
        wait_until(lambda: running.connections == 0, "its thread ends")
    assert re.search(r"127\.0\.0\.1.*Authentication", caplog.text)


def test_connections_without_login_yield_to_clients(locked: LockedCluster, connect: Connect) -> None:
    with Gateway(settings(locked, most_connections=3)) as running:
        strangers = [connect(str(running.bootstrap)) for _ in range(6)]
        wires = [connect(str(running.bootstrap)) for _ in range(3)]
        for wire in wires:
            wire.send_bytes(handshake(0, "PLAIN") + framed(PLAIN_TOKEN))
            assert [wire.receive_frame(), wire.receive_frame()] == [SHAKEN, b""]
            assert wire.call(ApiKey.METADATA, 0, topics=[]).brokers  # its login is over
        for wire in strangers:
            assert wire.receive_frame() is None
        assert connect(str(running.bootstrap)).receive_frame() is None
        for wire in wires:
            assert wire.call(ApiKey.METADATA, 0, topics=[]).brokers


# Our own client


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_own_client_logs_in_at_the_cluster(passing: Behind, mechanism: str) -> None:
    def config(password: str) -> ClientConfig:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        properties = {
            "bootstrap.servers": passing.address(),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required "
            f'username="alice" password="{password}";',
        }
        return ClientConfig.from_properties("gateway", properties)[0]

    with Cluster(config(USERS["alice"])) as cluster:
        assert len(cluster.refresh([]).brokers) == 3
    with (
        pytest.raises(AccessRefused, match=r"login.*'alice'") as refused,
        Cluster(config("wrong")) as cluster,
    ):
        cluster.refresh([])
    assert refused.value.is_login

"""Logins of the gateway's own: literal bytes, and clients of other makes."""

from __future__ import annotations

import base64
import itertools
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.error_codes import ErrorCode
from shoal.errors import AccessRefused
from shoal.gateway import MECHANISMS, UserFile, make_entry
from shoal.protocol.apis import ApiKey
from shoal_broker import BrokerCluster
from tests.broker.wire import PATIENCE_S, Wire, framed
from tests.gateway.behind import Behind, gateway_before, wait_until
from tests.gateway.foreign_logins import (
    USERS,
    kafka_python_sends_and_reads,
    librdkafka_is_told_of_a_wrong_password,
    librdkafka_sends_and_reads,
)
from tests.gateway.test_users import PENCIL, written

Connect = Callable[[str], Wire]


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> UserFile:
    entries = [make_entry(name, password) for name, password in USERS.items()]
    path = written(
        tmp_path_factory.mktemp("users"), "\n".join([*entries, f'[user]\nSCRAM-SHA-256 = "{PENCIL}"\n'])
    )
    return UserFile(path)


@pytest.fixture(scope="module")
def _asking(cluster: BrokerCluster, users: UserFile) -> Iterator[Behind]:
    with gateway_before(cluster, users=users, mechanisms=MECHANISMS) as running:
        yield running


@pytest.fixture
def asking(_asking: Behind) -> Behind:
    return _asking


# Bytes

_CORRELATION_IDS = itertools.count(100)


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


def test_handshake_v0_reads_tokens_without_header(asking: Behind, connect: Connect) -> None:
    wire = connect(asking.address())
    wire.send_bytes(handshake(0, "PLAIN"))
    assert wire.receive_frame() == SHAKEN
    wire.send_bytes(framed(PLAIN_TOKEN))
    assert wire.receive_frame() == b""
    assert wire.call(ApiKey.METADATA, 0, topics=[]).brokers


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        (0, b"\0\0\0\x08" + b"\0\0" + b"\xff\xff" + b"\0\0\0\0"),
        (1, b"\0\0\0\x08" + b"\0\0" + b"\xff\xff" + b"\0\0\0\0" + b"\0" * 8),
        (2, b"\0\0\0\x08\0" + b"\0\0" + b"\0" + b"\1" + b"\0" * 8 + b"\0"),
    ],
)
def test_handshake_v1_reads_tokens_in_requests(
    asking: Behind, connect: Connect, version: int, answer: bytes
) -> None:
    wire = connect(asking.address())
    wire.send_bytes(handshake(1, "PLAIN"))
    assert wire.receive_frame() == SHAKEN
    wire.send_bytes(authenticate(version, b"bob" + PLAIN_TOKEN))
    assert wire.receive_frame() == answer
    assert wire.call(ApiKey.METADATA, 0, topics=[]).brokers


def test_example_of_rfc_7677_logs_in(
    asking: Behind, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scramp.core.token_hex", lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    wire = connect(asking.address())
    wire.send_bytes(handshake(0, "SCRAM-SHA-256"))
    assert wire.receive_frame() == SHAKEN
    wire.send_bytes(framed(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"))
    nonce = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert wire.receive_frame() == nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    wire.send_bytes(framed(b"c=biws," + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="))
    assert wire.receive_frame() == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert wire.call(ApiKey.METADATA, 0, topics=[]).brokers


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        (b"\0bob\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0mallory\0bob-secret", "Authentication failed: Invalid username or password"),
        (b"alice\0bob\0bob-secret", "Client requested an authorization id that is different from username"),
        (b"bob", "Invalid SASL/PLAIN response"),
        (b"\0\xff\0bob-secret", "the token is not in UTF-8"),
        (b"", "Invalid SASL/PLAIN response"),
    ],
)
def test_wrong_plain_token_is_answered_with_58_after_a_delay(
    asking: Behind, connect: Connect, token: bytes, sentence: str
) -> None:
    wire = connect(asking.address())
    assert wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == ErrorCode.NONE
    before = time.monotonic()
    answer = wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token)
    assert time.monotonic() - before >= 0.1
    assert (answer.error_code, answer.auth_bytes) == (58, b"")
    assert sentence in answer.error_message
    assert wire.receive_frame() is None


def test_wrong_token_without_header_closes_the_connection_with_a_warning(
    cluster: BrokerCluster, users: UserFile, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with gateway_before(cluster, users=users, mechanisms=MECHANISMS) as behind:
        wire = connect(behind.address())
        wire.send_bytes(handshake(0, "PLAIN") + framed(b"\0bob\0wrong"))
        assert wire.receive_frame() == SHAKEN
        assert wire.receive_frame() is None
        wait_until(lambda: behind.gateway.connections == 0, "its thread ends")
    assert re.search(r"127\.0\.0\.1.*Authentication", caplog.text)


@pytest.mark.parametrize("name", ["bob", "mallory"])
def test_scram_of_unknown_user_proceeds_as_with_a_wrong_password(
    asking: Behind, connect: Connect, name: str
) -> None:
    wire = connect(asking.address())
    assert wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-512").error_code == ErrorCode.NONE
    first = wire.call(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=f"n,,n={name},r=mine".encode())
    assert first.error_code == ErrorCode.NONE
    nonce, salt, iterations = first.auth_bytes.split(b",")
    assert nonce.startswith(b"r=mine")
    assert len(base64.b64decode(salt[2:])) == 32
    assert iterations == b"i=8192"
    proof = b"c=biws," + nonce + b",p=" + base64.b64encode(b"x" * 64)
    answer = wire.call(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=proof)
    assert answer.error_code == 58
    assert re.search(r"SASL.*SCRAM-SHA-512", answer.error_message)
    assert wire.receive_frame() is None


@pytest.mark.parametrize(
    "token",
    [
        b"p=tls-unique,,n=bob,r=mine",
        b"n,a=alice,n=bob,r=mine",
        b"n,,n=bob",
        b"n,,m=x,n=bob,r=mine",
        b"",
        b"\xff",
        b"n,," + b"x" * 100_000,
    ],
)
def test_malformed_first_scram_token_is_answered_with_58(
    asking: Behind, connect: Connect, token: bytes
) -> None:
    wire = connect(asking.address())
    wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
    assert wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token).error_code == 58
    assert wire.receive_frame() is None


@pytest.mark.parametrize("final", ["c=biws,r=other,p={proof}", "c=eSws,r={nonce},p={proof}", "r={nonce}"])
def test_final_scram_token_with_another_nonce_or_binding_is_refused(
    asking: Behind, connect: Connect, final: str
) -> None:
    wire = connect(asking.address())
    wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
    first = wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"n,,n=bob,r=mine").auth_bytes.decode()
    proof = base64.b64encode(b"x" * 32).decode()
    token = final.format(nonce=first.split(",")[0][2:], proof=proof).encode()
    assert wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token).error_code == 58
    assert wire.receive_frame() is None


# Requests before a login


def test_api_versions_before_login_is_answered_once(asking: Behind, connect: Connect) -> None:
    wire = connect(asking.address())
    unknown = wire.call(ApiKey.API_VERSIONS, 4)
    assert unknown.error_code == ErrorCode.NONE
    found = {each.api_key: (each.min_version, each.max_version) for each in unknown.api_keys}
    assert (found[17], found[36], found[1][0]) == ((0, 1), (0, 2), 0)
    wire.send(ApiKey.API_VERSIONS, 0)
    assert wire.receive_frame() is None


def test_api_versions_is_answered_again_after_an_unknown_version(asking: Behind, connect: Connect) -> None:
    wire = connect(asking.address())
    wire.send_bytes(framed(struct.pack(">hhih", 18, 99, 7, -1)))
    frame = wire.receive_frame()
    assert frame is not None
    assert frame[4:6] == struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
    assert wire.call(ApiKey.API_VERSIONS, 3).error_code == ErrorCode.NONE
    assert wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == ErrorCode.NONE


@pytest.mark.parametrize("is_announced", [False, True])
def test_other_request_before_login_closes_the_connection(
    asking: Behind, connect: Connect, is_announced: bool
) -> None:
    wire = connect(asking.address())
    if is_announced:
        assert wire.call(ApiKey.API_VERSIONS, 0).error_code == ErrorCode.NONE
    wire.send(ApiKey.METADATA, 1, topics=[])
    assert wire.receive_frame() is None


def test_other_request_during_login_closes_the_connection(asking: Behind, connect: Connect) -> None:
    wire = connect(asking.address())
    assert wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == ErrorCode.NONE
    wire.send(ApiKey.METADATA, 1, topics=[])
    assert wire.receive_frame() is None


def test_token_beyond_the_limit_closes_the_connection(asking: Behind, connect: Connect) -> None:
    for sent in (
        handshake(0, "PLAIN") + struct.pack(">i", 512 * 1024 + 1),
        struct.pack(">i", 512 * 1024 + 1),
    ):
        wire = connect(asking.address())
        wire.send_bytes(sent)
        frames = [wire.receive_frame()]
        while frames[-1] is not None:
            frames.append(wire.receive_frame())


def test_unsupported_mechanism_is_answered_with_33(
    cluster: BrokerCluster, users: UserFile, connect: Connect
) -> None:
    with gateway_before(cluster, users=users, mechanisms=("SCRAM-SHA-512",)) as behind:
        wire = connect(behind.address())
        answer = wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        assert (answer.error_code, answer.mechanisms) == (33, ["SCRAM-SHA-512"])
        assert wire.receive_frame() is None


def test_second_login_on_a_connection_is_refused(asking: Behind, connect: Connect) -> None:
    wire = connect(asking.address())
    wire.send_bytes(handshake(1, "PLAIN") + authenticate(1, PLAIN_TOKEN))
    assert wire.receive_frame() == SHAKEN
    assert wire.receive_frame() is not None
    answer = wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers


def test_gateway_without_users_refuses_logins(behind: Behind, connect: Connect) -> None:
    answer = connect(behind.address()).call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


# Time and slots


def test_client_that_does_not_log_in_in_time_is_disconnected(
    cluster: BrokerCluster, users: UserFile, connect: Connect
) -> None:
    with gateway_before(cluster, users=users, mechanisms=MECHANISMS, login_s=0.5) as behind:
        slow = connect(behind.address())
        slow.send_bytes(handshake(0, "PLAIN"))
        assert slow.receive_frame() == SHAKEN
        good = connect(behind.address())
        good.send_bytes(handshake(0, "PLAIN") + framed(PLAIN_TOKEN))
        assert [good.receive_frame(), good.receive_frame()] == [SHAKEN, b""]
        assert slow.receive_frame() is None
        wait_until(lambda: behind.gateway.connections == 1, "the slow one is gone")
        assert good.call(ApiKey.METADATA, 0, topics=[]).brokers


def test_connections_without_login_yield_to_clients(
    cluster: BrokerCluster, users: UserFile, connect: Connect
) -> None:
    with gateway_before(cluster, users=users, mechanisms=MECHANISMS, most_connections=4) as behind:
        strangers = [connect(behind.address()) for _ in range(8)]
        wires = []
        for number in range(4):
            wires.append(logged_in(behind, f"127.0.0.{2 + number}"))
        for each in wires:
            each.sendall(framed(struct.pack(">hhihi", 3, 0, 9, -1, 0)))
            assert received(each, 8)[4:] == struct.pack(">i", 9)
        for wire in strangers:
            assert wire.receive_frame() is None
        assert connect(behind.address()).receive_frame() is None
        for each in wires:
            each.close()


def logged_in(behind: Behind, source: str) -> socket.socket:
    host, port = behind.address().rsplit(":", 1)
    connected = socket.create_connection((host, int(port)), PATIENCE_S, (source, 0))
    connected.sendall(handshake(0, "PLAIN") + framed(PLAIN_TOKEN))
    expected = framed(SHAKEN) + framed(b"")
    assert received(connected, len(expected)) == expected
    return connected


def received(connected: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += connected.recv(count - len(data)) or pytest.fail("the gateway hung up")
    return data


# Clients of other makes


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("version", ["", "0.10.2.2"])
def test_librdkafka_logs_in(asking: Behind, mechanism: str, version: str) -> None:
    librdkafka_sends_and_reads(asking, mechanism, version)


def test_librdkafka_reports_a_wrong_password(asking: Behind) -> None:
    librdkafka_is_told_of_a_wrong_password(asking)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in(asking: Behind, mechanism: str) -> None:
    kafka_python_sends_and_reads(asking, mechanism)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_own_client_logs_in(asking: Behind, mechanism: str) -> None:
    def config(password: str) -> ClientConfig:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        properties = {
            "bootstrap.servers": asking.address(),
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

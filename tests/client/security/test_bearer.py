"""Logins by OAUTHBEARER: the messages as bytes, and whole connections to a broker that has no other login."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rig.identity_provider import IdentityProvider, encoded
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.client.connection import Connection
from shoal.client.security.login import Exchange, LoginRefused, OAuthLogin, TokenFile
from shoal.client.security.tokens import by_token
from shoal.errors import AccessRefused, Disconnected
from shoal.net.address import Address
from shoal.protocol.apis import ApiKey
from tests.sasl_broker import NODE_ID, Answer, sasl_broker

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KICK = b"\x01"
INVALID = b'{"status":"invalid_token","scope":"","openid-configuration":""}'


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    """A login by a token of alice, after the first message."""
    (tmp_path / "token").write_text(f"{encoded({})}.{encoded({'sub': 'alice'})}.x")
    begun = by_token(OAuthLogin(TokenFile(str(tmp_path / "token"))))
    next(begun)
    return begun


@pytest.mark.parametrize(
    ("answer", "status"), [(INVALID, " (invalid_token)"), (b"no", ""), (b"[1]", ""), (b'{"status":1}', "")]
)
def test_refusal_is_acknowledged_and_named(exchange: Exchange, answer: bytes, status: str) -> None:
    assert exchange.send(answer) == KICK
    with pytest.raises(LoginRefused) as refused:
        exchange.throw(LoginRefused())
    assert all(each in refused.value.reason for each in ("'alice'", f"OAUTHBEARER{status}"))


def test_message_after_a_refusal_does_not_fit(exchange: Exchange) -> None:
    exchange.send(INVALID)
    with pytest.raises(ValueError, match=r"fit.*mechanism"):
        exchange.send(INVALID)


class TokenBroker:
    """The tokens that a broker accepts, and those that it has received."""

    def __init__(self, accepts: Callable[[str], bool] = lambda _: True) -> None:
        self.accepts = accepts
        self.received: list[str] = []

    def answer(self, message: bytes) -> Answer | None:
        if message == KICK:
            return None
        token = message.removeprefix(b"n,,\x01auth=Bearer ").removesuffix(b"\x01\x01").decode()
        self.received.append(token)
        return (b"", True) if self.accepts(token) else (INVALID, False)


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider({"mirror": "hidden-7f"}) as running:
        yield running


def config(address: str, url: str) -> ClientConfig:
    properties = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{MODULE} required clientId="mirror" clientSecret="hidden-7f";',
        "sasl.oauthbearer.token.endpoint.url": url,
    }
    return ClientConfig.from_properties("source", properties)[0]


def test_connections_share_a_token_of_the_endpoint(provider: IdentityProvider) -> None:
    broker = TokenBroker()
    with sasl_broker(broker.answer) as address, Cluster(config(address, provider.token_url)) as cluster:
        cluster.refresh([])
        with cluster.connect(NODE_ID), cluster.connect(NODE_ID):
            pass
    assert len(broker.received) == 3
    assert len(set(broker.received)) == 1
    assert len(provider.requests) == 1


def test_wrong_secret_ends_a_login_that_never_worked(provider: IdentityProvider) -> None:
    provider.clients = {}
    with (
        sasl_broker(TokenBroker().answer) as address,
        Cluster(config(address, provider.token_url)) as cluster,
        pytest.raises(AccessRefused, match=r"http://.*/token.*401") as refused,
    ):
        cluster.refresh([])
    assert "hidden-7f" not in str(refused.value)


def test_endpoint_that_is_down_is_a_lost_connection(provider: IdentityProvider) -> None:
    provider.is_up = False
    with (
        sasl_broker(TokenBroker().answer) as address,
        Cluster(config(address, provider.token_url)) as cluster,
        pytest.raises(Disconnected, match=r"http://.*/token"),
    ):
        cluster.refresh([])


def test_token_of_new_keys_is_accepted_after_a_refusal(provider: IdentityProvider) -> None:
    broker = TokenBroker()
    with sasl_broker(broker.answer) as address, Cluster(config(address, provider.token_url)) as cluster:
        cluster.refresh([])
        broker.accepts = lambda token: token != broker.received[0]
        with pytest.raises(Disconnected, match=r"accepted.*refused"):
            cluster.connect(NODE_ID)
        deadline = time.monotonic() + 20
        while True:
            try:
                cluster.connect(NODE_ID).close()
                break
            except Disconnected:
                assert time.monotonic() < deadline
                time.sleep(0.05)
    assert len(provider.requests) == 2


def test_new_token_of_a_file_renews_the_login(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    broker = TokenBroker()
    with sasl_broker(broker.answer, session_ms=500) as address:
        security = config(address, file.as_uri()).security
        host, _, port = address.partition(":")
        with Connection(
            Address(host, int(port)), client_id="me", timeout_s=20, security=security
        ) as connection:
            file.write_text("second\n")
            deadline = time.monotonic() + 30
            while len(broker.received) < 2:
                assert time.monotonic() < deadline
                connection.request(ApiKey.METADATA, topics=[])
                time.sleep(0.02)
    assert broker.received == ["first", "second"]

"""Logins passed on by mechanisms whose end only the broker knows: OAUTHBEARER, GSSAPI and others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from shoal.client.config import ClientConfig
from shoal.error_codes import ErrorCode
from shoal.gateway import Gateway, GatewaySettings
from shoal.protocol.apis import ApiKey
from tests.broker.wire import Wire
from tests.gateway.behind import wait_until
from tests.sasl_broker import NODE_ID, Answer, sasl_broker

Connect = Callable[[str], Wire]

GOOD, BAD, KICK = b"n,,\1auth=Bearer good\1\1", b"n,,\1auth=Bearer bad\1\1", b"\1"

#: As OAuthBearerSaslServer answers: a challenge without an error code for a bad token, then a failure.
OAUTHBEARER: dict[bytes, Answer] = {GOOD: (b"", True), BAD: (b'{"status":"invalid_token"}', False)}
#: As GssKrb5Server answers: the context's token, the supported protections, and nothing at the end.
GSSAPI: dict[bytes, Answer] = {b"AP-REQ": (b"AP-REP", False), b"": (b"\1\0\0\0", False), b"qop": (b"", True)}
#: As AWS_MSK_IAM answers: a document at the end.
DOCUMENT: dict[bytes, Answer] = {b"signed": (b'{"version":"2020_10_22"}', True)}


@contextmanager
def passing(
    answers: dict[bytes, Answer], most_connections: int = 10, refusal: str = "no such token"
) -> Iterator[Gateway]:
    with sasl_broker(answers.get, refusal=refusal) as address:
        upstream = ClientConfig.from_properties("upstream", {"bootstrap.servers": address})[0]
        settings = GatewaySettings(
            "127.0.0.1",
            0,
            upstream,
            pass_through=True,
            broker_ids=frozenset({NODE_ID}),
            most_connections=most_connections,
        )
        with Gateway(settings) as running:
            yield running


def begin(wire: Wire, mechanism: str, *tokens: bytes) -> list[bytes]:
    """Send tokens, and return their answers, which have no error."""
    assert wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism).error_code == ErrorCode.NONE
    answers = []
    for token in tokens:
        answer = wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token)
        assert answer.error_code == ErrorCode.NONE
        answers.append(bytes(answer.auth_bytes))
    return answers


@pytest.mark.parametrize(
    ("answers", "mechanism", "token"),
    [(OAUTHBEARER, "OAUTHBEARER", BAD), (GSSAPI, "GSSAPI", b"AP-REQ")],
    ids=["bad token of OAUTHBEARER", "first token of GSSAPI"],
)
def test_challenge_keeps_no_slot(
    answers: dict[bytes, Answer], mechanism: str, token: bytes, connect: Connect
) -> None:
    with passing(answers, most_connections=1) as gateway:
        stranger = connect(str(gateway.bootstrap))
        begin(stranger, mechanism, token)
        begin(connect(str(gateway.bootstrap)), mechanism)
        assert stranger.receive_frame() is None


def test_bad_oauthbearer_token_is_refused_after_the_client_s_acknowledgement(connect: Connect) -> None:
    with passing(OAUTHBEARER) as gateway:
        wire = connect(str(gateway.bootstrap))
        begin(wire, "OAUTHBEARER", BAD)
        answer = wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=KICK)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.receive_frame() is None


def test_request_after_a_challenge_is_refused_by_the_broker(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with passing(OAUTHBEARER) as gateway:
        wire = connect(str(gateway.bootstrap))
        begin(wire, "OAUTHBEARER", BAD)
        wire.send(ApiKey.METADATA, 1, topics=[])
        assert wire.receive_frame() is None
        wait_until(lambda: gateway.connections == 0, "its thread ends")
    assert any("127.0.0.1 failed: API 3 " in each for each in caplog.messages)


@pytest.mark.parametrize(
    ("answers", "mechanism", "tokens"),
    [
        (OAUTHBEARER, "OAUTHBEARER", [GOOD]),
        (GSSAPI, "GSSAPI", [b"AP-REQ", b"", b"qop"]),
        (DOCUMENT, "AWS_MSK_IAM", [b"signed"]),
    ],
    ids=["OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"],
)
def test_complete_login_is_served_and_keeps_its_slot(
    answers: dict[bytes, Answer], mechanism: str, tokens: list[bytes], connect: Connect
) -> None:
    with passing(answers, most_connections=1) as gateway:
        wire = connect(str(gateway.bootstrap))
        assert begin(wire, mechanism, *tokens) == [answers[each][0] for each in tokens]
        assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers
        assert connect(str(gateway.bootstrap)).receive_frame() is None
        assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers


def test_login_in_several_tokens_is_not_disturbed_before_its_node_is_known(connect: Connect) -> None:
    with passing(GSSAPI) as gateway:
        wire = connect(str(gateway.brokers[NODE_ID]))
        assert begin(wire, "GSSAPI", b"AP-REQ", b"", b"qop")[-1] == b""
        assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers


def test_refusal_with_a_java_object_reaches_the_client_whole_and_the_log_without_it(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = "Request Session(id=7, owner=java.lang.Thread@528e2f25) is refused"
    with passing(GSSAPI, refusal=refusal) as running:
        wire = connect(str(running.bootstrap))
        begin(wire, "GSSAPI")
        answer = wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"other")
        assert (answer.error_code, answer.error_message) == (58, refusal)
        assert wire.receive_frame() is None
        wait_until(lambda: "login from" in caplog.text, "the warning")
    assert re.search(r"Request.*refused", caplog.text)
    assert "Session" not in caplog.text

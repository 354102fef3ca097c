"""Access tokens from a token endpoint, over real HTTP and HTTPS."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rig.authority import Authority
from rig.identity_provider import IdentityProvider
from shoal.client.security.login import ClientCredentials, NoCredentials, TokenEndpoint
from shoal.client.security.oauth_endpoint import request_token
from shoal.client.security.tls import TlsSettings
from tests.snapshots import Texts

SECRET = "hidden-7f/+ &"
MIRROR = ClientCredentials("mirror", SECRET)


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider({"mirror": SECRET, "a b": SECRET}) as running:
        yield running


def endpoint(provider: IdentityProvider, **changed: Any) -> TokenEndpoint:
    values: dict[str, Any] = {"url": provider.token_url, "client": MIRROR, "timeout_ms": 2000}
    return TokenEndpoint(**{**values, **changed})


def refused(provider: IdentityProvider, **changed: Any) -> NoCredentials:
    with pytest.raises(NoCredentials) as error:
        request_token(endpoint(provider, **changed), "sub")
    assert SECRET not in error.value.reason
    return error.value


def answering(
    provider: IdentityProvider, status: int, body: object, headers: dict[str, str] | None = None
) -> None:
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    provider.answer = lambda: (status, headers or {}, encoded)


def test_request_is_that_of_kafka_s_client(provider: IdentityProvider) -> None:
    token = request_token(endpoint(provider), "sub")
    (request,) = provider.requests
    assert request.form == {"grant_type": "client_credentials"}
    assert request.credentials == f"mirror:{SECRET}"
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert request.headers["accept"] == "application/json"
    assert request.headers["cache-control"] == "no-cache"
    assert (token.subject, token.lives_s) == ("mirror", 3600)
    assert token.value not in repr(token)


def test_scope_is_in_the_body(provider: IdentityProvider) -> None:
    request_token(endpoint(provider, scope="read api://x/.default"), "sub")
    assert provider.requests[0].form["scope"] == "read api://x/.default"


def test_header_is_url_encoded_on_request(provider: IdentityProvider) -> None:
    refused(provider, client=ClientCredentials("a b", SECRET, escapes_header=True))
    assert provider.requests[0].credentials == "a+b:hidden-7f%2F%2B+%26"


def test_id_token_and_lifetime_as_text_are_accepted(provider: IdentityProvider) -> None:
    answering(provider, 200, {"id_token": provider.token("bob"), "expires_in": "120"})
    token = request_token(endpoint(provider), "sub")
    assert (token.subject, token.lives_s) == ("bob", 120)


def test_lifetime_is_the_token_s_own_if_the_answer_has_none(provider: IdentityProvider) -> None:
    answering(provider, 200, {"access_token": provider.token("bob")})
    lives_s = request_token(endpoint(provider), "sub").lives_s
    assert lives_s is not None
    assert 3500 < lives_s < 3601


def test_opaque_token_has_neither_subject_nor_lifetime(provider: IdentityProvider) -> None:
    answering(provider, 200, {"access_token": "opaque-1"})
    token = request_token(endpoint(provider), "sub")
    assert (token.value, token.subject, token.lives_s) == ("opaque-1", "", None)


def test_wrong_secret_names_its_properties(provider: IdentityProvider) -> None:
    error = refused(provider, client=ClientCredentials("mirror", "wrong-secret-91"), scope="read")
    assert not error.may_pass
    assert all(
        each in error.reason
        for each in (
            provider.token_url,
            "401",
            "invalid_client",
            "sasl.oauthbearer.client.credentials.client.id",
            "sasl.oauthbearer.client.credentials.client.secret",
            "sasl.jaas.config",
            "sasl.oauthbearer.scope",
        )
    )


@pytest.mark.parametrize(
    ("status", "body", "may_pass"),
    [
        (400, {"error": "invalid_scope"}, False),
        (401, {"errorCode": "E1", "errorSummary": "no"}, False),
        (403, b"<html>", False),
        (404, b"", False),
        (429, b"", True),
        (503, {"error": 7}, True),
        (200, b"<html>", False),
        (200, ["token"], False),
        (200, {"token": "x"}, False),
        (200, {"access_token": 7}, False),
        (200, {"access_token": "two words"}, False),
        (200, {"access_token": "a\x01b"}, False),
    ],
)
def test_unusable_answer_is_one_sentence(
    provider: IdentityProvider, status: int, body: object, may_pass: bool, texts: Texts
) -> None:
    answering(provider, status, body)
    error = refused(provider)
    assert error.may_pass is may_pass
    texts(error.reason)


def test_expired_token_is_refused(provider: IdentityProvider) -> None:
    answering(provider, 200, {"access_token": provider.token("bob", exp=1_700_000_000)})
    assert re.search(r"access.*expired", refused(provider).reason)


def test_redirect_is_refused_before_the_secret_goes_there(provider: IdentityProvider) -> None:
    answering(provider, 307, b"", {"Location": f"{provider.url}/other?code=hidden"})
    reason = refused(provider).reason
    assert all(each in reason for each in (f"'{provider.url}/other'", "sasl.oauthbearer.token.endpoint.url"))
    assert "hidden" not in reason
    assert len(provider.requests) == 1


def test_endpoint_that_is_down_is_tried_again(provider: IdentityProvider) -> None:
    provider.is_up = False
    error = refused(provider)
    assert error.may_pass
    assert provider.token_url in error.reason
    error = refused(provider, url="http://127.0.0.1:1/token")
    assert error.may_pass
    assert "http://127.0.0.1:1/token" in error.reason


def test_host_with_a_label_too_long_for_dns_is_one_sentence(provider: IdentityProvider) -> None:
    host = f"{'a' * 70}.example"
    error = refused(provider, url=f"https://{host}/token")
    assert f"https://{host}/token" in error.reason


def test_url_in_errors_has_no_query(provider: IdentityProvider) -> None:
    answering(provider, 500, b"")
    assert provider.token_url in refused(provider, url=f"{provider.token_url}?key=hidden").reason


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def secure(authority: Authority, tmp_path: Path) -> Iterator[IdentityProvider]:
    identity = authority.issue("idp", "127.0.0.1").write_pem(tmp_path / "idp.pem")
    with IdentityProvider({"mirror": SECRET}, identity=identity) as running:
        yield running


def test_endpoint_has_a_trust_store_of_its_own(secure: IdentityProvider, authority: Authority) -> None:
    token = request_token(endpoint(secure, tls=TlsSettings(trusted=authority.pem)), "sub")
    assert token.subject == "mirror"


def test_untrusted_endpoint_gets_no_secret(secure: IdentityProvider) -> None:
    error = refused(secure, tls=TlsSettings(trusted=Authority("another").pem))
    assert not error.may_pass
    assert re.search(r"certificate.*trusted", error.reason)
    assert re.search(r"ssl\.truststore\.location.*sasl\.jaas\.config", error.reason)
    assert secure.requests == []


def test_endpoint_without_tls_is_named(provider: IdentityProvider) -> None:
    error = refused(provider, url=provider.token_url.replace("http:", "https:"))
    assert "SSL" in error.reason

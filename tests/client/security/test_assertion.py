"""Assertions (RFC 7523): read from a file, or signed with a key, and accepted by a token endpoint."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from rig.identity_provider import IdentityProvider
from shoal.client.security.oauth.assertion import JWT_BEARER, make_assertion, read_assertion
from shoal.client.security.oauth.endpoint import request_token
from shoal.client.security.oauth.sources import AssertionFile, SignedAssertion, TokenEndpoint
from shoal.client.security.oauth.token import NoToken
from shoal.errors import ConfigError

PREFIX = "sasl.oauthbearer.assertion."
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ELLIPTIC = ec.generate_private_key(ec.SECP256R1())
PASSPHRASE = "hidden-7f"


def write_key(path: Path, key: Any, passphrase: str = "") -> str:
    how = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
    return str(path)


def read(**given: str) -> AssertionFile | SignedAssertion:
    named = {PREFIX + name.replace("_", "."): value for name, value in given.items()}
    return read_assertion(named, "the file")


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def parts_of(grant: AssertionFile | SignedAssertion) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    """Return header, claims, the signed bytes and the signature."""
    assertion = make_assertion(grant)
    header, claims, signature = assertion.split(".")
    signed = assertion.rpartition(".")[0].encode()
    return json.loads(decoded(header)), json.loads(decoded(claims)), signed, decoded(signature)


def test_assertion_is_signed_by_rsa_with_its_claims(tmp_path: Path) -> None:
    (tmp_path / "template.json").write_text('{"header": {"kid": "k1"}, "payload": {"iss": "x", "team": "t"}}')
    grant = read(
        private_key_file=write_key(tmp_path / "key.pem", RSA),
        template_file=str(tmp_path / "template.json"),
        claim_iss="mirror",
        claim_sub="mirror",
        claim_aud="https://idp",
        claim_exp_seconds="120",
        claim_nbf_seconds="5",
        claim_jti_include="true",
    )
    header, claims, signed, signature = parts_of(grant)
    assert header == {"alg": "RS256", "typ": "JWT", "kid": "k1"}
    now = time.time()
    assert (claims["exp"] - claims["iat"], claims["iat"] - claims["nbf"]) == (120, 5)
    assert now - 10 < claims["iat"] <= now
    assert len(claims["jti"]) == 36
    assert {name: claims[name] for name in ("iss", "sub", "aud", "team")} == {
        "iss": "mirror",
        "sub": "mirror",
        "aud": "https://idp",
        "team": "t",
    }
    RSA.public_key().verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
    assert parts_of(grant)[1]["jti"] != claims["jti"]


def test_signature_by_an_elliptic_curve_has_the_form_of_jose(tmp_path: Path) -> None:
    key = write_key(tmp_path / "key.pem", ELLIPTIC, PASSPHRASE)
    grant = read(private_key_file=key, private_key_passphrase=PASSPHRASE, algorithm="ES256", claim_sub="m")
    assert PASSPHRASE not in repr(grant)
    header, claims, signed, signature = parts_of(grant)
    assert header["alg"] == "ES256"
    assert claims["exp"] - claims["nbf"] == 360
    assert "jti" not in claims
    assert len(signature) == 64
    numbers = (int.from_bytes(signature[:32]), int.from_bytes(signature[32:]))
    ELLIPTIC.public_key().verify(utils.encode_dss_signature(*numbers), signed, ec.ECDSA(hashes.SHA256()))


def test_key_without_the_lines_of_pem_is_read_as_in_kafka(tmp_path: Path) -> None:
    path = tmp_path / "key"
    der = RSA.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(base64.encodebytes(der))
    assert read(private_key_file=str(path)) == read(private_key_file=write_key(tmp_path / "key.pem", RSA))


def test_assertion_file_is_read_at_each_request(tmp_path: Path) -> None:
    file = tmp_path / "assertion"
    grant = read(file=str(file), private_key_file="/missing")
    assert grant == AssertionFile(str(file))
    with pytest.raises(NoToken, match=r"assertion.*file.*file"):
        make_assertion(grant)
    for text in ("first", "second"):
        file.write_text(f"{text}\n")
        assert make_assertion(grant) == text


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, f"no {PREFIX}file, and no {PREFIX}private.key.file"),
        ({"private_key_file": "/missing"}, "private.key.file /missing cannot be read: No such file"),
        ({"private_key_file": "RSA", "algorithm": "HS256"}, "algorithm=HS256 is none of RS256, ES256"),
        ({"private_key_file": "RSA", "algorithm": "ES256"}, "is not a key for ES256. Set"),
        (
            {"private_key_file": "EC"},
            "has no private key in PEM or Base64, or .*passphrase is wrong or missing",
        ),
        ({"private_key_file": "TEXT"}, "has no private key in PEM"),
        (
            {"private_key_file": "RSA", "claim_exp_seconds": "x"},
            "claim.exp.seconds=x is not a number of seconds",
        ),
        (
            {"private_key_file": "RSA", "template_file": "/missing"},
            "template.file /missing: it cannot be read",
        ),
        ({"private_key_file": "RSA", "template_file": "TEXT"}, "it is not a JSON object with objects named"),
    ],
)
def test_unusable_property_of_an_assertion_is_named(
    tmp_path: Path, given: dict[str, str], sentence: str
) -> None:
    (tmp_path / "text").write_text(PASSPHRASE)
    files = {
        "RSA": write_key(tmp_path / "rsa.pem", RSA),
        "EC": write_key(tmp_path / "ec.pem", ELLIPTIC, PASSPHRASE),
        "TEXT": str(tmp_path / "text"),
    }
    with pytest.raises(ConfigError, match=sentence) as refused:
        read(**{name: files.get(value, value) for name, value in given.items()})
    assert str(refused.value).startswith("the file: ")
    assert PASSPHRASE not in str(refused.value)


def test_endpoint_receives_the_assertion_without_a_secret(tmp_path: Path) -> None:
    grant = read(private_key_file=write_key(tmp_path / "key.pem", RSA), claim_sub="mirror")
    with IdentityProvider({}) as provider:
        answer = json.dumps({"access_token": provider.token("mirror"), "expires_in": 60}).encode()
        provider.answer = lambda: (200, {}, answer)
        token = request_token(TokenEndpoint(provider.token_url, grant, "read"), "sub")
        (request,) = provider.requests
        provider.answer = lambda: (400, {}, b'{"error": "invalid_grant"}')
        with pytest.raises(NoToken, match=r"400.*\(invalid_grant\).*sasl.oauth.*assertion"):
            request_token(TokenEndpoint(provider.token_url, grant), "sub")
    assert token.lives_s == 60
    assert "authorization" not in request.headers
    assert request.form["grant_type"] == JWT_BEARER
    assert request.form["scope"] == "read"
    assert json.loads(decoded(request.form["assertion"].split(".")[1]))["sub"] == "mirror"

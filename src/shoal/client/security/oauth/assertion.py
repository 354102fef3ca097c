"""
Assertions: JWTs by which a client without a secret asks for a token (RFC 7523; KIP-1139).

``cryptography`` signs them; a JWT is else two JSON objects in Base64.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....errors import ConfigError
from .sources import AssertionFile, SignedAssertion
from .token import NoToken, read_token

__all__ = ["ALGORITHMS", "JWT_BEARER", "make_assertion", "read_assertion"]

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"

ALGORITHMS = ("RS256", "ES256")

_PREFIX = "sasl.oauthbearer.assertion."


def make_assertion(grant: AssertionFile | SignedAssertion) -> str:
    """
    Return an assertion for one request.

    Raises:
        NoToken: The file cannot be read, or its assertion has expired.

    """
    if isinstance(grant, SignedAssertion):
        return _signed(grant)
    where = f"the assertion file {grant.path!r}"
    try:
        text = Path(grant.path).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise NoToken(f"{where} cannot be read: {why}. Check {_PREFIX}file") from None
    return read_token(text, where).value


def _signed(grant: SignedAssertion) -> str:
    now = int(time.time())
    header = {"alg": grant.algorithm, "typ": "JWT", **json.loads(grant.header)}
    claims = {
        "iat": now,
        "exp": now + grant.lives_s,
        "nbf": now - grant.valid_before_s,
        **({"jti": str(uuid.uuid4())} if grant.has_id else {}),
        **json.loads(grant.claims),
    }
    content = f"{_encoded(header)}.{_encoded(claims)}"
    return f"{content}.{_base64(_signature(grant, content.encode()))}"


def _signature(grant: SignedAssertion, content: bytes) -> bytes:
    # Imported here and below, since only assertions need it.
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, utils
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key: Any = load_pem_private_key(grant.private_key.encode(), None)
    if grant.algorithm == "RS256":
        return bytes(key.sign(content, padding.PKCS1v15(), hashes.SHA256()))
    # RFC 7518, 3.4: the two numbers one after the other, of 32 bytes each, not in DER.
    numbers = utils.decode_dss_signature(key.sign(content, ec.ECDSA(hashes.SHA256())))
    return b"".join(each.to_bytes(32) for each in numbers)


def read_assertion(properties: Mapping[str, str], where: str) -> AssertionFile | SignedAssertion:
    """
    Read the properties of an assertion, and its key.

    Raises:
        ConfigError: A property is missing or malformed, or a file cannot be read.

    """
    given = {
        key.removeprefix(_PREFIX): value.strip()
        for key, value in properties.items()
        if key.startswith(_PREFIX)
    }
    if given.get("file"):
        return AssertionFile(given["file"])
    if not given.get("private.key.file"):
        raise ConfigError(f"{where}: no {_PREFIX}file, and no {_PREFIX}private.key.file. Set one of them")
    algorithm = given.get("algorithm") or ALGORITHMS[0]
    if algorithm not in ALGORITHMS:
        raise ConfigError(f"{where}: {_PREFIX}algorithm={algorithm} is none of {', '.join(ALGORITHMS)}")
    header, claims = _template(given.get("template.file", ""), where)
    claims |= {name: given[f"claim.{name}"] for name in ("aud", "iss", "sub") if given.get(f"claim.{name}")}
    return SignedAssertion(
        algorithm=algorithm,
        private_key=_private_key(given, algorithm, where),
        header=json.dumps(header, sort_keys=True),
        claims=json.dumps(claims, sort_keys=True),
        lives_s=_seconds(given, "claim.exp.seconds", 300, where),
        valid_before_s=_seconds(given, "claim.nbf.seconds", 60, where),
        has_id=given.get("claim.jti.include", "").lower() == "true",
    )


def _template(path: str, where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the header and the claims of a template file."""
    if not path:
        return {}, {}
    problem = "it is not a JSON object with objects named header and payload"
    try:
        template = json.loads(Path(path).read_text(encoding="utf-8"))
        header, claims = template.get("header", {}), template.get("payload", {})
    except OSError as error:
        problem = f"it cannot be read: {error.strerror}"
    except (ValueError, AttributeError):
        pass
    else:
        if isinstance(header, dict) and isinstance(claims, dict):
            return header, claims
    raise ConfigError(f"{where}: {_PREFIX}template.file {path}: {problem}")


def _private_key(given: Mapping[str, str], algorithm: str, where: str) -> str:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_der_private_key,
        load_pem_private_key,
    )

    where = f"{where}: {_PREFIX}private.key.file {given['private.key.file']}"
    passphrase = given.get("private.key.passphrase")
    try:
        data = Path(given["private.key.file"]).read_bytes()
        password = passphrase.encode() if passphrase else None
        if b"-----BEGIN " in data:
            key = load_pem_private_key(data, password)
        else:
            # Kafka 4.1 reads only this form, though its documentation says PEM.
            key = load_der_private_key(base64.b64decode(b"".join(data.split()), validate=True), password)
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from error
    except Exception as error:  # OpenSSL raises many types
        raise ConfigError(
            f"{where} has no private key in PEM or Base64, or {_PREFIX}private.key.passphrase is wrong or "
            "missing"
        ) from error
    is_elliptic = isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1)
    if not (is_elliptic if algorithm == "ES256" else isinstance(key, RSAPrivateKey)):
        raise ConfigError(f"{where} is not a key for {algorithm}. Set {_PREFIX}algorithm")
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _seconds(given: Mapping[str, str], name: str, default: int, where: str) -> int:
    value = given.get(name) or str(default)
    if not (value.isascii() and value.isdigit() and len(value) <= 8):
        raise ConfigError(f"{where}: {_PREFIX}{name}={value} is not a number of seconds")
    return int(value)


def _encoded(part: dict[str, Any]) -> str:
    return _base64(json.dumps(part, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

"""
Java's trust stores and key stores in PEM or PKCS12; a store of type JKS is usually PKCS12.

Since Java 9 keytool writes PKCS12, whatever the file's name. If ``type=JKS`` is set, Kafka's default, Java
reads both formats. So the first bytes of the file decide here, not its type.
Stores in the old JKS format are refused: no maintained library reads them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

__all__ = ["StoreError", "read_key_store", "read_trust_store", "trusted_of_pem", "with_key_of_pem"]

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_JCEKS_MAGIC = b"\xce\xce\xce\xce"

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)

_TYPES = frozenset({"PEM", "PKCS12", "JKS"})


class StoreError(ValueError):
    """A reason why a store cannot be used, without a secret: the caller adds the property."""


def read_trust_store(location: str, kind: str, password: str | None) -> str:
    """
    Return the certificates of a trust store as PEM.

    Args:
        location: The path of the file.
        kind: The value of ``ssl.truststore.type``.
        password: The password of a PKCS12 store.

    Raises:
        StoreError: The store cannot be read.

    """
    data = _read(location, kind)
    if _is_pem(data):
        return trusted_of_pem(data.decode("latin-1"))
    store = _pkcs12(data, password)
    certificates = [each.certificate for each in store.additional_certs]
    if store.cert:
        certificates.append(store.cert.certificate)
    if not certificates:
        raise StoreError("has no certificates in it")
    return _pem(certificates)


def read_key_store(
    location: str, kind: str, password: str | None, key_password: str | None
) -> tuple[str, str]:
    """
    Return the certificates and the private key (not encrypted) of a key store as PEM.

    Raises:
        StoreError: The store cannot be read.

    """
    data = _read(location, kind)
    if _is_pem(data):
        text = data.decode("latin-1")
        return with_key_of_pem(text, text, key_password or password)
    store = _pkcs12(data, password)
    if store.key is None or store.cert is None:
        raise StoreError("has no private key in it")
    chain = [store.cert.certificate, *(each.certificate for each in store.additional_certs)]
    return _pem(chain), _key_pem(store.key)


def trusted_of_pem(text: str) -> str:
    """
    Return the certificates in a PEM text.

    Raises:
        StoreError: The text has no certificate.

    """
    try:
        pem = "".join(_blocks(text, "CERTIFICATE"))
        return _pem(x509.load_pem_x509_certificates(pem.encode("latin-1", "replace")))
    except ValueError as error:
        raise StoreError("has no certificate in PEM in it") from error


def with_key_of_pem(certificates: str, key: str, password: str | None) -> tuple[str, str]:
    """
    Return the certificates, and the private key decrypted.

    Raises:
        StoreError: One of them is missing, or the password is wrong.

    """
    chain = trusted_of_pem(certificates)
    keys = _blocks(key, "PRIVATE KEY")
    if not keys:
        raise StoreError("has no private key in PEM in it")
    encrypted = "ENCRYPTED" in keys[0]
    try:
        loaded = load_pem_private_key(
            keys[0].encode("latin-1", "replace"), password.encode() if encrypted and password else None
        )
    except TypeError as error:
        raise StoreError("has an encrypted private key. Set ssl.key.password") from error
    except Exception as error:  # OpenSSL raises many types
        why = "the password (ssl.key.password) is wrong, or " if encrypted else ""
        raise StoreError(f"has a private key that cannot be read: {why}it is damaged") from error
    return chain, _key_pem(loaded)


def _blocks(text: str, label: str) -> list[str]:
    """Find the PEM blocks with a label, as Kafka does also in one line of a properties file."""
    blocks = []
    for found in _BLOCK.finditer(text):
        kind, body = found[1], found[2]
        if kind.endswith(label):
            lines = body.strip() if ":" in body else "\n".join(body.split())
            blocks.append(f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n")
    return blocks


def _read(location: str, kind: str) -> bytes:
    if kind.upper() not in _TYPES:
        raise StoreError(f"is of type {kind}. Use PEM or PKCS12")
    try:
        data = Path(location).read_bytes()
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if data.startswith((_JKS_MAGIC, _JCEKS_MAGIC)):
        raise StoreError(
            "is in Java's old JKS format, which shoal does not read. Convert it with keytool -importkeystore "
            f"-srckeystore {location} -destkeystore {location}.p12 -deststoretype PKCS12"
        )
    if kind.upper() == "PEM" and not _is_pem(data):
        raise StoreError("has nothing in PEM in it")
    return data


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def _pkcs12(data: bytes, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(data, password.encode() if password else None)
    except Exception as error:  # OpenSSL raises many types
        raise StoreError("cannot be opened: the password is wrong or missing, or it is not PKCS12") from error


def _pem(certificates: Sequence[x509.Certificate]) -> str:
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


def _key_pem(key: PrivateKeyTypes) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

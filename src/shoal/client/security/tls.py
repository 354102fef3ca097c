"""TLS to a broker: Java's ``ssl.*`` properties, the handshake, and the advice for its failures."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from ...errors import ConfigError
from ...net.tls_handshake import begin_tls
from ...secret_file import as_file

__all__ = ["TLS_ADVICE", "TlsSettings", "connect_tls", "read_tls", "tls_context", "tls_refusal"]

TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """
    The certificates of a client, and its requirements for a server. The ``repr()`` contains no secret.

    Attributes:
        trusted: The trusted certificates in PEM; if None, those of the operating system.
        certificates: The client's certificate in PEM, and the chain from it to an authority.
        private_key: The key of that certificate in PEM, not encrypted.
        check_hostname: Whether the server's certificate must name the host that we connect to.
        versions: Both of :data:`TLS_VERSIONS`, or one of them.

    """

    trusted: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    versions: tuple[str, ...] = TLS_VERSIONS


def read_tls(properties: Mapping[str, str], where: str) -> TlsSettings:
    """
    Read the properties of TLS, and the stores that they name.

    Args:
        properties: The properties of a client, or the options of a login module that has a TLS of its own.
        where: Their source for errors, e.g. the file's name.

    Raises:
        ConfigError: A property is malformed or not supported, or a store cannot be read.

    """
    certificates, private_key = _key(properties, where)
    return TlsSettings(
        trusted=_trusted(properties, where),
        certificates=certificates,
        private_key=private_key,
        check_hostname=_check_hostname(properties, where),
        versions=_versions(properties, where),
    )


def _trusted(properties: Mapping[str, str], where: str) -> str | None:
    # Imported here and below: only stores need cryptography, and its import takes 20 ms of CPU.
    from .stores import StoreError, read_trust_store, trusted_of_pem

    inline = properties.get("ssl.truststore.certificates")
    location = properties.get("ssl.truststore.location")
    try:
        if inline:
            return trusted_of_pem(inline)
        if location:
            kind = properties.get("ssl.truststore.type", "JKS")
            return read_trust_store(location, kind, properties.get("ssl.truststore.password"))
    except StoreError as error:
        what = "ssl.truststore.certificates" if inline else f"ssl.truststore.location {location}"
        raise ConfigError(f"{where}: {what} {error}") from None
    return None


def _key(properties: Mapping[str, str], where: str) -> tuple[str | None, str | None]:
    from .stores import StoreError, read_key_store, with_key_of_pem

    inline, location = properties.get("ssl.keystore.key"), properties.get("ssl.keystore.location")
    key_password = properties.get("ssl.key.password")
    try:
        if inline:
            return with_key_of_pem(properties.get("ssl.keystore.certificate.chain", ""), inline, key_password)
        if location:
            kind = properties.get("ssl.keystore.type", "JKS")
            return read_key_store(location, kind, properties.get("ssl.keystore.password"), key_password)
    except StoreError as error:
        what = (
            "ssl.keystore.key with ssl.keystore.certificate.chain"
            if inline
            else f"ssl.keystore.location {location}"
        )
        raise ConfigError(f"{where}: {what} {error}") from None
    return None, None


def _check_hostname(properties: Mapping[str, str], where: str) -> bool:
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip()
    if algorithm.lower() not in ("", "https"):
        raise ConfigError(
            f"{where}: ssl.endpoint.identification.algorithm={algorithm} is neither https nor empty"
        )
    return bool(algorithm)


def _versions(properties: Mapping[str, str], where: str) -> tuple[str, ...]:
    key = "ssl.enabled.protocols"
    if key not in properties and properties.get("ssl.protocol", "").startswith("TLSv"):
        key = "ssl.protocol"
        # In Java, ssl.protocol is the newest version.
        if properties[key].strip() == "TLSv1.3":
            return TLS_VERSIONS
    asked = [each.strip() for each in properties.get(key, ",".join(TLS_VERSIONS)).split(",")]
    versions = tuple(each for each in TLS_VERSIONS if each in asked)
    if not versions:
        raise ConfigError(f"{where}: {key} has none of {', '.join(TLS_VERSIONS)}")
    return versions


#: The advice if a broker closes the connection instead of a TLS handshake.
TLS_ADVICE = (
    "Check security.protocol: SSL or SASL_SSL for a listener with TLS, PLAINTEXT or SASL_PLAINTEXT for one "
    "without"
)

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

# OpenSSL's X509_V_ERR_*, of x509_vfy.h.
_NOT_YET_VALID, _EXPIRED, _HOSTNAME, _EMAIL, _ADDRESS = 9, 10, 62, 63, 64


def connect_tls(
    connected: socket.socket, host: str, settings: TlsSettings, timeout_s: float
) -> ssl.SSLSocket:
    """
    Do the TLS handshake on a connected socket; the returned socket replaces it.

    Args:
        connected: The socket; closed if the handshake fails.
        host: The name that the broker's certificate must contain.
        settings: The trusted certificates, and the client's own.
        timeout_s: The limit of each wait, during the handshake and later.

    Raises:
        OSError: The handshake failed; :func:`tls_refusal` returns the advice.

    """
    connected.settimeout(timeout_s)
    try:
        return begin_tls(tls_context(settings), connected, server_hostname=host)
    except BaseException:
        connected.close()
        raise


@lru_cache(maxsize=8)
def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """
    Return the TLS context for these settings. The result is cached.

    Raises:
        ConfigError: The key does not fit its certificate.

    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.check_hostname
    context.minimum_version = min(_VERSIONS[each] for each in settings.versions)
    context.maximum_version = max(_VERSIONS[each] for each in settings.versions)
    # As in Java, every certificate in the trust store is trusted, also a broker's own one.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if settings.trusted is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=settings.trusted)
    if settings.private_key:
        _load_key(context, settings)
    return context


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Load key and certificates: Python cannot load them from memory."""
    assert settings.private_key is not None
    assert settings.certificates is not None
    with as_file((settings.private_key + settings.certificates).encode()) as name:
        try:
            context.load_cert_chain(name)
        except ssl.SSLError as error:
            raise ConfigError(
                "the private key of ssl.keystore does not fit its first certificate, or OpenSSL refuses one "
                f"of them ({error.reason})"
            ) from error


def tls_refusal(error: OSError, host: str) -> str | None:
    """Return why the handshake failed, and the remedy; None if the failure may be transient."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _verification(error, host)
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError):
        return None
    reason = (error.reason or "").upper()
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
        return f"it does not answer in TLS. {TLS_ADVICE}"
    if "PROTOCOL_VERSION" in reason or reason == "UNSUPPORTED_PROTOCOL":
        return "it does not support the client's versions of TLS. Set ssl.enabled.protocols"
    if "ALERT" in reason and any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE")):
        return (
            f"it refuses our certificate, or the lack of one ({reason}). "
            "Set ssl.keystore.location to a key and a certificate that it trusts"
        )
    return None


def _verification(error: ssl.SSLCertVerificationError, host: str) -> str:
    code = error.verify_code
    if code in (_HOSTNAME, _EMAIL, _ADDRESS):
        return (
            f"its certificate does not name {host}. Connect by a name that is in it, or give it one, "
            "or set ssl.endpoint.identification.algorithm to nothing"
        )
    if code == _EXPIRED:
        return "its certificate, or one that it rests on, has expired. Renew it"
    if code == _NOT_YET_VALID:
        return "its certificate is not valid yet. Compare the clocks of both machines"
    return (
        f"its certificate is not trusted ({error.verify_message}). Add its authority's certificate to "
        "ssl.truststore.location"
    )

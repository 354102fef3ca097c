"""Read Java's ``ssl.*`` into :class:`TlsSettings`."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import ConfigError
from .tls_settings import TLS_VERSIONS, TlsSettings

__all__ = ["read_tls"]


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

"""Read Java's ``security.protocol``, ``ssl.*`` and ``sasl.*`` into a :class:`Security`."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import ConfigError
from .access import LEAST_SCRAM_ITERATIONS, Security
from .jaas import parse_jaas
from .sasl import LEAST_ITERATIONS_PROPERTY

__all__ = ["SECURITY_PROPERTIES", "read_security"]

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_VERSIONS = ("TLSv1.2", "TLSv1.3")

#: Kafka's login modules for passwords, and the mechanisms of each.
_MODULES = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
}
_MECHANISMS = tuple(mechanism for served in _MODULES.values() for mechanism in served)

#: Properties that name Java classes or Java's cipher names: shoal does not support them.
_REFUSED = frozenset(
    """
    sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
    security.providers ssl.cipher.suites ssl.engine.factory.class
    """.split()  # noqa: SIM905
)

#: All properties that shoal reads, refuses, or ignores because they tune Java's own machinery.
SECURITY_PROPERTIES = (
    _REFUSED
    | {LEAST_ITERATIONS_PROPERTY}
    | frozenset(
        """
    sasl.jaas.config sasl.mechanism security.protocol
    ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.key.password
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.protocol
    ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type

    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    ssl.keymanager.algorithm ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
    """.split()  # noqa: SIM905
    )
)


def read_security(properties: Mapping[str, str], where: str) -> Security | None:
    """
    Read the security properties, and the stores that they name.

    Args:
        properties: All properties of a client.
        where: Their source for errors, e.g. the file's name. Errors never contain a value that may be secret.

    Returns:
        None for ``PLAINTEXT``.

    Raises:
        ConfigError: A property is missing, malformed or not supported, or a store cannot be read.

    """
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"{where}: security.protocol={protocol} is none of {', '.join(_PROTOCOLS)}")
    if protocol == "PLAINTEXT":
        return None
    for key in sorted(_REFUSED & properties.keys()):
        if properties[key].strip():
            raise ConfigError(f"{where}: {key} is not supported; remove it")
    mechanism, username, password = (
        _login(properties, where) if protocol.startswith("SASL_") else (None, "", "")
    )
    least_iterations = _least_iterations(properties, where)
    if not protocol.endswith("SSL"):
        return Security(False, mechanism, username, password, least_scram_iterations=least_iterations)
    certificates, private_key = _key(properties, where)
    return Security(
        tls=True,
        mechanism=mechanism,
        username=username,
        password=password,
        trusted=_trusted(properties, where),
        certificates=certificates,
        private_key=private_key,
        check_hostname=_check_hostname(properties, where),
        versions=_versions(properties, where),
        least_scram_iterations=least_iterations,
    )


def _login(properties: Mapping[str, str], where: str) -> tuple[str, str, str]:
    mechanism = properties.get("sasl.mechanism", "").strip()
    if mechanism not in _MECHANISMS:
        # Java's default is GSSAPI, but a user who sets no mechanism hardly means Kerberos.
        found = f"sasl.mechanism={mechanism} is not supported" if mechanism else "no sasl.mechanism"
        raise ConfigError(f"{where}: {found}; shoal supports {', '.join(_MECHANISMS)}")
    if "sasl.jaas.config" not in properties:
        raise ConfigError(f"{where}: no sasl.jaas.config, which has the username and the password")
    try:
        module = parse_jaas(properties["sasl.jaas.config"])
    except ValueError as error:
        raise ConfigError(f"{where}: sasl.jaas.config cannot be understood: {error}") from None
    if mechanism not in _MODULES.get(module.name, ()):
        wanted = next(name for name, served in _MODULES.items() if mechanism in served)
        raise ConfigError(f"{where}: sasl.jaas.config has not the login module of {mechanism}: {wanted}")
    if module.options.get("tokenauth", "false").lower() == "true":
        raise ConfigError(f"{where}: sasl.jaas.config: shoal does not log in by delegation tokens")
    for option in ("username", "password"):
        if not module.options.get(option):
            raise ConfigError(f"{where}: sasl.jaas.config has no {option}")
    return mechanism, module.options["username"], module.options["password"]


def _least_iterations(properties: Mapping[str, str], where: str) -> int:
    value = properties.get(LEAST_ITERATIONS_PROPERTY, str(LEAST_SCRAM_ITERATIONS)).strip()
    if not (value.isascii() and value.isdigit() and len(value) <= 7 and int(value) > 0):
        raise ConfigError(f"{where}: {LEAST_ITERATIONS_PROPERTY}={value} is not a number from 1 to 9999999")
    return int(value)


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
            return _VERSIONS
    asked = [each.strip() for each in properties.get(key, ",".join(_VERSIONS)).split(",")]
    versions = tuple(each for each in _VERSIONS if each in asked)
    if not versions:
        raise ConfigError(f"{where}: {key} has none of {', '.join(_VERSIONS)}")
    return versions

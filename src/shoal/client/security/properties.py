"""Read Java's ``security.protocol``, ``ssl.*`` and ``sasl.*`` into a :class:`Security`."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import ConfigError
from ..properties import Property, integer
from .jaas import LoginModule, parse_jaas
from .kerberos import KERBEROS_MODULE, KERBEROS_PROPERTIES, read_kerberos
from .login import LEAST_SCRAM_ITERATIONS, KerberosLogin, OAuthLogin, PasswordLogin, Security
from .oauth_properties import OAUTH_MODULES, OAUTH_PROPERTIES, read_oauth
from .sasl import LEAST_ITERATIONS_PROPERTY
from .tls import read_tls

__all__ = ["SECURITY_PROPERTIES", "read_security"]

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

#: The login modules of each mechanism.
_MODULES: Mapping[str, frozenset[str]] = {
    "PLAIN": frozenset({"org.apache.kafka.common.security.plain.PlainLoginModule"}),
    **dict.fromkeys(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        frozenset({"org.apache.kafka.common.security.scram.ScramLoginModule"}),
    ),
    **OAUTH_MODULES,
    "GSSAPI": frozenset({KERBEROS_MODULE}),
}

#: Properties that name Java classes or Java's cipher names: shoal does not support them.
_REFUSED = frozenset(
    """
    sasl.login.class security.providers ssl.cipher.suites ssl.engine.factory.class
    """.split()  # noqa: SIM905
)

#: Properties with a meaning for tokens alone.
_REFUSED_WITHOUT_TOKENS = frozenset(
    {"sasl.client.callback.handler.class", "sasl.login.callback.handler.class"}
)

_MOST_ITERATIONS = 9_999_999

#: All properties that shoal reads, refuses, or ignores because they tune Java's own machinery.
SECURITY_PROPERTIES = (
    _REFUSED
    | OAUTH_PROPERTIES
    | KERBEROS_PROPERTIES
    | {LEAST_ITERATIONS_PROPERTY}
    | frozenset(
        """
    sasl.jaas.config sasl.mechanism security.protocol
    ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.key.password
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.protocol
    ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type

    sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
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
            raise ConfigError(f"{where}: {key} is not supported. Remove it")
    return Security(
        tls=read_tls(properties, where) if protocol.endswith("SSL") else None,
        login=_login(properties, where) if protocol.startswith("SASL_") else None,
    )


def _login(properties: Mapping[str, str], where: str) -> PasswordLogin | OAuthLogin | KerberosLogin:
    mechanism = properties.get("sasl.mechanism", "").strip()
    if not mechanism and KERBEROS_MODULE in properties.get("sasl.jaas.config", ""):
        mechanism = "GSSAPI"
    if mechanism not in _MODULES:
        # Java's default is GSSAPI, but a user who names no module for it hardly means Kerberos.
        found = f"sasl.mechanism={mechanism} is not supported" if mechanism else "no sasl.mechanism"
        raise ConfigError(f"{where}: {found}. Set one of {', '.join(_MODULES)}")
    module = _login_module(properties, mechanism, where)
    if mechanism in OAUTH_MODULES:
        return read_oauth(properties, module, where)
    for key in sorted(_REFUSED_WITHOUT_TOKENS & properties.keys()):
        if properties[key].strip():
            raise ConfigError(f"{where}: {key} is not supported with {mechanism}. Remove it")
    if mechanism == "GSSAPI":
        return read_kerberos(properties, module, where)
    return _password_login(properties, mechanism, module, where)


def _login_module(properties: Mapping[str, str], mechanism: str, where: str) -> LoginModule:
    wanted = ", ".join(_MODULES[mechanism])
    if "sasl.jaas.config" not in properties:
        raise ConfigError(
            f"{where}: no sasl.jaas.config, which names the login module. Set it to: {wanted} required …;"
        )
    try:
        module = parse_jaas(properties["sasl.jaas.config"])
    except ValueError as error:
        raise ConfigError(f"{where}: sasl.jaas.config cannot be understood: {error}") from None
    if module.name not in _MODULES[mechanism]:
        raise ConfigError(f"{where}: sasl.jaas.config has not the login module of {mechanism}: {wanted}")
    return module


def _password_login(
    properties: Mapping[str, str], mechanism: str, module: LoginModule, where: str
) -> PasswordLogin:
    if module.options.get("tokenauth", "false").lower() == "true":
        raise ConfigError(f"{where}: sasl.jaas.config: shoal does not log in by delegation tokens")
    for option in ("username", "password"):
        if not module.options.get(option):
            raise ConfigError(f"{where}: sasl.jaas.config has no {option}")
    least = Property(LEAST_ITERATIONS_PROPERTY, str(LEAST_SCRAM_ITERATIONS), integer(1, _MOST_ITERATIONS))
    return PasswordLogin(
        mechanism, module.options["username"], module.options["password"], least.value_in(properties, where)
    )

"""Read the properties and the JAAS options of OAUTHBEARER and AWS_MSK_IAM into an :class:`OAuthLogin`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from ...errors import ConfigError
from ..properties import boolean, integer, read_value
from .aws import IAM_HANDLERS, IAM_MODULE, read_iam
from .jaas import LoginModule
from .login import (
    ENDPOINT_TIMEOUT_MS,
    ClientCredentials,
    OAuthLogin,
    TokenClass,
    TokenEndpoint,
    TokenFile,
    TokenSource,
    shown_url,
)
from .tls import read_tls
from .tokens import CLASS_PROPERTY, class_of

__all__ = ["HTTP_PROPERTY", "OAUTH_MODULES", "OAUTH_PROPERTIES", "read_oauth"]

_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

#: The login modules of each mechanism.
OAUTH_MODULES: Mapping[str, frozenset[str]] = {
    "OAUTHBEARER": frozenset({_MODULE}),
    "AWS_MSK_IAM": frozenset({IAM_MODULE}),
}

#: The property that allows a token endpoint without TLS.
HTTP_PROPERTY = "shoal.oauthbearer.allow.http"

_URL = "sasl.oauthbearer.token.endpoint.url"
_ID = "sasl.oauthbearer.client.credentials.client.id"
_SECRET = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 (a name)
_SCOPE = "sasl.oauthbearer.scope"
_RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
_VALIDATOR = "sasl.oauthbearer.jwt.validator.class"
_CLIENT_HANDLER = "sasl.client.callback.handler.class"
_LONGEST_TIMEOUT_MS = 999_999_999
_TIMEOUTS = ("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms")

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."

#: Kafka's retriever that sends assertions (KIP-1139).
_BY_ASSERTION = f"{_PACKAGE}JwtBearerJwtRetriever"

#: Kafka's own handler, with its place before 3.4 (KIP-768).
_HANDLERS = frozenset(
    {f"{_PACKAGE}OAuthBearerLoginCallbackHandler", f"{_PACKAGE}secured.OAuthBearerLoginCallbackHandler"}
)
_CLIENT_HANDLERS = IAM_HANDLERS | {f"{_PACKAGE}internals.OAuthBearerSaslClientCallbackHandler"}

#: All properties that shoal reads, or ignores since they are for brokers.
OAUTH_PROPERTIES = frozenset(
    {
        *(HTTP_PROPERTY, CLASS_PROPERTY, _CLIENT_HANDLER, _RETRIEVER, _VALIDATOR, *_TIMEOUTS),
        *(_URL, _ID, _SECRET, _SCOPE),
    }
) | frozenset(
    """
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.sub.claim.name sasl.oauthbearer.scope.claim.name
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    """.split()  # noqa: SIM905
)

_URL_TEXT = re.compile(r"[\x21-\x7E]+")

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

#: As in Kafka's own client (OAuthBearerClientInitialResponse).
_EXTENSION_PREFIX = "extension_"
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+")


def read_oauth(properties: Mapping[str, str], module: LoginModule, where: str) -> OAuthLogin:
    """
    Read a login by tokens.

    Args:
        properties: All properties of a client.
        module: The login module of ``sasl.jaas.config``.
        where: The properties' source for errors.

    Raises:
        ConfigError: A property is missing, malformed or not supported.

    """
    return OAuthLogin(
        _source(properties, module, where),
        _extensions(module.options, where),
        _value(properties, "sasl.oauthbearer.sub.claim.name") or "sub",
    )


def _source(properties: Mapping[str, str], module: LoginModule, where: str) -> TokenSource:
    _check_classes(properties, where)
    handler = _value(properties, CLASS_PROPERTY)
    if module.name == IAM_MODULE or handler in IAM_HANDLERS:
        return read_iam(properties, module, where)
    if ":" in handler:
        try:
            class_of(handler)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        return TokenClass(handler, tuple(sorted(module.options.items())))
    if handler and handler not in _HANDLERS:
        raise ConfigError(
            f"{where}: {CLASS_PROPERTY}={handler} is not supported. Use Kafka's own "
            "OAuthBearerLoginCallbackHandler, or name a Python class as package.module:Class"
        )
    url = _value(properties, _URL)
    if not url:
        raise ConfigError(
            f"{where}: no {_URL}. Set the https: URL of the token endpoint, or the file: URL of a token"
        )
    if url.lower().startswith("file:"):
        return TokenFile(_path(url, where))
    return _endpoint(url, properties, module.options, where)


def _check_classes(properties: Mapping[str, str], where: str) -> None:
    """Check the classes that Java would load; shoal has their code itself."""
    client_handler = _value(properties, _CLIENT_HANDLER)
    if client_handler and client_handler not in _CLIENT_HANDLERS:
        raise ConfigError(f"{where}: {_CLIENT_HANDLER}={client_handler} is not supported. Remove it")
    for key in (_RETRIEVER, _VALIDATOR):
        value = _value(properties, key)
        if value == _BY_ASSERTION or (value and not value.startswith(_PACKAGE)):
            raise ConfigError(
                f"{where}: {key}={value} is not supported. Remove it, and name a file of tokens by {_URL} "
                f"or a Python class by {CLASS_PROPERTY}"
            )


def _path(url: str, where: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ConfigError(f"{where}: {_URL}={url} is not the URL of a file. Write file:///path/to/token")
    return unquote(parts.path)


def _endpoint(
    url: str, properties: Mapping[str, str], options: Mapping[str, str], where: str
) -> TokenEndpoint:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    is_url = host and parts.scheme in ("http", "https") and _URL_TEXT.fullmatch(url)
    if not is_url or parts.username is not None:
        raise ConfigError(
            f"{where}: {_URL} is not the URL of a token endpoint. Write https://host/path, without a user"
        )
    allows_http = read_value(properties, HTTP_PROPERTY, "false", boolean, where)
    if parts.scheme == "http" and host not in _LOOPBACK and not allows_http:
        raise ConfigError(
            f"{where}: {_URL}={shown_url(url)} has no TLS: everyone on the network could read the client's "
            f"secret and its tokens. Use https, or set {HTTP_PROPERTY}=true"
        )
    return TokenEndpoint(
        url=url,
        client=ClientCredentials(
            _credential(properties, _ID, options, "clientId", where),
            _credential(properties, _SECRET, options, "clientSecret", where),
            read_value(properties, "sasl.oauthbearer.header.urlencode", "false", boolean, where),
        ),
        scope=_value(properties, _SCOPE) or options.get("scope", "").strip() or None,
        tls=read_tls(options, f"{where}: sasl.jaas.config"),
        timeout_ms=_timeout_ms(properties, where),
    )


def _credential(
    properties: Mapping[str, str], key: str, options: Mapping[str, str], option: str, where: str
) -> str:
    """Return a property, else the option of ``sasl.jaas.config`` that it has replaced (KIP-1139)."""
    value = _value(properties, key) or options.get(option, "").strip()
    if not value:
        raise ConfigError(f"{where}: no {key}, and no {option} in sasl.jaas.config. Set one of them")
    return value


def _extensions(options: Mapping[str, str], where: str) -> tuple[tuple[str, str], ...]:
    found = []
    for option, value in options.items():
        if not option.startswith(_EXTENSION_PREFIX):
            continue
        name = option.removeprefix(_EXTENSION_PREFIX)
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
            raise ConfigError(
                f"{where}: sasl.jaas.config: {option} is not an extension of SASL. Use letters in its name, "
                "and printable ASCII in its value"
            )
        found.append((name, value))
    return tuple(found)


def _timeout_ms(properties: Mapping[str, str], where: str) -> int:
    """Return the larger one of Java's two limits: shoal has one for each wait."""
    given = [each for each in _TIMEOUTS if _value(properties, each)]
    values = [read_value(properties, each, "", integer(1, _LONGEST_TIMEOUT_MS), where) for each in given]
    return max(values, default=ENDPOINT_TIMEOUT_MS)


def _value(properties: Mapping[str, str], key: str) -> str:
    return properties.get(key, "").strip()

"""Read the properties and the JAAS options of OAUTHBEARER and AWS_MSK_IAM into an :class:`OAuthLogin`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ...errors import ConfigError
from ..properties import boolean, integer, java, read_into, table_of
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
_PACKAGE = "org.apache.kafka.common.security.oauthbearer."

#: Kafka's own handler, with its place before 3.4 (KIP-768).
_HANDLERS = frozenset(
    {f"{_PACKAGE}OAuthBearerLoginCallbackHandler", f"{_PACKAGE}secured.OAuthBearerLoginCallbackHandler"}
)
_CLIENT_HANDLERS = IAM_HANDLERS | {f"{_PACKAGE}internals.OAuthBearerSaslClientCallbackHandler"}

_TIMEOUT_MS = integer(1, 999_999_999)


def _client_handler(value: str) -> str:
    if value and value not in _CLIENT_HANDLERS:
        raise ValueError("is not supported. Remove it")
    return value


def _own_class(value: str) -> str:
    """Accept the classes of Kafka whose code shoal has itself: all but that for assertions (KIP-1139)."""
    if value == f"{_PACKAGE}JwtBearerJwtRetriever" or not (value or _PACKAGE).startswith(_PACKAGE):
        raise ValueError(
            f"is not supported. Remove it, and name a file of tokens by {_URL} or a Python class by "
            f"{CLASS_PROPERTY}"
        )
    return value


@dataclass(frozen=True, slots=True)
class _Properties:
    """Java's properties of tokens; a text is empty if it is not set."""

    handler: str = java(CLASS_PROPERTY, "")
    client_handler: str = java("sasl.client.callback.handler.class", "", _client_handler)
    retriever: str = java("sasl.oauthbearer.jwt.retriever.class", "", _own_class)
    validator: str = java("sasl.oauthbearer.jwt.validator.class", "", _own_class)
    url: str = java(_URL, "")
    client_id: str = java("sasl.oauthbearer.client.credentials.client.id", "")
    client_secret: str = java("sasl.oauthbearer.client.credentials.client.secret", "")
    scope: str = java("sasl.oauthbearer.scope", "")
    subject_claim: str = java("sasl.oauthbearer.sub.claim.name", "sub")
    escapes_header: bool = java("sasl.oauthbearer.header.urlencode", "false", boolean)
    allows_http: bool = java(HTTP_PROPERTY, "false", boolean)
    connect_timeout_ms: int | None = java("sasl.login.connect.timeout.ms", None, _TIMEOUT_MS)
    read_timeout_ms: int | None = java("sasl.login.read.timeout.ms", None, _TIMEOUT_MS)


#: All properties that shoal reads, or ignores since they are for brokers.
OAUTH_PROPERTIES = table_of(_Properties).keys() | frozenset(
    """
    sasl.oauthbearer.scope.claim.name
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
    read = read_into(_Properties, properties, where)
    if module.name == IAM_MODULE or read.handler in IAM_HANDLERS:
        source: TokenSource = read_iam(properties, module, where)
    else:
        source = _source(read, module, where)
    return OAuthLogin(source, _extensions(module.options, where), read.subject_claim or "sub")


def _source(read: _Properties, module: LoginModule, where: str) -> TokenSource:
    if ":" in read.handler:
        try:
            class_of(read.handler)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        return TokenClass(read.handler, tuple(sorted(module.options.items())))
    if read.handler and read.handler not in _HANDLERS:
        raise ConfigError(
            f"{where}: {CLASS_PROPERTY}={read.handler} is not supported. Use Kafka's own "
            "OAuthBearerLoginCallbackHandler, or name a Python class as package.module:Class"
        )
    if not read.url:
        raise ConfigError(
            f"{where}: no {_URL}. Set the https: URL of the token endpoint, or the file: URL of a token"
        )
    if read.url.lower().startswith("file:"):
        return TokenFile(_path(read.url, where))
    return _endpoint(read, module, where)


def _path(url: str, where: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ConfigError(f"{where}: {_URL}={url} is not the URL of a file. Write file:///path/to/token")
    return unquote(parts.path)


def _endpoint(read: _Properties, module: LoginModule, where: str) -> TokenEndpoint:
    url = read.url
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
    if parts.scheme == "http" and host not in _LOOPBACK and not read.allows_http:
        raise ConfigError(
            f"{where}: {_URL}={shown_url(url)} has no TLS: everyone on the network could read the client's "
            f"secret and its tokens. Use https, or set {HTTP_PROPERTY}=true"
        )
    # The options of sasl.jaas.config are older (KIP-768) than the properties (KIP-1139).
    user = (
        read.client_id or module.option("clientId"),
        read.client_secret or module.option("clientSecret"),
    )
    if not all(user):
        raise ConfigError(
            f"{where}: no sasl.oauthbearer.client.credentials.client.id with its ….client.secret. Set both, "
            "or clientId and clientSecret in sasl.jaas.config"
        )
    return TokenEndpoint(
        url=url,
        client=ClientCredentials(*user, read.escapes_header),
        scope=read.scope or module.option("scope") or None,
        tls=read_tls(module.options, f"{where}: sasl.jaas.config"),
        # Java has two limits; shoal has one for each wait.
        timeout_ms=max(read.connect_timeout_ms or 0, read.read_timeout_ms or 0) or ENDPOINT_TIMEOUT_MS,
    )


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

"""The credentials of a client, and its requirements for a broker, with stores and JAAS lines read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from .kerberos import KerberosLogin, Keytab, TicketCache
from .oauth import (
    AssertionFile,
    AwsIam,
    ClientCredentials,
    OAuthLogin,
    SignedAssertion,
    TokenClass,
    TokenEndpoint,
    TokenFile,
)
from .tls_settings import TlsSettings

__all__ = ["LEAST_SCRAM_ITERATIONS", "PasswordLogin", "Security"]

#: The minimum of RFC 7677 and of Kafka's own clients.
LEAST_SCRAM_ITERATIONS = 4096


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """
    A login by a password. The ``repr()`` does not contain it.

    Attributes:
        mechanism: ``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        least_scram_iterations: The smallest accepted number of SCRAM iterations.

    """

    mechanism: str
    username: str
    password: str = field(repr=False)
    least_scram_iterations: int = LEAST_SCRAM_ITERATIONS

    @property
    def user(self) -> str:
        """The principal that the brokers see."""
        return f"User:{self.username}"


@dataclass(frozen=True, slots=True)
class Security:
    """
    TLS and SASL settings of a listener that is not PLAINTEXT. The ``repr()`` contains no secret.

    Attributes:
        tls: The settings of an encrypted connection; None for one that is not encrypted.
        login: The SASL login; None without SASL.
        has_worked: Whether the cluster accepted the login in another process. If so, a refusal is retried.

    """

    tls: TlsSettings | None = None
    login: PasswordLogin | OAuthLogin | KerberosLogin | None = None
    has_worked: bool = False

    @property
    def mechanism(self) -> str | None:
        """The SASL mechanism on the wire; None without SASL."""
        return self.login.mechanism if self.login else None

    @property
    def protocol(self) -> str:
        """The value of Java's ``security.protocol``."""
        return ("SASL_" if self.login else "") + ("SSL" if self.tls else "PLAINTEXT")

    @property
    def is_authenticated(self) -> bool:
        """Whether the brokers know the client, by a login or a certificate."""
        return self.login is not None or (self.tls is not None and self.tls.certificates is not None)

    def without_login(self) -> Security:
        """Return the same settings for connections on which another client logs in."""
        return replace(self, login=None)

    def to_json(self) -> dict[str, Any]:
        """Return the fields for :meth:`from_json`, with the secrets."""
        return {each.name: _to_json(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Security:
        """Return the object that :meth:`to_json` was called on."""
        return cls(**{name: _from_json(value) for name, value in values.items()})


#: The classes that :class:`Security` may contain.
_PARTS: Mapping[str, type[Any]] = {
    each.__name__: each
    for each in (
        *(TlsSettings, PasswordLogin, OAuthLogin, TokenEndpoint, TokenFile, TokenClass, AwsIam),
        *(ClientCredentials, AssertionFile, SignedAssertion, KerberosLogin, Keytab, TicketCache),
    )
}


def _to_json(value: Any) -> Any:
    if is_dataclass(value):
        named = {each.name: _to_json(getattr(value, each.name)) for each in fields(value)}
        return {"class": type(value).__name__, "fields": named}
    return [_to_json(each) for each in value] if isinstance(value, tuple) else value


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return _PARTS[value["class"]](**{name: _from_json(each) for name, each in value["fields"].items()})
    return tuple(_from_json(each) for each in value) if isinstance(value, list) else value

"""
The logins of a client: values without I/O, which travel to tasks with their secrets.

A login is by a password, by tokens (:class:`OAuthLogin`) from one of three sources, or by Kerberos.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from urllib.parse import urlsplit, urlunsplit

from ...archive.credentials import StoreCredentials
from .tls import TlsSettings

__all__ = [
    "ENDPOINT_TIMEOUT_MS",
    "LEAST_SCRAM_ITERATIONS",
    "ClientCredentials",
    "Exchange",
    "KerberosLogin",
    "Keytab",
    "LoginRefused",
    "NoCredentials",
    "OAuthLogin",
    "PasswordLogin",
    "Security",
    "TicketCache",
    "TokenClass",
    "TokenEndpoint",
    "TokenFile",
    "TokenSource",
    "shown_url",
]


class NoCredentials(Exception):
    """
    There is no access token, or no Kerberos ticket.

    Attributes:
        reason: The source, the problem and the remedy, without a secret.
        may_pass: Whether a retry may succeed without a change of the configuration.

    """

    def __init__(self, reason: str, *, may_pass: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.may_pass = may_pass


class LoginRefused(Exception):
    """
    A broker refuses a login.

    The connection throws it into the exchange, which raises it with the sentence about the refusal.

    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


#: The client's side of one login: yields its messages, and receives the broker's; it ends with the last. It
#: raises ValueError with a phrase about a message, and :class:`LoginRefused` if that is thrown into it.
Exchange: TypeAlias = Generator[bytes, bytes]


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


#: The default limit of a wait for a token endpoint. A login that is renewed waits for it, and a mirror's
#: tasks have to renew their lease within seconds. Java has no default.
ENDPOINT_TIMEOUT_MS = 5_000


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """
    The grant of a client with a secret (RFC 6749, section 4.4; KIP-768).

    Attributes:
        escapes_header: Whether id and secret are URL-encoded in the Authorization header. RFC 6749 requires
            that (section 2.3.1), and Java does so only with ``sasl.oauthbearer.header.urlencode``.

    """

    client_id: str
    client_secret: str = field(repr=False)
    escapes_header: bool = False


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """
    An OAuth token endpoint.

    Attributes:
        url: An ``https`` URL; ``http`` on loopback, or if the user has allowed it.
        client: The client and its secret.
        scope: The requested scope; None for the endpoint's default.
        tls: The endpoint's own TLS, apart from the brokers'.
        timeout_ms: The limit of each wait.

    """

    url: str
    client: ClientCredentials
    scope: str | None = None
    tls: TlsSettings = field(default_factory=TlsSettings)
    timeout_ms: int = ENDPOINT_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file with a token, which another program renews; it is read at each login."""

    path: str


@dataclass(frozen=True, slots=True)
class TokenClass:
    """
    A Python class of the user, or that for Amazon MSK.

    Attributes:
        name: ``package.module:Class``.
        options: The names and values of ``sasl.jaas.config``, which may be secret.

    """

    name: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


TokenSource = TokenEndpoint | TokenFile | TokenClass


@dataclass(frozen=True, slots=True)
class OAuthLogin:
    """
    A login by OAUTHBEARER.

    Attributes:
        source: The source of the tokens.
        extensions: The SASL extensions that the brokers receive (KIP-342), such as ``logicalCluster``.
        subject_claim: The claim of a JWT that names the principal.

    """

    source: TokenSource
    extensions: tuple[tuple[str, str], ...] = ()
    subject_claim: str = "sub"

    @property
    def mechanism(self) -> str:
        """The name of the SASL mechanism. MSK accepts it for AWS_MSK_IAM, too."""
        return "OAUTHBEARER"

    @property
    def user(self) -> str:
        """The principal that the brokers see, as far as it is known without a token."""
        return "the user of its tokens"


def shown_url(url: str) -> str:
    """Return a URL for messages, without the parts that may hold a secret."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


@dataclass(frozen=True, slots=True)
class Keytab:
    """
    The keys of a principal.

    Attributes:
        path: The file, which is read at each request for a ticket if it is there: its keys may change.
        content: The file's content at the start, in Base64, for machines without the file.

    """

    path: str
    content: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TicketCache:
    """
    Tickets that another program gets and renews, such as ``kinit``.

    Attributes:
        name: The path, or the name with its type; None for the default of libkrb5.

    """

    name: str | None = None

    def __str__(self) -> str:
        return f"the ticket cache {self.name!r}" if self.name else "the default ticket cache"


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """
    A login by GSSAPI. It has a keytab, a ticket cache, or both; then the cache comes first, as in Java.

    Attributes:
        service: The first part of the brokers' principals: ``kafka`` in ``kafka/broker1.example@REALM``.
        principal: The client's principal; None for that of the ticket cache.

    """

    service: str
    principal: str | None = None
    keytab: Keytab | None = None
    ticket_cache: TicketCache | None = None

    @property
    def mechanism(self) -> str:
        """The name of the SASL mechanism."""
        return "GSSAPI"

    @property
    def user(self) -> str:
        """The client's principal; brokers map it to a user by ``sasl.kerberos.principal.to.local.rules``."""
        return f"the principal {self.principal}" if self.principal else "the principal of its ticket cache"


@dataclass(frozen=True, slots=True)
class Security:
    """
    TLS and SASL settings of a listener that is not PLAINTEXT. The ``repr()`` contains no secret.

    Attributes:
        tls: The settings of an encrypted connection; None for one that is not encrypted.
        login: The SASL login; None without SASL.
        store: The credentials of the store of an archive, which has no listener; None for a cluster.
        has_worked: Whether the cluster accepted the login in another process. If so, a refusal is retried.

    """

    tls: TlsSettings | None = None
    login: PasswordLogin | OAuthLogin | KerberosLogin | None = None
    store: StoreCredentials | None = None
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

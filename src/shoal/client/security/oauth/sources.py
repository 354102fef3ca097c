"""The sources of OAUTHBEARER tokens: values without I/O, which travel to tasks with their secrets."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from ..tls_settings import TlsSettings

__all__ = [
    "ENDPOINT_TIMEOUT_MS",
    "AssertionFile",
    "AwsIam",
    "ClientCredentials",
    "OAuthLogin",
    "SignedAssertion",
    "TokenClass",
    "TokenEndpoint",
    "TokenFile",
    "TokenSource",
    "shown_url",
]

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
class AssertionFile:
    """The grant of a signed assertion (RFC 7523) in a file, which another program renews."""

    path: str


@dataclass(frozen=True, slots=True)
class SignedAssertion:
    """
    The grant of an assertion that shoal signs (RFC 7523; KIP-1139).

    Attributes:
        algorithm: ``RS256`` or ``ES256``.
        private_key: The key in PEM, not encrypted.
        header: Further fields of the header, as a JSON object.
        claims: The claims that stay the same, as a JSON object.
        lives_s: The seconds from now until the assertion expires.
        valid_before_s: The seconds before now from which it is valid.
        has_id: Whether each assertion has an id of its own.

    """

    algorithm: str
    private_key: str = field(repr=False)
    header: str = "{}"
    claims: str = "{}"
    lives_s: int = 300
    valid_before_s: int = 60
    has_id: bool = False


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """
    An OAuth token endpoint.

    Attributes:
        url: An ``https`` URL; ``http`` on loopback, or if the user has allowed it.
        grant: The reason for which the endpoint gives tokens.
        scope: The requested scope; None for the endpoint's default.
        tls: The endpoint's own TLS, apart from the brokers'.
        timeout_ms: The limit of each wait.

    """

    url: str
    grant: ClientCredentials | AssertionFile | SignedAssertion
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
    A Python class of the user.

    Attributes:
        name: ``package.module:Class``.
        options: The names and values of ``sasl.jaas.config``, which may be secret.

    """

    name: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class AwsIam:
    """
    Tokens for Amazon MSK, signed with credentials of AWS. The attributes are those of ``IAMLoginModule``.

    Attributes:
        region: The cluster's region.
        profile: A profile of AWS's configuration files; None for the default chain of credentials.
        role_arn: A role to assume; None for none.
        role_key: The access key, secret key and session token (or nothing) that may assume the role.

    """

    region: str
    profile: str | None = None
    role_arn: str | None = None
    role_session_name: str | None = None
    role_external_id: str | None = None
    role_key: tuple[str, str, str | None] | None = field(default=None, repr=False)
    sts_region: str | None = None


TokenSource = TokenEndpoint | TokenFile | TokenClass | AwsIam


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

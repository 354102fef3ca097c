"""What a gateway is told."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..client.config import ClientConfig
from ..client.security import Security
from ..net.server_tls import TlsFiles
from ..records.down_conversion.response import DEFAULT_CHUNK_BYTES, DEFAULT_LIMIT_BYTES
from .login import UserFile
from .versions import API_NAMES

__all__ = ["DEFAULT_BUFFER_BYTES", "GatewaySettings"]

#: All answers under way are converted by turns, so each takes as long as all: with hundreds of clients and
#: a megabyte each that would be longer than old clients wait (40 s in Java 0.9), and none would get anywhere.
DEFAULT_BUFFER_BYTES = 128 * 1024

#: PostgreSQL's default of ``authentication_timeout``; sshd's ``LoginGraceTime`` is 2 minutes. Kafka has no
#: limit but ``connections.max.idle.ms``.
DEFAULT_LOGIN_S = 60.0


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """
    Attributes:
        host: The address to listen on.
        port: Of the listener that clients bootstrap from; broker N of the cluster is at ``port + 1 + N``.
            With 0 all of them are free ones.
        upstream: How to reach the cluster. Its isolation level is what old clients see of transactions.
        advertised_host: What clients are told to connect to; None for ``host``.
        allow_any_address: Listen also where other machines can connect.
        tls: On the listeners; None for plain ones.
        users: Who may log in; None asks for no login.
        mechanisms: Of SASL, that clients may log in by as ``users``.
        pass_through: Clients log in at the brokers themselves, through the gateway. It logs in only to ask
            which brokers there are at the start, and that only if ``upstream`` has a login.
        broker_ids: Of brokers to listen for from the start, whether the cluster names them or not.
        login_s: For how long a client may take until it has logged in.
        buffer_bytes: The most that is asked of a broker for one old client's fetch, whatever it wants; a
            single larger batch comes whole.
        largest_batch_bytes: A batch that is larger, or expands to more, cannot be given to an old client.
        chunk_bytes: How much of it is converted at a time.
        most_connections: Of clients, on all listeners together; a client may have several.
        most_connections_per_address: Of the clients at one address, or in one IPv6 network of 64 bits;
            None for as many as of all.
        largest_produced_bytes: The most that a message set in a Produce request may expand to; each of its
            messages counts as 64 bytes at least.
        largest_request_bytes: Of a request that has to be translated; what passes through is never held.
        queued_request_bytes: Of all requests that are translated at the same time, and larger than 64 KiB.
        apis: The keys of the APIs that clients may use, besides ApiVersions.
        allow_broker_configs: Let clients change the settings of brokers too, logins at the cluster included.
        idle_s: For how long a client may keep the gateway waiting, between requests and within them.

    """

    host: str
    port: int
    upstream: ClientConfig
    advertised_host: str | None = None
    allow_any_address: bool = False
    tls: TlsFiles | None = None
    users: UserFile | None = None
    mechanisms: tuple[str, ...] = ()
    pass_through: bool = False
    broker_ids: frozenset[int] = frozenset()
    login_s: float = DEFAULT_LOGIN_S
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    largest_batch_bytes: int = DEFAULT_LIMIT_BYTES
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    most_connections: int = 1000
    most_connections_per_address: int | None = None
    largest_produced_bytes: int = 16 * 1024 * 1024
    largest_request_bytes: int = 16 * 1024 * 1024
    queued_request_bytes: int = 256 * 1024 * 1024
    apis: frozenset[int] = frozenset(API_NAMES)
    allow_broker_configs: bool = False
    idle_s: float = 600.0

    @property
    def asks_for_login(self) -> bool:
        """Whether a client has to log in, here or at the broker behind its listener."""
        return self.users is not None or self.pass_through

    @property
    def may_ask_cluster(self) -> bool:
        """Whether the gateway can ask the cluster anything without a client."""
        security = self.upstream.security
        return not self.pass_through or (security is not None and security.mechanism is not None)

    @property
    def client_security(self) -> Security | None:
        """How to connect to a broker for a client: with the upstream login, unless clients have their own."""
        security = self.upstream.security
        if security is None or not self.pass_through:
            return security
        return replace(security, mechanism=None, username="", password="")

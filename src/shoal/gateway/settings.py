"""The settings of a gateway."""

from __future__ import annotations

from dataclasses import dataclass

from ..client.config import ClientConfig
from ..client.security import Security
from ..records.compression import DEFAULT_LIMIT_BYTES
from ..records.down_conversion.response import DEFAULT_CHUNK_BYTES
from ..timing import DEFAULT_TIMING, Timing
from .server_tls import TlsFiles
from .versions import allowed_apis

__all__ = ["DEFAULT_BUFFER_BYTES", "GatewaySettings"]

#: Conversions take turns, so each answer takes as long as all of them together. With hundreds of clients and
#: a megabyte each, this would exceed the request timeout of old clients (40 s in Java 0.9).
DEFAULT_BUFFER_BYTES = 128 * 1024

#: PostgreSQL's default of ``authentication_timeout``; sshd's ``LoginGraceTime`` is 2 minutes. Kafka has no
#: limit but ``connections.max.idle.ms``.
DEFAULT_LOGIN_S = 60.0


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """
    The settings of a gateway.

    Attributes:
        host: The address to listen on.
        port: The port of the bootstrap listener; broker N of the cluster has the port ``port + 1 + N``.
            With 0 all listeners have free ports.
        upstream: The connection to the cluster. Its isolation level applies to translated requests.
        advertised_host: The host that clients connect to; None for ``host``.
        allow_any_address: Allow an address that other machines can connect to.
        tls: TLS of the listeners; None for plain TCP.
        pass_through: Clients log in at the brokers, through the gateway. The gateway itself logs in only at
            its start, to ask for the brokers, and only if ``upstream`` has a login.
        broker_ids: Brokers to listen for from the start, also if the cluster does not have them yet.
        login_s: The time limit for a client's login.
        buffer_bytes: The limit for a Fetch that is translated, also if the client asks for more. A single
            larger batch comes whole.
        largest_batch_bytes: The limit for a batch, compressed or not, that an old client can receive.
        chunk_bytes: The size of the pieces in which a batch is converted.
        most_connections: The limit for clients' connections on all listeners together.
        most_connections_per_address: The limit for the connections from one address, or from one IPv6
            network of 64 bits; None for no limit of its own.
        largest_produced_bytes: The limit for a message set in a Produce request after decompression, where
            each message counts as at least 64 bytes.
        largest_request_bytes: The limit for a translated request; a request that passes through has none.
        bytes_in_flight: The limit for all messages together that are larger than 64 KiB and that the gateway
            holds whole: requests that it translates, and answers that it decodes.
        read_only: Serve neither Produce nor transactions.
        allow_create_topics: Serve CreateTopics.
        idle_s: The timeout for a client, between its requests and within them.
        timing: How long clients wait for one another.

    """

    host: str
    port: int
    upstream: ClientConfig
    advertised_host: str | None = None
    allow_any_address: bool = False
    tls: TlsFiles | None = None
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
    bytes_in_flight: int = 256 * 1024 * 1024
    read_only: bool = False
    allow_create_topics: bool = False
    idle_s: float = 600.0
    timing: Timing = DEFAULT_TIMING

    @property
    def apis(self) -> frozenset[int]:
        """The keys of the APIs that clients may use, besides ApiVersions and those of a login."""
        return allowed_apis(read_only=self.read_only, create_topics=self.allow_create_topics)

    @property
    def may_ask_cluster(self) -> bool:
        """Whether the gateway can send requests to the cluster without a client."""
        security = self.upstream.security
        return not self.pass_through or (security is not None and security.mechanism is not None)

    @property
    def client_security(self) -> Security | None:
        """The security of connections for clients: with the upstream login, unless clients have their own."""
        security = self.upstream.security
        if security is None or not self.pass_through:
            return security
        return security.without_login()

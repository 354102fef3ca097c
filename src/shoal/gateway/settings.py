"""The settings of a gateway."""

from __future__ import annotations

from dataclasses import dataclass

from .. import kinds
from ..client.config import ClientConfig
from ..client.security import Security
from ..declare import option
from ..records.down_conversion.response import DEFAULT_CHUNK_BYTES
from ..timing import DEFAULT_TIMING, Timing
from .server_tls import TlsFiles
from .versions import allowed_apis

__all__ = ["DEFAULT_BUFFER_BYTES", "GatewaySettings"]

#: Conversions take turns, so each answer takes as long as all of them together. With hundreds of clients and
#: a megabyte each, this would exceed the request timeout of old clients (40 s in Java 0.9).
DEFAULT_BUFFER_BYTES = 128 * 1024

_SMALLEST_BUFFER_BYTES = 64 * 1024
_LARGEST_REQUEST_BYTES = 16 * 1024 * 1024
_LARGEST_INT32 = 2**31 - 1


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
        tls: TLS of the listeners; None for plain TCP.
        pass_through: Clients log in at the brokers, through the gateway. The gateway itself logs in only at
            its start, to ask for the brokers, and only if ``upstream`` has a login.
        broker_ids: Brokers to listen for from the start, also if the cluster does not have them yet.
        largest_produced_bytes: The limit for a message set in a Produce request after decompression, where
            each message counts as at least 64 bytes.
        largest_request_bytes: The limit for a translated request; a request that passes through has none.
        idle_s: The timeout for a client, between its requests and within them.
        timing: How long clients wait for one another.

    """

    host: str
    port: int
    upstream: ClientConfig
    advertised_host: str | None = None
    allow_any_address: bool = option(
        kinds.FLAG,
        "allow --listen to use an address that other machines can reach. Clients there act as the upstream "
        "user, unless they log in by --sasl-pass-through",
        group="addresses",
    )
    tls: TlsFiles | None = None
    pass_through: bool = False
    broker_ids: frozenset[int] = frozenset()
    buffer_bytes: int = option(
        kinds.size(_SMALLEST_BUFFER_BYTES, _LARGEST_INT32),
        "maximum size of a fetch from a broker for one fetch of an old client. A single larger batch comes "
        "whole",
        default=DEFAULT_BUFFER_BYTES,
        group="limits",
    )
    chunk_bytes: int = option(
        kinds.size(1, _LARGEST_INT32),
        "number of bytes that are converted at a time, in whole batches",
        default=DEFAULT_CHUNK_BYTES,
        group="limits",
    )
    most_connections: int = option(
        kinds.whole(1, _LARGEST_INT32),
        "maximum number of client connections. One client may have one for bootstrap, one to each broker and "
        "one to its coordinator",
        default=1000,
        group="limits",
        name="max-connections",
    )
    most_connections_per_address: int | None = option(
        kinds.whole(1, _LARGEST_INT32),
        "maximum number of connections from one IP address, or from one IPv6 network of 64 bits "
        "(default: as --max-connections)",
        default=None,
        group="limits",
        name="max-connections-per-address",
    )
    largest_produced_bytes: int = 16 * 1024 * 1024
    largest_request_bytes: int = _LARGEST_REQUEST_BYTES
    bytes_in_flight: int = option(
        kinds.size(_LARGEST_REQUEST_BYTES, 2**50),
        "maximum size of all requests and answers above 64 KiB that the gateway holds whole, together. "
        "Further ones wait. A batch that is converted may have a quarter of it, compressed or not",
        default=256 * 1024 * 1024,
        group="limits",
        name="max-bytes-in-flight",
    )
    read_only: bool = option(
        kinds.FLAG,
        "serve no Produce and no transactions, so that clients only read records and commit offsets",
        group="permissions of clients",
    )
    allow_create_topics: bool = option(
        kinds.FLAG,
        "serve CreateTopics. The gateway serves no other API of administrators",
        group="permissions of clients",
    )
    idle_s: float = 600.0
    timing: Timing = DEFAULT_TIMING

    @property
    def largest_batch_bytes(self) -> int:
        """The maximum size of a batch that is converted, compressed or not; a larger one is refused."""
        return self.bytes_in_flight // 4

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

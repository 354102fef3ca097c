"""What a gateway is told."""

from __future__ import annotations

from dataclasses import dataclass

from ..client.config import ClientConfig
from ..records.down_conversion.response import DEFAULT_CHUNK_BYTES, DEFAULT_LIMIT_BYTES
from ..server_tls import TlsFiles
from .versions import API_NAMES

__all__ = ["DEFAULT_BUFFER_BYTES", "GatewaySettings"]

#: All answers under way are converted by turns, so each takes as long as all: with hundreds of clients and
#: a megabyte each that would be longer than old clients wait (40 s in Java 0.9), and none would get anywhere.
DEFAULT_BUFFER_BYTES = 128 * 1024


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
        buffer_bytes: The most that is asked of a broker for one old client's fetch, whatever it wants; a
            single larger batch comes whole.
        largest_batch_bytes: A batch that is larger, or expands to more, cannot be given to an old client.
        chunk_bytes: How much of it is converted at a time.
        most_connections: Of clients, on all listeners together; a client may have several.
        most_connections_per_address: Of the clients at one address; None for as many as of all.
        largest_produced_bytes: The most that a message set in a Produce request may expand to; each of its
            messages counts as 64 bytes at least.
        largest_request_bytes: Of a request that has to be translated; what passes through is never held.
        apis: The keys of the APIs that clients may use, besides ApiVersions.
        idle_s: For how long a client may keep the gateway waiting, between requests and within them.

    """

    host: str
    port: int
    upstream: ClientConfig
    advertised_host: str | None = None
    allow_any_address: bool = False
    tls: TlsFiles | None = None
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    largest_batch_bytes: int = DEFAULT_LIMIT_BYTES
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    most_connections: int = 1000
    most_connections_per_address: int | None = None
    largest_produced_bytes: int = 16 * 1024 * 1024
    largest_request_bytes: int = 16 * 1024 * 1024
    apis: frozenset[int] = frozenset(API_NAMES)
    idle_s: float = 600.0

"""Connections for the sender: to destinations that may lie, and to the embedded broker, also with TLS."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shoal.client.connection import Connection
from shoal.client.lot import Gate, Limits, Lot, Sent, open_gate
from shoal.client.security import Security
from shoal.client.send import send
from shoal.error_codes import ErrorCode
from shoal.net.address import Address
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import decode_request, encode_response, read_request_header, response_class
from shoal.topic_partition import TopicPartition
from tests.native.destination import Destination, lot

__all__ = ["TOPICS", "Leader", "connected", "lot_of", "send_lots", "through_tls"]

TOPICS = ("topic", "other")

#: More than any test needs, in seconds.
_PATIENCE_S = 60.0

_VERSIONS = {
    ApiKey.PRODUCE: (3, 12),
    ApiKey.API_VERSIONS: (0, 0),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
}


def lot_of(partition: int = 0, batches: int = 8, **options: Any) -> Lot:
    """Return a lot of batches with 2 records each; see :func:`tests.native.destination.lot`."""
    row = lot(partition, batches, **options)
    return Lot(TopicPartition(TOPICS[row.topic], partition), *row[2:7])


def send_lots(connection: Connection, lots: Sequence[Lot], gate: Gate | None = None, **limits: Any) -> Sent:
    """Send with a mirror's usual limits."""
    chosen = Limits(**{"forgotten_up_to_ms": 1000, "request_bytes": 1 << 20, **limits})
    return send(connection, lots, chosen, open_gate() if gate is None else gate)


class Leader:
    """
    A destination, and the other answers of a broker that a connection needs.

    Attributes:
        address: Its address.
        logins: How many requests of Produce had come before each login.

    """

    def __init__(
        self,
        destination: Destination,
        tls: ssl.SSLContext | None,
        *,
        session_ms: int = 0,
        accepted_logins: int | None = None,
        receive_buffer: int | None = None,
        surplus: bytes = b"",
    ) -> None:
        destination.other = self.answer
        self._destination = destination
        self._tls = tls
        self._session_ms = session_ms
        self._accepted_logins = accepted_logins
        self._surplus = surplus
        self._listener = socket.create_server(("127.0.0.1", 0))
        if receive_buffer is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.address = Address(*self._listener.getsockname())
        self.logins: list[int] = []

    def serve(self) -> None:
        """Serve one connection to its end."""
        with self._listener:
            accepted, _ = self._listener.accept()
        with contextlib.suppress(OSError):
            if self._tls is not None:
                accepted = self._tls.wrap_socket(accepted, server_side=True)
            with accepted:
                self._destination.serve(accepted)

    def answer(self, frame: bytes) -> bytes:
        """Answer a request of the opening."""
        header = read_request_header(memoryview(frame))
        api = ApiKey(header.api_key)
        decode_request(header, memoryview(frame))
        fields: dict[str, Any] = {"error_code": 0}
        if api is ApiKey.API_VERSIONS:
            entry = response_class(api).ApiVersion
            fields["api_keys"] = [
                entry(api_key=key, min_version=oldest, max_version=newest)
                for key, (oldest, newest) in _VERSIONS.items()
            ]
        elif api is ApiKey.SASL_HANDSHAKE:
            fields["mechanisms"] = ["PLAIN"]
        else:
            if len(self.logins) == self._accepted_logins:
                fields["error_code"] = ErrorCode.SASL_AUTHENTICATION_FAILED
            self.logins.append(len(self._destination.requests))
            fields |= {"error_message": None, "auth_bytes": b"", "session_lifetime_ms": self._session_ms}
        response = response_class(api)(version=header.api_version, **fields)
        return bytes(encode_response(response, header.correlation_id)) + self._surplus


@contextlib.contextmanager
def connected(
    serve: Callable[[], object], address: Address, security: Security | None, timeout_s: float = _PATIENCE_S
) -> Iterator[Connection]:
    """Connect to an address that a thread serves, which ends with the connection."""
    serving = threading.Thread(target=serve)
    serving.start()
    try:
        with Connection(address, client_id="shoal", timeout_s=timeout_s, security=security) as connection:
            yield connection
    finally:
        serving.join()


def through_tls(listener: socket.socket, tls: ssl.SSLContext, address: Address) -> None:
    """Serve one connection with TLS, by an address without it."""
    with listener:
        accepted, _ = listener.accept()
    with (
        contextlib.suppress(OSError),
        tls.wrap_socket(accepted, server_side=True) as client,
        socket.create_connection(address) as broker,
    ):
        for ends in itertools.repeat([client, broker]):
            for readable in [client] if client.pending() else select.select(ends, [], [])[0]:
                data = readable.recv(1 << 16)
                if not data:
                    return
                (broker if readable is client else client).sendall(data)

"""
The broker's sockets: frames in, and the parts of answers out.

The requests of a connection are served one after the other and answered in order. Kafka does the same: it
mutes a connection until its answer is sent.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Sequence
from functools import partial

from shoal.net.gathered import send_all
from shoal.net.hung_up import has_hung_up
from shoal.net.listener import Admitted, Listener
from shoal.printable import logger

from .dispatch import CloseConnection

__all__ = ["LARGEST_REQUEST_BYTES", "Server"]

_log = logger("shoal_broker")

_SIZE = struct.Struct(">i")

#: Kafka's default of ``socket.request.max.bytes``. A test's mistake must not take all memory of the machine.
LARGEST_REQUEST_BYTES = 100 * 1024 * 1024

_PART_BYTES = 256 * 1024

#: A client may take an answer as slowly as it likes.
_PATIENCE_S = 1_000_000.0

Answer = Callable[[memoryview, str, Callable[[], bool]], Sequence[bytes | memoryview]]


class Server:
    """Listens on one address while it is started."""

    def __init__(self, host: str, port: int, answer: Answer) -> None:
        """
        Prepare a server; nothing listens yet.

        Args:
            host: The address to bind.
            port: The port, or 0 for a free one, which is kept for every later start.
            answer: Serves a request. It gets the frame, the client's address, and a function that returns
                whether the client hung up; it returns the parts of the answer.

        """
        self.answer = answer
        self._listener = Listener(host, port, self._admit, "shoal-broker")

    @property
    def port(self) -> int:
        """The port, known after the first start."""
        return self._listener.port

    @property
    def connections(self) -> int:
        """The number of open connections of clients."""
        return self._listener.connections

    def start(self) -> None:
        """
        Listen, and serve clients in other threads.

        Raises:
            OSError: The port is taken.

        """
        self._listener.start()

    def stop(self) -> None:
        """Close every connection, and wait for the end of all threads."""
        self._listener.stop()

    def _admit(self, client: socket.socket) -> Admitted | None:
        try:
            host = client.getpeername()[0]
        except OSError:
            return None  # the client has gone already
        return Admitted(partial(self._serve, client, host))

    def _serve(self, client: socket.socket, host: str) -> None:
        try:
            self._serve_requests(client, host)
        except CloseConnection as reason:
            _log.debug("closing a connection: %s", reason)
            with contextlib.suppress(OSError):
                send_all(client, [reason.last_bytes], _PATIENCE_S)
        except OSError as error:
            _log.debug("a connection ended: %s", error)

    def _serve_requests(self, client: socket.socket, host: str) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (frame := _receive(client)) is not None:
            send_all(client, self.answer(frame, host, partial(has_hung_up, client)), _PATIENCE_S)


def _receive(sock: socket.socket) -> memoryview | None:
    """
    Return the next frame; None if there are no more.

    Raises:
        CloseConnection: The frame has a negative length or too many bytes, or the client hung up within it.

    """
    head = _read(sock, _SIZE.size)
    if not head:
        return None
    size = _SIZE.unpack(head)[0] if len(head) == _SIZE.size else -1
    if not 0 <= size <= LARGEST_REQUEST_BYTES:
        raise CloseConnection(f"a frame of {size} bytes")
    frame = _read(sock, size)
    if len(frame) < size:
        raise CloseConnection("the client hung up within a request")
    return memoryview(frame)


def _read(sock: socket.socket, size: int) -> bytearray:
    """Return so many bytes, or fewer if the client sends no more; memory grows with what arrives."""
    received = bytearray()
    while len(received) < size and (part := sock.recv(min(size - len(received), _PART_BYTES))):
        received += part
    return received

"""
The broker's sockets: frames in, and the parts of answers out.

The requests of a connection are served one after the other and answered in
order, as Kafka does, which mutes a connection until its answer is sent.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from ..listener import Listener
from ..printable import logger
from .dispatch import CloseConnection

__all__ = ["Server"]

_log = logger("shoal.broker")

_SIZE = struct.Struct(">i")

#: How many parts `sendmsg` takes at once (IOV_MAX on Linux and macOS).
_MAX_PARTS = 1024

#: A connection keeps its receive buffer up to this size from request to request.
_KEPT_BUFFER_BYTES = 32 * 1024 * 1024

#: A frame's buffer grows with what arrives: a length alone allocates no more than this.
_STEP_BYTES = 1024 * 1024


class Streamed(Protocol):
    """A part of an answer that is not in memory as a whole: of a file, or made while it is sent."""

    def __len__(self) -> int: ...

    def send_to(self, sock: socket.socket) -> None:
        """Send as many bytes as its length says."""


Part = bytes | memoryview | Streamed
Answer = Callable[[memoryview, str], Sequence[Part]]


class Server:
    """Listens on one address while it is started."""

    def __init__(self, host: str, port: int, max_request_bytes: int, answer: Answer) -> None:
        """
        Prepare a server; nothing listens yet.

        Args:
            host: The address to bind.
            port: The port, or 0 for a free one, which is kept for every later start.
            max_request_bytes: A larger frame closes its connection.
            answer: What serves a request: from its frame, and the client's
                address, to the parts of the answer.

        """
        self._max_request_bytes = max_request_bytes
        self._answer = answer
        self._listener = Listener(host, port, self._serve, "shoal-broker")

    @property
    def port(self) -> int:
        """Where it listens; from the first start on."""
        return self._listener.port

    def start(self) -> None:
        """
        Listen, and serve in threads of our own.

        Raises:
            OSError: The port is taken.

        """
        self._listener.start()

    def stop(self) -> None:
        """Close every connection, and return when all threads ended."""
        self._listener.stop()

    def _serve(self, client: socket.socket) -> None:
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            host = client.getpeername()[0]
            receiver = _Receiver(client, self._max_request_bytes)
            while (frame := receiver.receive()) is not None:
                _send(client, self._answer(frame, host))
        except CloseConnection as reason:
            _log.debug("closing a connection: %s", reason)
            with contextlib.suppress(OSError):
                _send(client, [reason.last_bytes])
        except OSError as error:
            _log.debug("a connection ended: %s", error)


class _Receiver:
    """Reads frames from a socket into one buffer, which grows as needed."""

    def __init__(self, sock: socket.socket, max_bytes: int) -> None:
        self._sock = sock
        self._max_bytes = max_bytes
        self._buffer = bytearray(64 * 1024)

    def receive(self) -> memoryview | None:
        """Return the next frame, valid until the next call; None at the end."""
        if len(self._buffer) > _KEPT_BUFFER_BYTES:
            self._buffer = bytearray(64 * 1024)
        if not self._fill(0, _SIZE.size):
            return None
        (size,) = _SIZE.unpack_from(self._buffer)
        if not 0 <= size <= self._max_bytes:
            raise CloseConnection(f"a frame of {size} bytes")
        received = 0
        while received < size:
            end = min(size, received + max(_STEP_BYTES, received))
            if end > len(self._buffer):
                self._buffer = self._buffer[:received] + bytearray(end - received)
            if not self._fill(received, end):
                raise CloseConnection("the client went away within a request")
            received = end
        return memoryview(self._buffer)[:size]

    def _fill(self, start: int, end: int) -> bool:
        """Receive the bytes from ``start`` to ``end``; tell whether the client sent them all."""
        view = memoryview(self._buffer)
        while start < end:
            count = self._sock.recv_into(view[start:end])
            if count == 0:
                return False
            start += count
        return True


def _send(sock: socket.socket, parts: Sequence[Part]) -> None:
    """Send all parts in order; what lies in files never comes into this process as a whole."""
    in_memory: list[memoryview] = []
    for part in parts:
        if not len(part):
            continue
        if isinstance(part, bytes | bytearray | memoryview):
            in_memory.append(memoryview(part))
        else:
            _send_buffers(sock, in_memory)
            in_memory = []
            part.send_to(sock)
    _send_buffers(sock, in_memory)


def _send_buffers(sock: socket.socket, left: list[memoryview]) -> None:
    """Send buffers, whatever their number, without joining them."""
    position = 0
    while position < len(left):
        sent = sock.sendmsg(left[position : position + _MAX_PARTS])
        while position < len(left) and sent >= len(left[position]):
            sent -= len(left[position])
            position += 1
        if sent:
            left[position] = left[position][sent:]

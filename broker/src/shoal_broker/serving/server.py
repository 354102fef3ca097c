"""
The broker's sockets: frames in, and the parts of answers out.

The requests of a connection are served one after the other and answered in order. Kafka does the same: it
mutes a connection until its answer is sent.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from shoal.net.converting import serving
from shoal.net.gathered import send_gathered
from shoal.net.hung_up import has_hung_up
from shoal.net.listener import Admitted, Listener
from shoal.net.memory_budget import MemoryBudget
from shoal.printable import logger

from .connection_quotas import ConnectionQuotas
from .dispatch import CloseConnection

__all__ = ["Server"]

_log = logger("shoal_broker")

_SIZE = struct.Struct(">i")

#: Seconds and microseconds, as the system's own `timeval`.
_TIMEVAL = struct.Struct("@ll")

#: The buffer of each connection, kept from one request to the next. A larger request takes memory that all
#: connections share, but only after so many of its bytes arrived: a length alone takes none.
_OWN_BYTES = 1024 * 1024


class Streamed(Protocol):
    """A part of an answer that is not in memory as a whole: a range of a file, or converted while sent."""

    def __len__(self) -> int: ...

    def send_to(self, sock: socket.socket) -> None:
        """Send all bytes; their number is the length."""


Part = bytes | memoryview | Streamed
Answer = Callable[[memoryview, str, Callable[[], bool]], Sequence[Part]]


class Server:
    """Listens on one address while it is started."""

    def __init__(
        self,
        host: str,
        port: int,
        answer: Answer,
        *,
        max_request_bytes: int,
        max_idle_ms: int,
        memory: MemoryBudget,
        quotas: ConnectionQuotas,
    ) -> None:
        """
        Prepare a server; nothing listens yet.

        Args:
            host: The address to bind.
            port: The port, or 0 for a free one, which is kept for every later start.
            answer: Serves a request. It gets the frame, the client's address, and a function that returns
                whether the client hung up; it returns the parts of the answer.
            max_request_bytes: The largest frame; a larger one closes its connection.
            max_idle_ms: The longest time without a byte of the next request, or without progress of an
                answer; then the connection closes. 0 or less is forever.
            memory: The shared memory for requests that are larger than a connection's buffer.
            quotas: The limits on connections; connections beyond them are closed.

        """
        self._max_idle_ms = max_idle_ms
        self._memory = memory
        self._quotas = quotas
        self._max_request_bytes = max_request_bytes
        self._answer = answer
        self._listener = Listener(host, port, self._admit, "shoal-broker")

    @property
    def port(self) -> int:
        """The port, known after the first start."""
        return self._listener.port

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
        if not self._quotas.enter(host):
            return None
        return Admitted(partial(self._serve, client, host), partial(self._quotas.leave, host))

    def _serve(self, client: socket.socket, host: str) -> None:
        try:
            with serving(host):
                self._serve_requests(client, host)
        except CloseConnection as reason:
            _log.debug("closing a connection: %s", reason)
            with contextlib.suppress(OSError):
                _send(client, [reason.last_bytes])
        except OSError as error:
            _log.debug("a connection ended: %s", error)

    def _serve_requests(self, client: socket.socket, host: str) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._max_idle_ms > 0:
            _limit_idleness(client, self._max_idle_ms)
        receiver = _Receiver(client, self._max_request_bytes, self._memory)
        while (parts := self._serve_next(receiver, host, client)) is not None:
            _send(client, parts)

    def _serve_next(self, receiver: _Receiver, host: str, client: socket.socket) -> Sequence[Part] | None:
        """Answer the next request, and release its memory before the answer is sent; None at the end."""
        with receiver.receive() as frame:
            return None if frame is None else self._answer(frame, host, partial(has_hung_up, client))


def _limit_idleness(client: socket.socket, most_ms: int) -> None:
    """
    Set a timeout for reads and writes.

    Python's own timeout would make the socket non-blocking, which ``sendfile`` does not support.
    """
    limit = _TIMEVAL.pack(most_ms // 1000, most_ms % 1000 * 1000)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        client.setsockopt(socket.SOL_SOCKET, option, limit)


class _Receiver:
    """Reads frames from a socket into one buffer, which grows with what arrives."""

    def __init__(self, sock: socket.socket, max_bytes: int, memory: MemoryBudget) -> None:
        self._sock = sock
        self._max_bytes = max_bytes
        self._memory = memory
        self._buffer = bytearray(64 * 1024)

    @contextlib.contextmanager
    def receive(self) -> Iterator[memoryview | None]:
        """Give the next frame, whose memory is released at the end; None if there are no more."""
        if not self._fill(0, _SIZE.size):
            yield None
            return
        (size,) = _SIZE.unpack_from(self._buffer)
        if not 0 <= size <= self._max_bytes:
            raise CloseConnection(f"a frame of {size} bytes")
        self._receive(0, min(size, _OWN_BYTES))
        if size <= _OWN_BYTES:
            yield memoryview(self._buffer)[:size]
            return
        with self._memory.share(self._sock, size) as share:
            try:
                self._receive(_OWN_BYTES, size)
                share.is_received = True
                yield memoryview(self._buffer)[:size]
            finally:
                self._buffer = bytearray(64 * 1024)

    def _receive(self, received: int, size: int) -> None:
        while received < size:
            end = min(size, max(2 * received, _OWN_BYTES))
            if end > len(self._buffer):
                grown = bytearray(end)
                grown[:received] = memoryview(self._buffer)[:received]
                self._buffer = grown
            if not self._fill(received, end):
                raise CloseConnection("the client hung up within a request")
            received = end

    def _fill(self, start: int, end: int) -> bool:
        """Receive the bytes from ``start`` to ``end``; return whether the client sent all of them."""
        view = memoryview(self._buffer)
        while start < end:
            count = self._sock.recv_into(view[start:end])
            if count == 0:
                return False
            start += count
        return True


def _send(sock: socket.socket, parts: Sequence[Part]) -> None:
    """Send all parts in order; ranges of files never come into this process as a whole."""
    in_memory: list[memoryview] = []
    for part in parts:
        if not len(part):
            continue
        if isinstance(part, bytes | bytearray | memoryview):
            in_memory.append(memoryview(part))
        else:
            send_gathered(sock, in_memory)
            in_memory = []
            part.send_to(sock)
    send_gathered(sock, in_memory)

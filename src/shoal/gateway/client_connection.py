"""A client's connection: its requests, read as far as they are needed, the answers, and what it holds."""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from ..client.connection import Connection
from ..errors import ProtocolError
from ..net import tls_handshake
from ..net.budget import Budget, Refused, Share, network_of
from ..net.hung_up import has_hung_up
from ..net.listener import hang_up
from ..protocol.codec import RequestHeader, read_request_header
from ..protocol.primitives import INT16, INT32
from .converting import CORES, LARGE

__all__ = ["LARGE_BYTES", "PIECE_BYTES", "Client", "ClientGone", "ClientRequest"]

#: The buffer through which requests and answers are forwarded.
PIECE_BYTES = 64 * 1024

#: The largest message for the compiled decoder of :mod:`..protocol.codec`, which needs up to 0.3 s for it.
#: Smaller ones do not count in the memory of all clients.
LARGE_BYTES = 64 * 1024

#: The time that a client has for its TLS handshake.
_HANDSHAKE_S = 20.0

#: Kafka's default of ``socket.request.max.bytes``.
_LARGEST_REQUEST = 100 * 1024 * 1024

#: A TLS close_notify takes no more, in any cipher suite; hardly a request takes less.
_TLS_GOODBYE_BYTES = 96

#: API key, version, correlation id, and the client id's length.
_FIXED_HEADER = struct.Struct(">hhih")


class ClientGone(Exception):
    """The client hung up, is too slow, or broke the protocol: its connection ends."""


class Client:
    """
    One client's connection, for one thread; others may :meth:`end` it.

    A client proves itself by its TLS handshake with a certificate, by its login or, without a login, by its
    first request. Until then a new connection may take its place.

    All methods raise :class:`ClientGone` if the client hangs up, or exceeds a timeout.

    Attributes:
        host: The client's address.
        network: The client, as budgets count it.
        is_ended: Whether another thread ended the connection.

    """

    def __init__(
        self,
        connected: socket.socket,
        idle_s: float,
        host: str,
        memory: Budget,
        warn: Callable[[str], object],
    ) -> None:
        """
        Take over a connection.

        Args:
            memory: The bytes of large messages of all clients.
            warn: Receives a sentence if the connection is ended for its memory.

        """
        connected.settimeout(idle_s)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Not from the socket: of a client that hung up it has none any more, but unread requests.
        self.host = host
        self.network = network_of(host)
        self.is_ended = False
        self._idle_s = idle_s
        self._memory = memory
        self._warn = warn
        self._connected = self._socket = connected
        self._place: Share | None = None
        #: The memory of its request and of the broker's answer, if these are large.
        self._shares: dict[str, Share] = {}
        self._brokers: list[Connection] = []

    # From other threads

    def take_place(self, places: Budget) -> Callable[[], object]:
        """
        Take a place among all connections, which the returned function gives back.

        Raises:
            Refused: There is none.

        """
        share = self._place = places.take(self.network, end=self.end)
        return lambda: places.give_back(share)

    def end(self) -> None:
        """End the connection and its waits for brokers, without TLS's close_notify, which could block."""
        self.is_ended = True
        hang_up(self._connected)
        for each in list(self._brokers):
            each.abort()

    # Of its own thread

    def begin_tls(self, context: ssl.SSLContext) -> None:
        """
        Do the server's half of a TLS handshake.

        The new socket has a descriptor of its own: the old one stays open, and a shutdown of it ends both.
        """
        own = self._connected.dup()
        own.settimeout(_HANDSHAKE_S)
        try:
            self._socket = tls_handshake.begin_tls(context, own, server_side=True)
        except (OSError, ValueError) as error:
            own.close()
            raise ClientGone(f"no TLS: {error}") from error
        self._socket.settimeout(self._idle_s)

    def prove(self) -> None:
        """Keep the place until the connection ends."""
        if self._place is not None:
            self._place.end = None

    def begin_broker(self, connection: Connection) -> None:
        """Remember a connection to a broker, which ends with this one."""
        self._brokers.append(connection)
        if self.is_ended:  # since before another thread could abort it
            connection.abort()

    def close(self) -> None:
        """Close all connections, and give the memory back."""
        for each in self._brokers:
            each.close()
        self._socket.close()
        self.free()

    def check(self) -> None:
        """
        Drop an answer if the connection was ended, or if its client hung up.

        If the client sent more requests before it hung up, they are served, as a broker does (KAFKA-3703).
        Producers with ``acks=0`` do not wait for answers, and many old consumers did not wait for that of
        their last commit.
        """
        if self.is_ended or (has_hung_up(self._socket) and not self._has_sent_more()):
            raise ClientGone("it did not wait for its answer")

    def _has_sent_more(self) -> bool:
        if self.is_readable:
            return True
        least = 1 + _TLS_GOODBYE_BYTES if isinstance(self._socket, ssl.SSLSocket) else 1
        try:
            # Not SSLSocket.recv, which cannot peek.
            found = socket.socket.recv(self._socket, least, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            return False
        return len(found) == least

    def fileno(self) -> int:
        """The socket's descriptor, for a poll; look at :attr:`is_readable` first."""
        return self._socket.fileno()

    @property
    def is_readable(self) -> bool:
        """Whether TLS has decrypted bytes that a poll does not see."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def wait_for_request(self, broker: Connection) -> None:
        """
        Wait until the client sends something, or hangs up.

        Raises:
            ClientGone: The client sent nothing in its time, or the broker hung up.

        """
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        poll.register(broker.fileno(), select.POLLIN)
        while not self.is_readable:
            ready = [descriptor for descriptor, _ in poll.poll(self._idle_s * 1000)]
            if not ready:
                raise ClientGone(f"it sent nothing for {self._idle_s:g} s")
            if self.fileno() in ready:
                return
            if broker.has_hung_up():
                raise ClientGone("the broker hung up between two requests")

    # Requests and answers

    def begin_request(self, largest: int = _LARGEST_REQUEST) -> ClientRequest | None:
        """Read the size and header of the next request; None if the client hung up instead."""
        size = self._begin_frame()
        return None if size is None else ClientRequest(self, size, largest)

    def receive_token(self, largest: int) -> bytes:
        """Read a SASL token, which has a size and no header."""
        size = self._begin_frame()
        if size is None or not 0 <= size <= largest:
            raise ClientGone(f"a token of {size} bytes")
        token = bytearray()
        while len(token) < size:
            token += self.read(size - len(token))
        return bytes(token)

    def _begin_frame(self) -> int | None:
        size = bytearray()
        while len(size) < INT32.size:
            with self._awaited():
                received = self._socket.recv(INT32.size - len(size))
            if not received and not size:
                return None
            if not received:
                raise ClientGone("it hung up within the size of a request")
            size += received
        return int(INT32.unpack(size)[0])

    def read(self, most: int) -> bytes:
        """Read between one byte and ``most`` bytes of a request."""
        with self._awaited():
            received = self._socket.recv(min(most, PIECE_BYTES))
        if not received:
            raise ClientGone("it hung up within a request")
        return received

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it. The timeout is for each piece: a slow client has time as long as it reads."""
        view = memoryview(data)
        with self._awaited():
            for start in range(0, len(view), PIECE_BYTES):
                self._socket.sendall(view[start : start + PIECE_BYTES])

    @contextmanager
    def _awaited(self) -> Iterator[None]:
        """Let others end the connection meanwhile if they need its memory: it depends on the client."""
        for each in self._shares.values():
            each.end = self._evict
        try:
            yield
        except OSError as error:
            reason = "it exceeded the timeout" if isinstance(error, TimeoutError) else str(error)
            raise ClientGone(reason) from error
        finally:
            for each in self._shares.values():
                each.end = None

    def _evict(self) -> None:
        self.end()
        self._warn(
            f"the gateway closed the connection of {self.host}: the client sent a request or read an answer "
            "too slowly while others waited for memory. Raise --max-bytes-in-flight if it is honest"
        )

    # Its share of the gateway

    def decoding(self, size_bytes: int, *, is_answer: bool = False) -> AbstractContextManager[object]:
        """
        Wait for a turn to decode and encode a message of this size.

        As many messages are decoded at a time as there are cores, and of large ones one: each of their bytes
        becomes many bytes of Python objects.

        Args:
            is_answer: End the wait if the client hung up. A request is served regardless: a producer with
                ``acks=0`` may have sent its last records.

        """
        turns = LARGE if size_bytes > LARGE_BYTES else CORES
        return turns.share(self.network, check=self.check if is_answer else None)

    def hold(self, what: str, size_bytes: int) -> None:
        """
        Wait for the memory of a large message, in place of the one before it.

        Raises:
            ClientGone: There was none in time.

        """
        self.free(what)
        if size_bytes <= LARGE_BYTES:
            return
        try:
            self._shares[what] = self._memory.take(self.network, size_bytes, check=self.check)
        except Refused as error:
            self._warn(
                f"the gateway closed the connection of {self.host}: a message of {size_bytes} bytes found no "
                "memory in time. Raise --max-bytes-in-flight"
            )
            raise ClientGone("no memory") from error

    def free(self, *what: str) -> None:
        """Give the memory of some messages back; by default, of all."""
        for each in what or list(self._shares):
            if each in self._shares:
                self._memory.give_back(self._shares.pop(each))


class ClientRequest:
    """
    A request, read as far as it is needed.

    Attributes:
        size: The frame's size in bytes, without the four bytes of the size itself.
        head: The bytes that were read.

    """

    def __init__(self, client: Client, size: int, largest: int = _LARGEST_REQUEST) -> None:
        """
        Read a request's header.

        Raises:
            ClientGone: The header is malformed, or the request is larger than ``largest``.

        """
        self.size = size
        self._client = client
        self.head = bytearray()
        if not _FIXED_HEADER.size <= size <= largest:
            raise ClientGone(f"a request of {size} bytes")
        self.peek(_FIXED_HEADER.size)
        client_id_bytes = INT16.unpack_from(self.head, _FIXED_HEADER.size - INT16.size)[0]
        head_bytes = _FIXED_HEADER.size + max(client_id_bytes, 0)
        if head_bytes > size:
            raise ClientGone(f"a request of {size} bytes with a client id of {client_id_bytes}")
        self.peek(head_bytes)
        try:
            self.header: RequestHeader = read_request_header(memoryview(bytes(self.head)))
        except ProtocolError as error:
            raise ClientGone(str(error)) from error

    def peek(self, most: int) -> memoryview:
        """Return a copy of the first ``most`` bytes, or of all there are, without consuming them."""
        wanted = min(most, self.size)
        self._read(wanted)
        return memoryview(bytes(self.head[:wanted]))

    def check_size(self, largest: int) -> None:
        """
        Refuse the request by its size, before it is read.

        Raises:
            ClientGone: The request has more than ``largest`` bytes.

        """
        if self.size > largest:
            raise ClientGone(f"a request of {self.size} bytes, more than the limit of {largest}")

    def whole(self, largest: int) -> memoryview:
        """
        Read all of the request; memory grows with the bytes that arrive, not with the size that is claimed.

        Returns:
            A view of the bytes that this object keeps.

        Raises:
            ClientGone: The request has more than ``largest`` bytes, or there was no memory for it in time.

        """
        self.check_size(largest)
        self._client.hold("request", self.size)
        self._read(self.size)
        return memoryview(self.head)

    def let_go(self) -> None:
        """Free the memory of a request that has been served."""
        self.head = bytearray()
        self._client.free("request")

    def _read(self, wanted: int) -> None:
        while len(self.head) < wanted:
            self.head += self._client.read(wanted - len(self.head))

    def parts(self) -> Iterator[bytes]:
        """Yield the request unchanged, its size first."""
        yield INT32.pack(self.size) + self.head
        left = self.size - len(self.head)
        while left:
            part = self._client.read(left)
            left -= len(part)
            yield part
            del part  # else both this one and the next would be in memory

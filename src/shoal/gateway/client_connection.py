"""A client's connection: its requests, read as far as they are needed, and the answers to it."""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections.abc import Iterator

from ..errors import ProtocolError
from ..net import tls_handshake
from ..net.hung_up import has_hung_up
from ..net.slots import network_of
from ..protocol.codec import RequestHeader, read_request_header
from ..protocol.primitives import INT16, INT32

__all__ = ["PIECE_BYTES", "Client", "ClientGone", "ClientRequest", "begin_tls"]

#: The buffer through which requests and answers are forwarded.
PIECE_BYTES = 64 * 1024

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
    One client's connection, for one thread.

    All methods raise :class:`ClientGone` if the client hangs up, or exceeds a timeout.

    Attributes:
        host: The client's address.
        network: The client, as budgets count it.

    """

    def __init__(self, connected: socket.socket, idle_s: float, host: str) -> None:
        connected.settimeout(idle_s)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Not from the socket: of a client that hung up it has none any more, but unread requests.
        self.host = host
        self.network = network_of(host)
        self._socket = connected

    def check_answer(self) -> None:
        """
        Drop an answer if its client hung up.

        If the client sent more requests before it hung up, they are served, as a broker does (KAFKA-3703).
        Producers with ``acks=0`` do not wait for answers, and many old consumers did not wait for that of
        their last commit.
        """
        if has_hung_up(self._socket) and not self.has_sent_more():
            raise ClientGone("it did not wait for its answer")

    def check_open(self) -> None:
        """End a wait as :meth:`check_answer`, and if the connection is broken or another thread closed it."""
        self.check_answer()
        poll = select.poll()
        poll.register(self._socket, select.POLLHUP | select.POLLERR)
        if poll.poll(0):
            raise ClientGone("the connection is closed")

    @property
    def socket(self) -> socket.socket:
        """The connection itself, for a thread that has to end it."""
        return self._socket

    def fileno(self) -> int:
        """The socket's descriptor, for a poll; look at :attr:`is_readable` first."""
        return self._socket.fileno()

    @property
    def is_readable(self) -> bool:
        """Whether TLS has decrypted bytes that a poll does not see."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def has_sent_more(self) -> bool:
        """Whether a client that hung up had sent something before that is still to be read."""
        if self.is_readable:
            return True
        least = 1 + _TLS_GOODBYE_BYTES if isinstance(self._socket, ssl.SSLSocket) else 1
        try:
            # Not SSLSocket.recv, which cannot peek.
            found = socket.socket.recv(self._socket, least, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            return False
        return len(found) == least

    def begin_request(self, largest: int = _LARGEST_REQUEST) -> ClientRequest | None:
        """Read the size and header of the next request; None if the client hung up instead."""
        size = self._begin_frame()
        return None if size is None else ClientRequest(self, size, largest)

    def begin_token(self, largest: int) -> bytes | None:
        """Read a SASL token, which has a size and no header; None if the client hung up instead."""
        size = self._begin_frame()
        if size is None:
            return None
        if not 0 <= size <= largest:
            raise ClientGone(f"a token of {size} bytes")
        token = bytearray()
        while len(token) < size:
            token += self.read(size - len(token))
        return bytes(token)

    def _begin_frame(self) -> int | None:
        size = bytearray()
        while len(size) < INT32.size:
            received = self._receive(INT32.size - len(size))
            if not received and not size:
                return None
            if not received:
                raise ClientGone("it hung up within the size of a request")
            size += received
        return int(INT32.unpack(size)[0])

    def read(self, most: int) -> bytes:
        """Read between one byte and ``most`` bytes of a request."""
        received = self._receive(min(most, PIECE_BYTES))
        if not received:
            raise ClientGone("it hung up within a request")
        return received

    def read_into(self, view: memoryview) -> int:
        """Read into a buffer, between one byte and all of it; return the number of bytes."""
        try:
            count = self._socket.recv_into(view)
        except OSError as error:
            raise _gone(error) from error
        if not count:
            raise ClientGone("it hung up within a request")
        return count

    def _receive(self, most: int) -> bytes:
        try:
            return self._socket.recv(most)
        except OSError as error:
            raise _gone(error) from error

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it. The timeout is for each piece: a slow client has time as long as it reads."""
        view = memoryview(data)
        try:
            for start in range(0, len(view), PIECE_BYTES):
                self._socket.sendall(view[start : start + PIECE_BYTES])
        except OSError as error:
            raise _gone(error) from error


def _gone(error: OSError) -> ClientGone:
    return ClientGone("it exceeded the timeout" if isinstance(error, TimeoutError) else str(error))


class ClientRequest:
    """
    A request, read as far as it is needed.

    Attributes:
        size: The frame's size in bytes, without the four bytes of the size itself.

    """

    def __init__(self, client: Client, size: int, largest: int = _LARGEST_REQUEST) -> None:
        """
        Read a request's header.

        Raises:
            ClientGone: The header is malformed, or the request is larger than ``largest``.

        """
        self.size = size
        self._client = client
        self._head = bytearray()
        if not _FIXED_HEADER.size <= size <= largest:
            raise ClientGone(f"a request of {size} bytes")
        self.peek(_FIXED_HEADER.size)
        client_id_bytes = INT16.unpack_from(self._head, _FIXED_HEADER.size - INT16.size)[0]
        head_bytes = _FIXED_HEADER.size + max(client_id_bytes, 0)
        if head_bytes > size:
            raise ClientGone(f"a request of {size} bytes with a client id of {client_id_bytes}")
        self.peek(head_bytes)
        try:
            self.header: RequestHeader = read_request_header(memoryview(bytes(self._head)))
        except ProtocolError as error:
            raise ClientGone(str(error)) from error

    def peek(self, most: int) -> bytes:
        """Return the first ``most`` bytes, or all there are, without consuming them."""
        wanted = min(most, self.size)
        self._read(wanted)
        return bytes(self._head[:wanted])

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
            ClientGone: The request has more than ``largest`` bytes.

        """
        self.check_size(largest)
        self._read(self.size)
        return memoryview(self._head)

    def let_go(self) -> None:
        """Free the memory of a request that has been served."""
        self._head = bytearray()

    def _read(self, wanted: int) -> None:
        while len(self._head) < wanted:
            self._head += self._client.read(wanted - len(self._head))

    def parts(self) -> Iterator[bytes | memoryview]:
        """Yield the request unchanged, its size first; each part is valid until the next one is read."""
        yield INT32.pack(self.size) + self._head
        left = self.size - len(self._head)
        buffer = memoryview(bytearray(min(left, PIECE_BYTES)))
        while left:
            count = self._client.read_into(buffer[:left])
            left -= count
            yield buffer[:count]


def begin_tls(connected: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    """
    Do the server's half of a TLS handshake.

    The returned socket has a descriptor of its own: ``connected`` stays open, and a shutdown of it ends both.

    Raises:
        ClientGone: The handshake failed.

    """
    connected.settimeout(_HANDSHAKE_S)
    own = connected.dup()
    own.settimeout(_HANDSHAKE_S)
    try:
        return tls_handshake.begin_tls(context, own, server_side=True)
    except (OSError, ValueError) as error:
        own.close()
        raise ClientGone(f"no TLS: {error}") from error

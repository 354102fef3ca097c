"""
The receiving end of a connection: the responses to requests, in the order in which they were sent.

Any failure closes the connection. A frame goes from the socket into memory in one copy, within deadlines, and
everything above works on views of it. The choice of the buffer decides how long a view stays valid.
"""

from __future__ import annotations

import contextlib
import mmap
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import AccessRefused, Disconnected, ProtocolError
from ..net.address import Address
from ..protocol import codec
from ..protocol.primitives import INT32
from .answer_sizes import LARGEST_FRAME, AnswerSizes
from .opening import broken, hangup_reason
from .security import Security

__all__ = ["Expected", "FetchedBytes", "FreshMemory", "ReceiveBuffer", "ReceivingEnd"]

#: The slowest response that is still received after its timeout. Without this bound, a broker that sends one
#: byte for each wait would hold a request for years.
_SLOWEST_BYTES_PER_S = 64 * 1024

#: The size of a recv for responses without batches, often several at once.
_SMALL_RECEIVE = 64 * 1024


class ReceiveBuffer:
    """
    One buffer for all frames: a view of a frame is valid until the next frame is received.

    The memory is mapped, and returns to the system.
    Memory of malloc would stay with the thread that allocated it, and a mirror of months starts many threads.

    """

    def __init__(self, size: int) -> None:
        self._bytes = mmap.mmap(-1, size)
        self._size = size

    def reserve(self, size: int) -> memoryview:
        """Return a writable view of ``size`` bytes; the buffer grows for one frame if a batch is larger."""
        if size > len(self._bytes):
            self._bytes = mmap.mmap(-1, size)
        elif len(self._bytes) > self._size >= size:
            self._bytes = mmap.mmap(-1, self._size)
        return memoryview(self._bytes)[:size]


class FetchedBytes(bytearray):
    """Memory of one response; its views keep it alive."""


class FreshMemory:
    """
    New memory for each frame: its views stay valid as long as there are any.

    One view keeps the whole frame in memory.

    """

    def reserve(self, size: int) -> memoryview:
        """Return a writable view of ``size`` new bytes."""
        return memoryview(FetchedBytes(size))


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise BlockingIOError("the answer comes too slowly")


#: A TLS alert read as the size of a response: 0x15, and version 3.x.
_ALERTS = range(0x15030000, 0x15040000)


class Expected(NamedTuple):
    """A response that is awaited: its id, its API's name for errors, and its largest size in bytes."""

    correlation_id: int
    name: str
    largest: int


class ReceivingEnd:
    """
    The socket of a broker, and the responses that come on it.

    Small parts are received with bytes ahead, which belong to the next ones; large parts go straight into the
    caller's memory.

    Attributes:
        address: The broker's address.
        sizes: The bounds of responses.
        timeout_s: The limit of each wait.

    """

    def __init__(
        self,
        connected: socket.socket,
        address: Address,
        *,
        timeout_s: float,
        security: Security | None,
        sizes: AnswerSizes | None,
    ) -> None:
        """
        Take over a socket.

        Args:
            sizes: The bounds of responses; by default those of :class:`AnswerSizes`.

        """
        self.address = address
        self.sizes = sizes or AnswerSizes()
        self.timeout_s = timeout_s
        self._security = security
        self._is_tls = security is not None and security.tls is not None
        #: Requests without a response, oldest first.
        self._in_flight: deque[Expected] = deque()
        self._responses = 0
        self._last_response_at = time.monotonic()
        self._socket: socket.socket = connected
        #: The bytes that came with the last part.
        self._ahead = bytearray()

    def receive(self, buffer: ReceiveBuffer | FreshMemory | None = None) -> memoryview:
        """
        Receive the response to the oldest request in flight, without its size.

        Args:
            buffer: The memory for the response; by default, new memory.

        """
        size = self._receive_size()
        frame = self._receive_into(buffer.reserve(size)) if buffer else self._receive_small(size)
        self._expect_answer(frame)
        return frame

    def has_hung_up(self) -> bool:
        """
        Return, without waiting, whether the broker closed the connection or sends an unexpected response.

        Call it if the socket is readable while nothing is in flight. With TLS, that may also be a record
        without data.

        """
        timeout_s = self._socket.gettimeout()
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True
        finally:
            if not self.closed:
                self._socket.settimeout(timeout_s)
        return True

    def fileno(self) -> int:
        """
        Return the socket's file descriptor for a poll; -1 if it is closed.

        Check :attr:`is_readable` first: a poll does not see bytes that are received already.

        """
        return self._socket.fileno()

    @property
    def is_readable(self) -> bool:
        """Whether there are received bytes, as far as that is known without a system call."""
        if self._ahead:
            return True
        return isinstance(self._socket, ssl.SSLSocket) and not self.closed and self._socket.pending() > 0

    @property
    def is_answered(self) -> bool:
        """Whether :meth:`receive` needs no more bytes: a whole response came with the one before it."""
        ahead = self._ahead
        if not self._in_flight or len(ahead) < INT32.size:
            return False
        size: int = INT32.unpack_from(ahead)[0]
        return size > self._in_flight[0].largest or size <= len(ahead) - INT32.size

    def _receive_size(self, largest: int | None = None) -> int:
        """Receive the size of the oldest response: at most ``largest``, or the bound of its request."""
        if not self._in_flight:
            raise ProtocolError(f"nothing was asked of {self.address}")
        expected = self._in_flight[0]
        largest = expected.largest if largest is None else largest
        size: int = INT32.unpack(self._receive_small(INT32.size))[0]
        if not 4 <= size <= largest:
            self.close()
            if size in _ALERTS and self._responses == 0 and not self._is_tls:
                reason = "its listener requires TLS. Set security.protocol=SSL or SASL_SSL"
                raise AccessRefused(str(self.address), reason)
            if self._responses and largest < size <= LARGEST_FRAME:
                raise self.sizes.too_large(self.address, expected.name, size, largest)
            protocol = self._security.protocol if self._security else "plaintext"
            raise ProtocolError(
                f"{self.address} does not answer as a Kafka broker on a {protocol} listener would: "
                f"a response of {size} bytes"
            )
        return size

    def _expect_answer(self, frame: memoryview) -> None:
        """Check that a frame answers the oldest request, and take that out of those in flight."""
        self._responses += 1
        self._last_response_at = time.monotonic()
        expected, name, _ = self._in_flight.popleft()
        if codec.read_correlation_id(frame) != expected:
            self.close()
            raise ProtocolError(f"{self.address} sent a response to another request than {name} {expected}")

    def _receive_small(self, size: int) -> memoryview:
        """Receive ``size`` bytes into new memory; bytes behind them wait for the next call."""
        with self._closes_if_cut():
            deadline = self._deadline(size)
            while len(self._ahead) < size:
                _check(deadline)
                data = self._socket.recv(_SMALL_RECEIVE)
                if not data:
                    raise EOFError
                self._ahead += data
        result = bytes(self._ahead[:size])
        del self._ahead[:size]
        return memoryview(result)

    def _receive_into(self, view: memoryview) -> memoryview:
        """Fill a view, usually by one system call."""
        with self._closes_if_cut():
            received = self._take_ahead(view)
            deadline = self._deadline(len(view))
            while received < len(view):
                _check(deadline)
                count = self._socket.recv_into(view[received:], 0, 0 if self._is_tls else socket.MSG_WAITALL)
                if count == 0:
                    raise EOFError
                received += count
        return view

    def _receive_some(self, view: memoryview) -> int:
        """Receive one byte or more, up to the size of the view."""
        with self._closes_if_cut():
            count = self._take_ahead(view) or self._socket.recv_into(view)
            if not count:
                raise EOFError
        return count

    def _take_ahead(self, view: memoryview) -> int:
        count = min(len(self._ahead), len(view))
        if count:
            view[:count] = self._ahead[:count]
            del self._ahead[:count]
        return count

    def _deadline(self, size: int) -> float:
        return time.monotonic() + self.timeout_s + size / _SLOWEST_BYTES_PER_S

    @contextlib.contextmanager
    def _closes_if_cut(self) -> Iterator[None]:
        """Close the socket if a part of a response was received, and the rest cannot be."""
        try:
            yield
        except EOFError as error:
            logs_in = bool(self._security and self._security.mechanism)
            reason = hangup_reason(self._responses, is_tls=self._is_tls, logs_in=logs_in)
            raise self._broken(ConnectionResetError(reason)) from error
        except OSError as error:
            raise self._broken(error) from error
        except BaseException:
            self.close()  # Ctrl-C: the received part may be lost
            raise

    def _broken(self, error: OSError) -> Disconnected | AccessRefused:
        self.close()
        return broken(self.address, error, is_tls_opening=self._is_tls and self._responses == 0)

    @property
    def closed(self) -> bool:
        """Whether the socket is closed, here or by an error."""
        return self._socket.fileno() < 0

    def close(self) -> None:
        """Close the socket, unless it is closed already."""
        self._socket.close()

    def abort(self) -> None:
        """End the wait of the thread that uses this connection: it raises :class:`Disconnected`."""
        with contextlib.suppress(OSError):
            # Not that of SSLSocket, which sends an alert first and is not for two threads.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

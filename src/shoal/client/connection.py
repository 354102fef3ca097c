"""
One blocking connection to one broker.

Requests may be pipelined: a broker answers the requests of a connection in the order in which they were sent.
Any failure closes the connection, and the outcome of the requests in flight is unknown then.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import AccessRefused, Disconnected, ProtocolError
from ..net.address import Address
from ..net.gathered import send_gathered, send_records, send_while
from ..protocol import codec
from ..protocol.apis import ApiKey, pick_version
from ..protocol.primitives import INT32
from .answer_sizes import LARGEST_FRAME, AnswerSizes
from .incoming import FreshMemory, Incoming, ReceiveBuffer
from .opening import (
    CLOSED,
    CONNECT_S,
    ask_versions,
    broken,
    hangup_reason,
    log_in,
    open_socket,
    open_tls,
    prepare_socket,
)
from .security import Security

__all__ = ["Connection", "SentRequests", "version_or_close"]

#: The bound of responses that are passed on piece by piece: they take no memory.
_LARGEST_SIZE = 2**31 - 1

#: A TLS alert read as the size of a response: 0x15, and version 3.x.
_ALERTS = range(0x15030000, 0x15040000)

#: The part of a login's lifetime after which it is renewed. Java's clients draw a number from 0.85 to 0.95.
_SESSION_USED = 0.85


class _Expected(NamedTuple):
    """A response that is awaited: its id, its API's name for errors, and its largest size in bytes."""

    correlation_id: int
    name: str
    largest: int


class SentRequests(NamedTuple):
    """
    The result of :meth:`Connection.send_while`.

    Attributes:
        whole: The number of requests that were sent whole; their responses are in flight.
        is_cut: Whether a part of the next one may have been sent.
        error: The failure of the socket; None if it took all, or no more may be sent.

    """

    whole: int
    is_cut: bool
    error: OSError | None


class Connection:
    """
    An open connection to a broker, handshakes and login done.

    If the broker limits the lifetime of a login (KIP-368), a request renews the login in time.

    Only one thread may use a connection, except for :meth:`abort`. All methods raise
    :class:`~shoal.errors.Disconnected` if the socket fails or ``timeout_s`` passes, and
    :class:`~shoal.errors.ProtocolError` if a response is malformed; the connection is closed then.

    Attributes:
        client_id: The client id of all requests.
        sizes: The bounds of responses.
        versions: The oldest and newest version of each API that the broker supports.
        timeout_s: The limit of each wait.

    """

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        timeout_s: float,
        abort_on_close: bool = False,
        security: Security | None = None,
        on_begun: Callable[[Connection], object] | None = None,
        sizes: AnswerSizes | None = None,
    ) -> None:
        """
        Connect, ask for the supported versions, and log in.

        Args:
            client_id: The name in the broker's logs, metrics and quotas.
            timeout_s: The limit of the connection (at most 4 s), and of each wait on it. A response that
                comes in pieces gets a second more for each 64 KiB.
            abort_on_close: Discard unsent data if the socket is closed, also by the death of the process: a
                produce request must not arrive after its sender is gone.
            security: TLS and SASL; None for a PLAINTEXT listener.
            on_begun: Called with this connection before the first request: from then on another thread may
                :meth:`abort` it.
            sizes: The bounds of responses; by default those of :class:`AnswerSizes`.

        Raises:
            AccessRefused: The broker, or this client, refuses a certificate or a password.

        """
        self.address = address
        self.client_id = client_id
        self.sizes = sizes or AnswerSizes()
        self.timeout_s = timeout_s
        self._security = security
        self._is_tls = security is not None and security.tls is not None
        self._renew_at: float | None = None
        self._correlation_ids = itertools.count()
        #: Requests without a response, oldest first.
        self._in_flight: deque[_Expected] = deque()
        #: Responses that came while the login was renewed, oldest first.
        self._early: deque[memoryview] = deque()
        self._responses = 0
        self._last_response_at = time.monotonic()
        #: The borrower of the socket: see :meth:`lend`.
        self._borrower: Sequence[int] | None = None
        self._socket: socket.socket
        self._socket = open_socket(address, min(timeout_s, CONNECT_S))
        prepare_socket(self._socket, timeout_s, abort_on_close=abort_on_close)
        if on_begun is not None:
            on_begun(self)
        try:
            if security is not None and security.tls:
                self._socket = open_tls(self._socket, address, security.tls, timeout_s)
            self._incoming = Incoming(self._socket, is_tls=self._is_tls)
            self.versions = ask_versions(self.request_version, address)
            if security is not None and security.mechanism:
                self._log_in(security)
        except BaseException:
            self.close()
            raise

    def _log_in(self, security: Security) -> None:
        lifetime_ms = log_in(self.request, self.address, security)
        self._renew_at = time.monotonic() + lifetime_ms / 1000 * _SESSION_USED if lifetime_ms > 0 else None

    def renew_login_in_time(self) -> None:
        """Log in again if most of the login's lifetime has passed (KIP-368)."""
        if self._renew_at is not None and time.monotonic() > self._renew_at:
            self._renew_login()

    def _renew_login(self) -> None:
        """
        Log in again on the same connection (KIP-368): the broker would close it at the next request.

        The responses in flight are received before, and wait for :meth:`receive`.

        """
        assert self._security is not None
        early = deque(self._receive_frame(None) for _ in range(len(self._in_flight)))
        self._renew_at = None
        kept, self._early = self._early, deque()
        try:
            self._log_in(self._security)
        except AccessRefused as error:
            self.close()
            # The broker accepted this login before: its login service may be unavailable.
            raise Disconnected(error.where, error.reason) from error
        except BaseException:
            self.close()
            raise
        self._early = kept + early

    def version(self, api_key: ApiKey) -> int:
        """
        Return the newest version of an API that both sides support.

        Raises:
            ProtocolError: There is none.

        """
        return pick_version(api_key, self.versions, str(self.address))

    def speaks(self, api_key: ApiKey) -> bool:
        """Return whether both sides support a version of an API."""
        try:
            self.version(api_key)
        except ProtocolError:
            return False
        return True

    @property
    def in_flight(self) -> int:
        """The number of requests whose responses were not received yet; at least 1 while it is lent."""
        return len(self._in_flight) + len(self._early) + (self._borrower is not None)

    @property
    def last_response_at(self) -> float:
        """The time of the last response, or of the connection itself, by the monotonic clock."""
        borrower = self._borrower
        return self._last_response_at if borrower is None else max(self._last_response_at, borrower[1] / 1e9)

    @contextlib.contextmanager
    def lend(self, words: Sequence[int]) -> Iterator[socket.socket]:
        """
        Lend the socket to code that sends requests, and receives all of their responses.

        Nothing is in flight or received.

        Args:
            words: The second word becomes the time of the last response, in ns of the monotonic clock.

        Yields:
            The socket, open until the end: :meth:`abort` only shuts it down. One of TLS waits for nothing.

        """
        is_busy = self.closed or self.in_flight or self._incoming.ahead
        assert not is_busy
        self._borrower = words
        try:
            with self._unblocked() if self._is_tls else contextlib.nullcontext():
                yield self._socket
        finally:
            self._last_response_at, self._borrower = self.last_response_at, None

    @contextlib.contextmanager
    def _unblocked(self) -> Iterator[None]:
        """Let the socket wait for nothing."""
        timeout_s = self._socket.gettimeout()
        self._socket.settimeout(0)
        try:
            yield
        finally:
            if not self.closed:
                self._socket.settimeout(timeout_s)

    def fail(self, error: OSError) -> Disconnected | AccessRefused:
        """Close the connection, whose socket failed while it was lent; return the error to raise."""
        return self._broken(error)

    def request(self, api_key: ApiKey, **fields: Any) -> Any:
        """Send a request in the newest version that both sides support, and return its response."""
        return self.request_version(api_key, self.version(api_key), **fields)

    def request_version(self, api_key: ApiKey, version: int, /, **fields: Any) -> Any:
        """Send a request in a version that the broker supports, and return its response."""
        try:
            self._send(api_key, version, fields)
            return codec.decode_response(api_key, version, self.receive(), self.sizes.values)
        except BaseException:
            # Also after Ctrl-C in between: the next request would receive this one's response.
            self.close()
            raise

    def send(self, api_key: ApiKey, version: int | None = None, /, **fields: Any) -> None:
        """
        Send a request; :meth:`receive` returns the responses in the order of the requests.

        Args:
            version: By default the newest version that both sides support.
            **fields: The fields of the request.

        """
        self._send(api_key, self.version(api_key) if version is None else version, fields)

    def _send(self, api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> None:
        correlation_id = next(self._correlation_ids)
        request = codec.request_class(api_key)(version=version, **fields)
        frame = codec.encode_request(request, correlation_id, self.client_id)
        self.send_parts([frame], api_key, correlation_id, fields.get("max_bytes"))

    def next_correlation_id(self) -> int:
        """Return a correlation id for a request that the caller encodes."""
        return next(self._correlation_ids)

    def skip_correlation_ids(self, count: int) -> int:
        """Skip ids that a borrower of the socket has used; return the next one, which is still free."""
        first = next(self._correlation_ids) + count
        self._correlation_ids = itertools.count(first)
        return first

    def send_parts(
        self,
        parts: Sequence[bytes | memoryview],
        api_key: ApiKey,
        correlation_id: int,
        max_bytes: int | None = None,
    ) -> None:
        """
        Send an encoded request; the kernel gathers its parts without a copy.

        Args:
            parts: The bytes of the request, its size first.
            correlation_id: The id in the request.
            max_bytes: That of a Fetch request.

        """
        self.renew_login_in_time()
        largest = self.sizes.largest(api_key, max_bytes)
        self._in_flight.append(_Expected(correlation_id, api_key.name, largest))
        try:
            if self._is_tls:
                send_records(self._socket, parts)
            else:
                send_gathered(self._socket, parts)
        except OSError as error:
            raise self._broken(error) from error
        except BaseException:
            self.close()  # Ctrl-C: an unknown part of the request was sent
            raise

    def send_while(
        self,
        may_send: Callable[[], bool],
        requests: Mapping[int, Sequence[bytes | memoryview]],
        api_key: ApiKey,
        largest: int,
    ) -> SentRequests:
        """
        Send encoded requests of an API as long as they may be sent, by few system calls.

        Unlike other methods, this one leaves the connection open if the socket fails: responses may have
        come. The caller receives them, and then calls :meth:`fail`.

        Args:
            may_send: Called before each system call that sends.
            requests: For each correlation id the bytes of the request, its size first.
            largest: The largest size of a response in bytes.

        """
        parts = list(itertools.chain.from_iterable(requests.values()))
        with self._unblocked() if self._is_tls else contextlib.nullcontext():
            taken = send_while(self._socket, parts, may_send, self.timeout_s)
        whole = end = 0
        for correlation_id, request in requests.items():
            size = sum(map(len, request))
            if end + size > taken.size:
                break
            self._in_flight.append(_Expected(correlation_id, api_key.name, largest))
            whole, end = whole + 1, end + size
        return SentRequests(whole, taken.size > end or taken.may_be_more, taken.error)

    def stream_parts(
        self, parts: Iterable[bytes | memoryview], name: str, correlation_id: int, *, answered: bool = True
    ) -> None:
        """
        Send an encoded request part by part; each part is sent before the next one is taken.

        Args:
            parts: The bytes of the request, its size first. If the iterable raises, the connection is closed,
                since the request is incomplete.
            name: The API's name, for errors.
            correlation_id: The id in the request.
            answered: Whether the request has a response.

        """
        self.renew_login_in_time()
        try:
            for part in parts:
                try:
                    self._socket.sendall(part)
                except OSError as error:
                    raise self._broken(error) from error
        except BaseException:
            self.close()
            raise
        if answered:
            self._in_flight.append(_Expected(correlation_id, name, LARGEST_FRAME))

    def receive(self, buffer: ReceiveBuffer | FreshMemory | None = None) -> memoryview:
        """
        Receive the response to the oldest request in flight, without its size.

        Args:
            buffer: The memory for the response; by default, new memory.

        """
        if self._early:
            return self._early.popleft()
        return self._receive_frame(buffer)

    def _receive_frame(self, buffer: ReceiveBuffer | FreshMemory | None) -> memoryview:
        size = self._receive_size()
        frame = self._receive_into(buffer.reserve(size)) if buffer else self._receive_small(size)
        self._expect_answer(frame)
        return frame

    def begin_frame(self) -> int:
        """
        Receive the beginning of the oldest response; :meth:`read_into` returns the rest.

        Returns:
            The size, with the correlation id. The caller must read all of it, from the correlation id on,
            before any other use of this connection.

        """
        size = self._receive_size(_LARGEST_SIZE)
        head = self._receive_small(INT32.size)
        self._incoming.put_back(head)
        self._expect_answer(head)
        return size

    def read_into(self, view: memoryview) -> int:
        """Receive at least one byte, and at most the size of the view, after :meth:`begin_frame`."""
        try:
            count = self._incoming.read(view)
        except OSError as error:
            raise self._broken(error) from error
        if not count:
            raise self._broken(ConnectionResetError(f"{CLOSED} within an answer"))
        return count

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
        if self._early or self._incoming.ahead:
            return True
        return isinstance(self._socket, ssl.SSLSocket) and not self.closed and self._socket.pending() > 0

    @property
    def is_answered(self) -> bool:
        """Whether :meth:`receive` needs no more bytes: a whole response came with the one before it."""
        ahead = self._incoming.ahead
        if not self._in_flight or len(ahead) < INT32.size:
            return bool(self._early)
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
        try:
            return self._incoming.take(size, self.timeout_s)
        except EOFError as error:
            logs_in = bool(self._security and self._security.mechanism)
            reason = hangup_reason(self._responses, is_tls=self._is_tls, logs_in=logs_in)
            raise self._broken(ConnectionResetError(reason)) from error
        except OSError as error:
            raise self._broken(error) from error

    def _receive_into(self, view: memoryview) -> memoryview:
        """Fill a view, usually by one system call."""
        try:
            self._incoming.fill(view, self.timeout_s)
        except EOFError as error:
            raise self._broken(ConnectionResetError(CLOSED)) from error
        except OSError as error:
            raise self._broken(error) from error
        except BaseException:
            self.close()  # the received part of the frame is lost
            raise
        return view

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

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def version_or_close(connection: Connection, api_key: ApiKey) -> int:
    """Return :meth:`Connection.version`; close the connection if the broker supports none."""
    try:
        return connection.version(api_key)
    except ProtocolError:
        connection.close()
        raise

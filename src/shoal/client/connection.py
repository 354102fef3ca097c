"""
One blocking connection to one broker.

Requests may be pipelined: a broker answers the requests of a connection in the order in which they were sent.
Any failure closes the connection, and the outcome of the requests in flight is unknown then.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from ..errors import AccessRefused, Disconnected, ProtocolError
from ..net.address import Address
from ..net.gathered import send_all, send_while
from ..protocol import codec
from ..protocol.apis import ApiKey, pick_version
from .answer_sizes import AnswerSizes
from .opening import (
    CONNECT_S,
    ask_versions,
    log_in,
    open_socket,
    open_tls,
    prepare_socket,
)
from .receiving import Expected, ReceivingEnd
from .security import Security

__all__ = ["Connection", "SentRequests", "version_or_close"]

#: The part of a login's lifetime after which it is renewed. Java's clients draw a number from 0.85 to 0.95.
_SESSION_USED = 0.85


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


class Connection(ReceivingEnd):
    """
    An open connection to a broker, handshakes and login done.

    If the broker limits the lifetime of a login (KIP-368), a request renews the login in time.

    Only one thread may use a connection, except for :meth:`abort`. All methods raise
    :class:`~shoal.errors.Disconnected` if the socket fails or ``timeout_s`` passes, and
    :class:`~shoal.errors.ProtocolError` if a response is malformed; the connection is closed then.

    Attributes:
        client_id: The client id of all requests.
        versions: The oldest and newest version of each API that the broker supports.

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
        open_with: Callable[[Address, float], socket.socket] = open_socket,
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
            open_with: Opens the socket, within a number of seconds.

        Raises:
            AccessRefused: The broker, or this client, refuses a certificate or a password.

        """
        connected = open_with(address, min(timeout_s, CONNECT_S))
        super().__init__(connected, address, timeout_s=timeout_s, security=security, sizes=sizes)
        self.client_id = client_id
        self._renew_at: float | None = None
        self._correlation_ids = itertools.count()
        #: The borrower of the socket: see :meth:`lend`.
        self._borrower: Sequence[int] | None = None
        prepare_socket(self._socket, timeout_s, abort_on_close=abort_on_close)
        if on_begun is not None:
            on_begun(self)
        try:
            if security is not None and security.tls:
                self._socket = open_tls(self._socket, address, security.tls, timeout_s)
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
        """
        Log in again if most of the login's lifetime has passed (KIP-368): the broker would close it later.

        The renewal waits until nothing is in flight: no caller sends without an end between two answers.

        """
        if self._renew_at is None or self._in_flight or time.monotonic() <= self._renew_at:
            return
        assert self._security is not None
        self._renew_at = None
        try:
            self._log_in(self._security)
        except AccessRefused as error:
            self.close()
            # The broker accepted this login before: its login service may be unavailable.
            raise Disconnected(error.where, error.reason) from error
        except BaseException:
            self.close()
            raise

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
        return len(self._in_flight) + (self._borrower is not None)

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
        is_busy = self.closed or self.in_flight or self._ahead
        assert not is_busy
        self._borrower = words
        try:
            with self._unblocked():
                yield self._socket
        finally:
            self._last_response_at, self._borrower = self.last_response_at, None

    @contextlib.contextmanager
    def _unblocked(self) -> Iterator[None]:
        """Let a socket of TLS wait for nothing; others take flags for each call."""
        if not self._is_tls:
            yield
            return
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
        self._in_flight.append(Expected(correlation_id, api_key.name, largest))
        try:
            with self._unblocked():
                send_all(self._socket, parts, self.timeout_s)
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
        with self._unblocked():
            taken = send_while(self._socket, parts, may_send, self.timeout_s)
        whole = end = 0
        for correlation_id, request in requests.items():
            size = sum(map(len, request))
            if end + size > taken.size:
                break
            self._in_flight.append(Expected(correlation_id, api_key.name, largest))
            whole, end = whole + 1, end + size
        return SentRequests(whole, taken.size > end or taken.may_be_more, taken.error)

    def __enter__(self) -> Self:
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

"""
One blocking connection to one broker.

Requests may be pipelined: a broker answers those of a connection in the order
they were sent. Any failure closes the connection, and what was in flight then
has an unknown outcome.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..error_codes import ErrorCode
from ..errors import AccessRefused, BrokerError, Disconnected, ProtocolError, Unreachable
from ..net.address import Address
from ..protocol import codec
from ..protocol.apis import ApiKey, pick_version
from ..protocol.primitives import INT32
from .answer_sizes import ANSWER_BYTES_PROPERTY, BATCH_BYTES_PROPERTY, LARGEST_FRAME, AnswerSizes
from .security import TLS_ADVICE, SaslExchange, Security, connect_tls, tls_refusal

__all__ = [
    "Connection",
    "FetchedBytes",
    "FreshMemory",
    "ReceiveBuffer",
    "open_socket",
]

#: More parts than this a kernel refuses in one sendmsg (IOV_MAX on Linux).
_MOST_PARTS = 1024

#: An answer of which less than this comes in a second is given up when it is overdue: each
#: byte by itself would come in time, and together they would take years.
_SLOWEST_BYTES_PER_S = 64 * 1024

#: For answers that are handed on as they come: no memory is at stake.
_LARGEST_SIZE = 2**31 - 1

#: Answers without batches come in one piece of at most this, often several at once.
_SMALL_RECEIVE = 64 * 1024

#: With TLS, parts are gathered up to a record of it before they are sent.
_TLS_RECORD = 16 * 1024

#: How a broker's TLS alert looks when it is read as a size: 0x15, and version 3.x.
_ALERTS = range(0x15030000, 0x15040000)

#: What comes of a TLS handshake where the broker hangs up: the versions of OpenSSL differ.
_HANGS_UP = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError, BrokenPipeError)

#: A session is renewed when so much of the time that the broker gave it is over;
#: Java's clients draw a number from 0.85 to 0.95.
_SESSION_USED = 0.85

#: The longest a connection may take, like Java's socket.connection.setup.timeout.ms, but shorter: an operator
#: who starts a mirror waits for it. SYNs go out at 0, 1 and 3 s; those who connect try again.
_CONNECT_S = 4.0

_TIMEVAL = struct.Struct("@ll")
_LINGER = struct.Struct("@ii")


class ReceiveBuffer:
    """
    A buffer that frames are received into, and received into again.

    Views of one frame are valid until the next is received.

    Its memory is the system's own and goes back to it: that of a malloc would stay with
    the thread that asked for it, and a mirror of months makes many.

    """

    def __init__(self, size: int) -> None:
        self._bytes = mmap.mmap(-1, size)
        self._size = size

    def reserve(self, size: int) -> memoryview:
        """Return a writable view of ``size`` bytes; grows for one frame where a single batch is larger."""
        if size > len(self._bytes):
            self._bytes = mmap.mmap(-1, size)
        elif len(self._bytes) > self._size >= size:
            self._bytes = mmap.mmap(-1, self._size)
        return memoryview(self._bytes)[:size]


class FetchedBytes(bytearray):
    """Memory that one answer was received into; views of it keep it alive."""


class FreshMemory:
    """
    New memory for each frame, so that views of it stay valid for as long as anybody has them.

    Who keeps one view keeps the whole frame.

    """

    def reserve(self, size: int) -> memoryview:
        """Return a writable view of ``size`` bytes that nobody else has."""
        return memoryview(FetchedBytes(size))


def open_socket(address: Address, timeout_s: float) -> socket.socket:
    """
    Connect to an address.

    Raises:
        Unreachable: Its name does not resolve, it refuses, or it does not answer in time.
        Disconnected: It is no address.

    """
    try:
        return socket.create_connection(address, timeout_s)
    except (ValueError, OverflowError) as error:
        # Metadata may name anything: labels too long for DNS, a NUL, ports that there are not.
        raise Disconnected(str(address), "that is no host's name and port") from error
    except socket.gaierror as error:
        here = socket.gethostname()
        reason = f"the name {address.host!r} does not resolve on host {here} ({error.strerror})"
        raise Unreachable(str(address), reason, unresolved=True) from error
    except OSError as error:
        too_late = isinstance(error, TimeoutError) and error.errno is None
        reason = f"no answer in {timeout_s:g} s" if too_late else error.strerror or str(error)
        raise Unreachable(str(address), reason) from error


class _Expected(NamedTuple):
    """The answer to a request: which, for errors, and at most how many bytes."""

    correlation_id: int
    name: str
    largest: int


class Connection:
    """
    A TCP connection that speaks Kafka's protocol, handshakes and login done.

    Where the broker limits a login (KIP-368), it is renewed in time, before the next request.

    Not for sharing between threads. All methods raise
    :class:`~shoal.errors.Disconnected` where the socket fails or
    ``timeout_s`` passes, and :class:`~shoal.errors.ProtocolError` where an
    answer makes no sense; the connection is closed then.

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
        Connect, ask which versions the broker speaks, and log in.

        Args:
            address: The broker's.
            client_id: Shown in the broker's logs, metrics and quotas.
            timeout_s: For the connection (at most 4 s of it), and for each wait on it; an answer
                that comes in pieces gets a second more for each 64 KiB.
            abort_on_close: Throw away what is still to be sent when the
                socket is closed, also by the death of the process: a produce
                request must not arrive after its sender is gone.
            security: For a listener that is not PLAINTEXT.
            on_begun: Given this connection before the broker is asked anything: another thread may
                :meth:`abort` it from then on.
            sizes: The bounds of answers; by default those of :class:`AnswerSizes`.

        Raises:
            AccessRefused: A certificate or a password is not accepted, by the broker or by us.

        """
        self.address = address
        self.client_id = client_id
        self._correlation_ids = itertools.count()
        #: The answers that are missing, oldest first.
        self._in_flight: deque[_Expected] = deque()
        self.sizes = sizes or AnswerSizes()
        self._received = bytearray()
        self._timeout_s = timeout_s
        self._prepared: list[bytes | memoryview] = []
        #: Frames that came while the login was renewed, oldest first.
        self._early: deque[memoryview] = deque()
        self._security = security
        self._is_tls = security is not None and security.tls
        self._renew_at: float | None = None
        self._responses = 0
        #: When the broker answered last, or was connected to; of the monotonic clock.
        self.heard_at = time.monotonic()
        self._socket: socket.socket
        self._socket = open_socket(address, min(timeout_s, _CONNECT_S))
        self._prepare_socket(timeout_s, abort_on_close)
        if on_begun is not None:
            on_begun(self)
        try:
            if security is not None and security.tls:
                self._begin_tls(security)
            self.versions = self._ask_versions()
            if security is not None and security.mechanism:
                self._log_in(security)
        except BaseException:
            self.close()
            raise

    def _prepare_socket(self, timeout_s: float, abort_on_close: bool) -> None:
        # Blocking, with the kernel's own time-outs: a frame of megabytes is
        # then one recv (MSG_WAITALL) instead of one for each segment.
        self._socket.settimeout(None)
        timeval = _TIMEVAL.pack(int(timeout_s), int(timeout_s % 1 * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if abort_on_close:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.pack(1, 0))

    def _begin_tls(self, security: Security) -> None:
        try:
            self._socket = connect_tls(self._socket, self.address.host, security, self._timeout_s)
        except _HANGS_UP as error:
            reason = f"the broker closed the connection instead of a TLS handshake; {TLS_ADVICE}"
            raise Disconnected(str(self.address), reason) from error
        except OSError as error:
            raise self._broken(error) from error
        except ValueError as error:
            # A name that no certificate can have, such as one that begins with a dot.
            raise Disconnected(str(self.address), f"that is no host's name: {error}") from error

    def _log_in(self, security: Security) -> None:
        """Exchange what the mechanism asks for; nothing else may be in flight."""
        where = str(self.address)
        handshake = self._request(
            ApiKey.SASL_HANDSHAKE, self.version(ApiKey.SASL_HANDSHAKE), mechanism=security.mechanism
        )
        if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(handshake.mechanisms) or "none"
            reason = f"it does not offer {security.mechanism}, but {offered}; set sasl.mechanism"
            raise AccessRefused(where, reason)
        if handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            without = "SSL" if security.tls else "PLAINTEXT"
            raise AccessRefused(where, f"its listener has no SASL; set security.protocol={without}")
        raise_for(handshake.error_code, f"SaslHandshake at {where}")
        exchange = SaslExchange(security)
        lifetime_ms = 0
        while not exchange.is_done:
            answer = self._request(
                ApiKey.SASL_AUTHENTICATE,
                self.version(ApiKey.SASL_AUTHENTICATE),
                auth_bytes=exchange.next_token(),
            )
            if answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
                # Not the broker's own words: what a server puts into them is not ours to print.
                reason = (
                    f"the login of {security.username!r} by {security.mechanism} failed; "
                    "check username and password in sasl.jaas.config"
                )
                raise AccessRefused(where, reason, is_login=True)
            raise_for(answer.error_code, f"SaslAuthenticate at {where}")
            try:
                exchange.receive(answer.auth_bytes)
            except ValueError as error:
                raise AccessRefused(where, f"{security.mechanism}: {error}") from error
            lifetime_ms = getattr(answer, "session_lifetime_ms", 0) or 0
        self._renew_at = time.monotonic() + lifetime_ms / 1000 * _SESSION_USED if lifetime_ms > 0 else None

    def _renew_login_in_time(self) -> None:
        if self._renew_at is not None and time.monotonic() > self._renew_at:
            self._renew_login()

    def _renew_login(self) -> None:
        """
        Log in again on the same connection (KIP-368): the broker would close it at the next request.

        What is in flight is received before, and waits for :meth:`receive`.

        """
        assert self._security is not None
        early = deque(self._receive_frame(None) for _ in range(len(self._in_flight)))
        self._renew_at = None
        kept, self._early = self._early, deque()
        try:
            self._log_in(self._security)
        except AccessRefused as error:
            self.close()
            # It was accepted on this connection before: a login service may be away.
            raise Disconnected(error.where, error.reason) from error
        except BaseException:
            self.close()
            raise
        self._early = kept + early

    def _ask_versions(self) -> Mapping[int, tuple[int, int]]:
        response = self._request(ApiKey.API_VERSIONS, 0)
        if response.error_code:
            raise BrokerError(response.error_code, f"ApiVersions at {self.address}")
        versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        # KAFKA-18659: 4.x brokers announce Produce from 0 and refuse 0 to 2.
        oldest, newest = versions.get(ApiKey.PRODUCE, (0, 0))
        versions[ApiKey.PRODUCE] = (max(oldest, 3), newest)
        return versions

    def version(self, api_key: ApiKey) -> int:
        """Return the version of an API that is spoken on this connection."""
        return pick_version(api_key, self.versions, str(self.address))

    def speaks(self, api_key: ApiKey) -> bool:
        """Whether there is a version of an API that both sides speak."""
        try:
            self.version(api_key)
        except ProtocolError:
            return False
        return True

    @property
    def in_flight(self) -> int:
        """Requests whose answers are not handed out yet."""
        return len(self._in_flight) + len(self._early)

    @property
    def largest_answer(self) -> int:
        """The most bytes that the oldest answer in flight may have, or any frame if there is none."""
        return self._in_flight[0].largest if self._in_flight else LARGEST_FRAME

    def request(self, api_key: ApiKey, **fields: Any) -> Any:
        """Send a request in the version that is spoken, and return its response."""
        return self._request(api_key, self.version(api_key), **fields)

    def _request(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        try:
            self._send(api_key, version, fields)
            return codec.decode_response(api_key, version, self.receive(), self.sizes.values)
        except BaseException:
            # Also of Ctrl-C in between: the next request would be given this one's answer.
            self.close()
            raise

    def send(self, api_key: ApiKey, version: int | None = None, /, **fields: Any) -> None:
        """
        Send a request; :meth:`receive` returns its response after those before it.

        Args:
            api_key: The API.
            version: By default the newest that both sides support.
            **fields: The request's.

        """
        self._send(api_key, self.version(api_key) if version is None else version, fields)

    def _send(self, api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> None:
        correlation_id = next(self._correlation_ids)
        request = codec.request_class(api_key)(version=version, **fields)
        frame = codec.encode_request(request, correlation_id, self.client_id)
        largest = self.sizes.largest(api_key, len(frame), fields)
        self._prepare([frame], _Expected(correlation_id, api_key.name, largest))
        self.send_prepared()

    def next_correlation_id(self) -> int:
        """Return the id for a request that the caller encodes."""
        return next(self._correlation_ids)

    def send_parts(
        self,
        parts: Sequence[bytes | memoryview],
        api_key: ApiKey,
        version: int,
        correlation_id: int,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """Send an encoded request, gathered from its parts by the kernel; see :meth:`prepare_parts`."""
        self.prepare_parts(parts, api_key, version, correlation_id, fields)
        self.send_prepared()

    def prepare_parts(
        self,
        parts: Sequence[bytes | memoryview],
        api_key: ApiKey,
        version: int,
        correlation_id: int,
        fields: Mapping[str, Any] | None = None,
        *,
        is_answered: bool = True,
    ) -> None:
        """
        Queue an encoded request; it goes out with :meth:`send_prepared`, before any answer is awaited.

        Args:
            parts: The size first.
            api_key: The API.
            version: Of the request.
            correlation_id: As it stands in the request.
            fields: What was encoded, if it bounds the answer; see :class:`AnswerSizes`.
            is_answered: Produce with acks=0 is the one request that is not answered.

        """
        largest = self.sizes.largest(api_key, sum(map(len, parts)), fields)
        self._prepare(parts, _Expected(correlation_id, api_key.name, largest) if is_answered else None)

    def _prepare(self, parts: Sequence[bytes | memoryview], expected: _Expected | None) -> None:
        if not self._prepared:
            self._renew_login_in_time()
        if expected is not None:
            self._in_flight.append(expected)
        self._prepared += parts

    def send_prepared(self) -> None:
        """Send all queued requests, gathered from their parts by the kernel."""
        parts, self._prepared = self._prepared, []
        try:
            for first in range(0, len(parts), _MOST_PARTS):
                self._send_all(parts[first : first + _MOST_PARTS])
        except OSError as error:
            raise self._broken(error) from error
        except BaseException:
            self.close()  # Ctrl-C, say: nobody knows how much of it was sent
            raise

    def stream_parts(
        self, parts: Iterable[bytes | memoryview], name: str, correlation_id: int, *, answered: bool = True
    ) -> None:
        """
        Send a request that somebody else encoded, each part before the next is asked for.

        Args:
            parts: The size first. Where they raise, the connection is closed: the request is cut short.
            name: Of the API, for errors.
            correlation_id: As it stands in the request.
            answered: Whether there will be an answer.

        """
        self._renew_login_in_time()
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

    def _send_all(self, parts: Sequence[bytes | memoryview]) -> None:
        if self._is_tls:
            self._send_by_tls(parts)
            return
        sent = self._socket.sendmsg(parts)
        if sent == sum(map(len, parts)):
            return
        for part in parts:
            if sent < len(part):
                self._socket.sendall(memoryview(part)[sent:])
            sent = max(0, sent - len(part))

    def _send_by_tls(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send parts one by one, small ones together: there is no sendmsg, and each send is a record."""
        small = bytearray()
        for part in parts:
            if len(small) + len(part) <= _TLS_RECORD:
                small += part
                continue
            if small:
                self._socket.sendall(small)
                small = bytearray()
            self._socket.sendall(part)
        if small:
            self._socket.sendall(small)

    def receive(self, buffer: ReceiveBuffer | FreshMemory | None = None) -> memoryview:
        """
        Receive the frame of the oldest request in flight, without its size.

        Args:
            buffer: Where to; by default, fresh memory.

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
        Receive the beginning of the oldest answer.

        Returns:
            Its size, that of its correlation id included. It is read by :meth:`read_into`, from the
            correlation id on and all of it, before anything else is done with this connection.

        """
        size = self._receive_size(_LARGEST_SIZE)
        head = self._receive_small(INT32.size)
        self._received[:0] = head
        self._expect_answer(head)
        return size

    def read_into(self, view: memoryview) -> int:
        """Receive up to so many bytes as fit, at least one, of the answer that was begun."""
        if self._received:
            count = min(len(self._received), len(view))
            view[:count] = self._received[:count]
            del self._received[:count]
            return count
        try:
            count = self._socket.recv_into(view)
        except OSError as error:
            raise self._broken(error) from error
        if not count:
            raise self._broken(ConnectionResetError("the broker closed the connection within an answer"))
        return count

    def has_hung_up(self) -> bool:
        """
        Whether the broker closed the connection, or sends what nobody asked for; does not wait.

        To be asked while nothing is in flight, when the socket is readable: with TLS that may also be
        nothing that concerns us.

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
        Return the socket's, to wait on; -1 once it is closed.

        :attr:`is_readable` first, since what came already is not seen by it.

        """
        return self._socket.fileno()

    @property
    def is_readable(self) -> bool:
        """Whether bytes came that nobody has asked for yet, as far as this is known without a system call."""
        if self._early or self._received:
            return True
        return isinstance(self._socket, ssl.SSLSocket) and not self.closed and self._socket.pending() > 0

    def _receive_size(self, largest: int | None = None) -> int:
        """Receive the size of the oldest answer: at most ``largest``, or what its request allows."""
        if not self._in_flight:
            raise ProtocolError(f"nothing was asked of {self.address}")
        expected = self._in_flight[0]
        largest = expected.largest if largest is None else largest
        size: int = INT32.unpack(self._receive_small(INT32.size))[0]
        if not 4 <= size <= largest:
            self.close()
            if size in _ALERTS and self._responses == 0 and not self._is_tls:
                reason = "its listener is one for TLS; set security.protocol=SSL or SASL_SSL"
                raise AccessRefused(str(self.address), reason)
            if self._responses and largest < size <= LARGEST_FRAME:
                bound = BATCH_BYTES_PROPERTY if expected.name == ApiKey.FETCH.name else ANSWER_BYTES_PROPERTY
                raise ProtocolError(
                    f"{self.address} answers {expected.name} by {size:,} bytes, and at most {largest:,} are "
                    f"expected for this request; if the cluster really needs more, raise {bound} in the "
                    "client's properties"
                )
            protocol = self._security.protocol if self._security else "plaintext"
            raise ProtocolError(
                f"{self.address} does not answer as a Kafka broker on a {protocol} listener would: "
                f"a response of {size} bytes"
            )
        return size

    def _expect_answer(self, frame: memoryview) -> None:
        """Check that a frame answers the oldest request, which is in flight no more."""
        self._responses += 1
        self.heard_at = time.monotonic()
        expected, name, _ = self._in_flight.popleft()
        if codec.read_correlation_id(frame) != expected:
            self.close()
            raise ProtocolError(f"{self.address} answered another request than {name} {expected}")

    def _receive_small(self, size: int) -> memoryview:
        """Receive so many bytes into fresh memory; what came with them waits for the next call."""
        deadline = self._deadline(size)
        while len(self._received) < size:
            try:
                self._check(deadline)
                data = self._socket.recv(_SMALL_RECEIVE)
            except OSError as error:
                raise self._broken(error) from error
            if not data:
                raise self._broken(ConnectionResetError(self._hangup()))
            self._received += data
        result = bytes(self._received[:size])
        del self._received[:size]
        return memoryview(result)

    def _receive_into(self, view: memoryview) -> memoryview:
        """Fill a view, mostly by one system call."""
        received = len(self._received)
        if received:
            received = min(received, len(view))
            view[:received] = self._received[:received]
            del self._received[:received]
        deadline = self._deadline(len(view))
        flags = 0 if self._is_tls else socket.MSG_WAITALL
        try:
            while received < len(view):
                self._check(deadline)
                count = self._socket.recv_into(view[received:], 0, flags)
                if count == 0:
                    raise ConnectionResetError("the broker closed the connection")
                received += count
        except OSError as error:
            raise self._broken(error) from error
        except BaseException:
            self.close()  # likewise: what came of the frame is lost
            raise
        return view

    def _deadline(self, size: int) -> float:
        return time.monotonic() + self._timeout_s + size / _SLOWEST_BYTES_PER_S

    def _check(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise BlockingIOError("the answer comes too slowly")

    def _hangup(self) -> str:
        said = "the broker closed the connection"
        if self._responses == 0 and not self._is_tls:
            return f"{said} at the first request; {TLS_ADVICE}"
        if self._responses == 1 and not (self._security and self._security.mechanism):
            return f"{said} at the first request; does its listener ask for SASL? security.protocol says so"
        return said

    def _broken(self, error: OSError) -> Disconnected | AccessRefused:
        self.close()
        # Only at the beginning: later, the same words of OpenSSL's mean bytes that were damaged on the way.
        begins = self._is_tls and self._responses == 0
        refusal = tls_refusal(error, self.address.host) if begins else None
        if refusal:
            return AccessRefused(str(self.address), refusal)
        # A time-out of Python's own has no errno.
        too_late = isinstance(error, BlockingIOError) or (
            isinstance(error, TimeoutError) and error.errno is None
        )
        return Disconnected(
            str(self.address), "no answer in time" if too_late else str(error.strerror or error)
        )

    @property
    def closed(self) -> bool:
        return self._socket.fileno() < 0

    def close(self) -> None:
        """Close the socket; harmless when it is closed already."""
        self._socket.close()

    def abort(self) -> None:
        """Let another thread that waits on this connection fail with :class:`Disconnected` at once."""
        with contextlib.suppress(OSError):
            # Not TLS's own, which says goodbye first, and is not for two threads.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def version_or_close(connection: Connection, api_key: ApiKey) -> int:
    """Return the version of an API that is spoken; who takes a connection over closes it if there is none."""
    try:
        return connection.version(api_key)
    except ProtocolError:
        connection.close()
        raise


def raise_for(code: int, where: str, detail: str | None = None) -> None:
    """Raise the error of a response's code, if it is one."""
    if code != ErrorCode.NONE:
        raise BrokerError(code, where, detail)

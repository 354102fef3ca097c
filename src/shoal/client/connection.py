"""
One blocking connection to one broker.

Requests may be pipelined: a broker answers those of a connection in the order
they were sent. Any failure closes the connection, and what was in flight then
has an unknown outcome.
"""

from __future__ import annotations

import itertools
import re
import socket
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import BrokerError, Disconnected, ErrorCode, ProtocolError
from ..protocol import codec
from ..protocol.apis import ApiKey, pick_version
from ..protocol.primitives import INT32

__all__ = ["Address", "Connection", "ReceiveBuffer", "parse_bootstrap"]

#: More parts than this a kernel refuses in one sendmsg (IOV_MAX on Linux).
_MOST_PARTS = 1024

#: A response larger than this is a peer that does not speak Kafka: read as a
#: size, "HTTP" is 1.2 GB and a TLS alert 352 MB. Brokers accept at most 100 MiB a request.
_LARGEST_FRAME = 256 * 1024 * 1024

#: The same for answers without batches: the metadata of a million partitions would fit.
_LARGEST_SMALL_FRAME = 64 * 1024 * 1024

#: An answer of which less than this comes in a second is given up when it is overdue: each
#: byte by itself would come in time, and together they would take years.
_SLOWEST_BYTES_PER_S = 64 * 1024

#: Answers without batches come in one piece of at most this, often several at once.
_SMALL_RECEIVE = 64 * 1024

_TIMEVAL = struct.Struct("@ll")
_LINGER = struct.Struct("@ii")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_HOST_AND_PORT = re.compile(r"(\[(?P<ipv6>[0-9a-fA-F:.%]+)\]|(?P<host>[^\s:;/\[\]]+)):(?P<port>[0-9]{1,5})")


def parse_bootstrap(servers: str) -> list[Address]:
    """
    Parse ``HOST:PORT[,HOST:PORT…]``, as in Kafka's ``bootstrap.servers``.

    Raises:
        ValueError: With a sentence that names the part which is wrong.

    """
    addresses = []
    for server in filter(None, (part.strip() for part in servers.split(","))):
        parts = _HOST_AND_PORT.fullmatch(server)
        if not parts or not 0 < int(parts["port"]) < 65536:
            raise ValueError(f"{server!r} is no HOST:PORT")
        addresses.append(Address(parts["ipv6"] or parts["host"], int(parts["port"])))
    if not addresses:
        raise ValueError(f"{servers!r} names no HOST:PORT")
    return addresses


class ReceiveBuffer:
    """
    A buffer that frames are received into, and received into again.

    Views of one frame are valid until the next is received.

    """

    def __init__(self, size: int) -> None:
        self._bytes = bytearray(size)
        self._size = size

    def reserve(self, size: int) -> memoryview:
        """Return a writable view of ``size`` bytes; grows for one frame where a single batch is larger."""
        if size > len(self._bytes):
            self._bytes = bytearray(size)
        elif len(self._bytes) > self._size >= size:
            self._bytes = bytearray(self._size)
        return memoryview(self._bytes)[:size]


class Connection:
    """
    A TCP connection that speaks Kafka's protocol, handshake done.

    Not for sharing between threads. All methods raise
    :class:`~shoal.errors.Disconnected` where the socket fails or
    ``timeout_s`` passes, and :class:`~shoal.errors.ProtocolError` where an
    answer makes no sense; the connection is closed then.

    """

    def __init__(
        self, address: Address, *, client_id: str, timeout_s: float, abort_on_close: bool = False
    ) -> None:
        """
        Connect, and ask which versions the broker speaks.

        Args:
            address: The broker's.
            client_id: Shown in the broker's logs, metrics and quotas.
            timeout_s: For the connection, and for each wait on it; an answer that
                comes in pieces gets a second more for each 64 KiB.
            abort_on_close: Throw away what is still to be sent when the
                socket is closed, also by the death of the process: a produce
                request must not arrive after its sender is gone.

        """
        self.address = address
        self.client_id = client_id
        self._correlation_ids = itertools.count()
        self._in_flight: deque[tuple[int, ApiKey, int]] = deque()
        self._received = bytearray()
        self._timeout_s = timeout_s
        self._prepared: list[bytes | memoryview] = []
        try:
            self._socket = socket.create_connection(address, timeout_s)
        except (ValueError, OverflowError) as error:
            # Metadata may name anything: labels too long for DNS, a NUL, ports that there are not.
            raise Disconnected(str(address), "that is no host's name and port") from error
        except OSError as error:
            raise Disconnected(str(address), error.strerror or str(error)) from error
        self._prepare_socket(timeout_s, abort_on_close)
        try:
            self.versions = self._ask_versions()
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
        """Requests that are not answered yet."""
        return len(self._in_flight)

    def request(self, api_key: ApiKey, **fields: Any) -> Any:
        """Send a request in the version that is spoken, and return its response."""
        return self._request(api_key, self.version(api_key), **fields)

    def _request(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        self._send(api_key, version, fields)
        frame = self.receive()
        try:
            return codec.decode_response(api_key, version, frame)
        except ProtocolError:
            self.close()
            raise

    def send(self, api_key: ApiKey, **fields: Any) -> None:
        """Send a request; :meth:`receive` returns its response after those before it."""
        self._send(api_key, self.version(api_key), fields)

    def _send(self, api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> None:
        correlation_id = next(self._correlation_ids)
        request = codec.request_class(api_key)(version=version, **fields)
        frame = codec.encode_request(request, correlation_id, self.client_id)
        self.send_parts([frame], api_key, version, correlation_id)

    def next_correlation_id(self) -> int:
        """Return the id for a request that the caller encodes."""
        return next(self._correlation_ids)

    def send_parts(
        self, parts: Sequence[bytes | memoryview], api_key: ApiKey, version: int, correlation_id: int
    ) -> None:
        """Send an encoded request, gathered from its parts by the kernel."""
        self.prepare_parts(parts, api_key, version, correlation_id)
        self.send_prepared()

    def prepare_parts(
        self, parts: Sequence[bytes | memoryview], api_key: ApiKey, version: int, correlation_id: int
    ) -> None:
        """Queue an encoded request; it goes out with :meth:`send_prepared`, before any answer is awaited."""
        self._in_flight.append((correlation_id, api_key, version))
        self._prepared += parts

    def send_prepared(self) -> None:
        """Send all queued requests, gathered from their parts by the kernel."""
        parts, self._prepared = self._prepared, []
        try:
            for first in range(0, len(parts), _MOST_PARTS):
                self._send_all(parts[first : first + _MOST_PARTS])
        except OSError as error:
            raise self._broken(error) from error

    def _send_all(self, parts: Sequence[bytes | memoryview]) -> None:
        sent = self._socket.sendmsg(parts)
        if sent == sum(map(len, parts)):
            return
        for part in parts:
            if sent < len(part):
                self._socket.sendall(memoryview(part)[sent:])
            sent = max(0, sent - len(part))

    def receive(self, buffer: ReceiveBuffer | None = None) -> memoryview:
        """
        Receive the frame of the oldest request in flight, without its size.

        Args:
            buffer: Where to; by default, fresh memory.

        """
        if not self._in_flight:
            raise ProtocolError(f"nothing was asked of {self.address}")
        (size,) = INT32.unpack(self._receive_small(INT32.size))
        if not 4 <= size <= (_LARGEST_FRAME if buffer else _LARGEST_SMALL_FRAME):
            self.close()
            raise ProtocolError(
                f"{self.address} does not answer as a Kafka broker on a plaintext listener would: "
                f"a response of {size} bytes"
            )
        frame = self._receive_into(buffer.reserve(size)) if buffer else self._receive_small(size)
        expected, api_key, _ = self._in_flight.popleft()
        if codec.read_correlation_id(frame) != expected:
            self.close()
            raise ProtocolError(f"{self.address} answered another request than {api_key.name} {expected}")
        return frame

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
                raise self._broken(ConnectionResetError("the broker closed the connection"))
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
        try:
            while received < len(view):
                self._check(deadline)
                count = self._socket.recv_into(view[received:], 0, socket.MSG_WAITALL)
                if count == 0:
                    raise ConnectionResetError("the broker closed the connection")
                received += count
        except OSError as error:
            raise self._broken(error) from error
        return view

    def _deadline(self, size: int) -> float:
        return time.monotonic() + self._timeout_s + size / _SLOWEST_BYTES_PER_S

    def _check(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise BlockingIOError("the answer comes too slowly")

    def _broken(self, error: OSError) -> Disconnected:
        self.close()
        reason = "no answer in time" if isinstance(error, BlockingIOError) else str(error.strerror or error)
        return Disconnected(str(self.address), reason)

    @property
    def closed(self) -> bool:
        return self._socket.fileno() < 0

    def close(self) -> None:
        """Close the socket; harmless when it is closed already."""
        self._socket.close()

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

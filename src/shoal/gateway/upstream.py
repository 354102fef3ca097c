"""The connection to a broker for a client: it forwards requests, and drops answers if the client hung up."""

from __future__ import annotations

import mmap
import select
from typing import Any

from ..client.answer_sizes import ANSWER_BYTES_PROPERTY, LARGEST_FRAME
from ..client.connection import Connection
from ..client.receiving import Expected
from ..net.address import Address
from ..net.hung_up import HUNG_UP
from ..protocol import codec
from ..protocol.apis import ApiKey
from ..protocol.codec import RequestHeader
from ..protocol.primitives import INT32
from .client_connection import PIECE_BYTES, Client, ClientRequest
from .settings import GatewaySettings
from .versions import TRANSLATED, name_of, served_versions

__all__ = ["TooLarge", "Upstream"]

#: The bound of answers that are passed on piece by piece: they take no memory.
_LARGEST_SIZE = 2**31 - 1


class TooLarge(Exception):
    """An answer exceeds its limit. The rest of it is unread, so the connection is unusable."""


class Upstream(Connection):
    """
    A connection to one broker on behalf of one client.

    One request is in flight at a time, since a broker serves one at a time. An error of the broker's
    connection is a :class:`~shoal.errors.ShoalError`, one of the client's is :class:`ClientGone`.

    Attributes:
        client: The client.
        served: The oldest and the newest version of each API that clients may use.

    """

    def __init__(self, address: Address, client: Client, settings: GatewaySettings) -> None:
        """Connect; see :class:`Connection`. The connection ends with the client's."""
        upstream = settings.upstream
        self.client = client
        super().__init__(
            address,
            client_id=upstream.client_id,
            timeout_s=upstream.request_timeout_s,
            security=settings.client_security,
            on_begun=client.begin_broker,
            sizes=upstream.answer_sizes,
        )
        self.served = served_versions(self.versions, settings.apis)

    # Piece by piece

    def forward(self, request: ClientRequest, *, answered: bool = True) -> None:
        """
        Send a client's request unchanged, while it is being received.

        If the client breaks it off, the connection is closed, since the request is incomplete.

        Args:
            request: The request.
            answered: Whether it has a response.

        """
        self.renew_login_in_time()
        try:
            for part in request.parts():
                self._socket.sendall(part)
                del part  # else it would be in memory beside the next one
        except OSError as error:
            raise self._broken(error) from error
        except BaseException:
            self.close()
            raise
        if answered:
            header = request.header
            self._in_flight.append(Expected(header.correlation_id, name_of(header.api_key), LARGEST_FRAME))

    def relay_answer(self) -> None:
        """Send the answer to the client unchanged, while it is being received."""
        head = self.begin_frame()
        left = INT32.unpack(head[: INT32.size])[0] - INT32.size
        buffer = memoryview(bytearray(len(head) + min(left, PIECE_BYTES)))
        buffer[: len(head)] = head
        start = len(head)
        while True:
            count = self.read_into(buffer[start : start + left]) if left else 0
            self.client.send(buffer[: start + count])
            left -= count
            start = 0
            if not left:
                return

    def begin_frame(self) -> bytes:
        """
        Wait until the oldest answer begins, or the client hangs up; :meth:`read_into` returns the rest.

        A client that sent more before it hung up is served, as in :meth:`Client.check`.

        Returns:
            The answer's size and its correlation id. The caller must read all of the rest before any other
            use of this connection.

        """
        if not self.is_readable:
            poll = select.poll()
            poll.register(self.client.fileno(), HUNG_UP)
            poll.register(self.fileno(), select.POLLIN)
            if self.fileno() not in [descriptor for descriptor, _ in poll.poll()]:
                self.client.check()
        size = self._receive_size(_LARGEST_SIZE)
        correlation_id = self._receive_small(INT32.size)
        self._expect_answer(correlation_id)
        return INT32.pack(size) + correlation_id

    def read_into(self, view: memoryview) -> int:
        """Receive at least one byte, and at most the size of the view, after :meth:`begin_frame`."""
        return self._receive_some(view)

    # Whole

    def receive_whole(self, largest: int | None = None) -> memoryview:
        """
        Receive a whole answer, into memory that the system gets back with the last view of it.

        A large answer waits at the broker until there is memory for it.

        Args:
            largest: The limit in bytes; by default that of every answer without batches.

        Raises:
            TooLarge: The answer exceeds the limit.

        """
        head = self.begin_frame()
        size = INT32.unpack(head[: INT32.size])[0]
        largest = self.sizes.answer_bytes if largest is None else largest
        if size > largest:
            raise TooLarge(
                f"{self.address} sent an answer of {size} bytes, and the limit is {largest}. If the cluster "
                f"needs more, raise {ANSWER_BYTES_PROPERTY} in the upstream properties, or "
                "--max-bytes-in-flight for a batch. The gateway closed the client's connection"
            )
        self.client.hold("answer", size)
        # Mapped memory returns to the system at once; the allocator would keep it.
        view = memoryview(mmap.mmap(-1, size) if size > PIECE_BYTES else bytearray(size))
        view[: INT32.size] = head[INT32.size :]
        position = INT32.size
        while position < size:
            position += self.read_into(view[position:])
        return view

    def ask(self, header: RequestHeader, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request with a client's correlation and client id, and return the decoded answer."""
        self.send_for(header, api_key, version, **fields)
        frame = self.receive_whole()
        with self.client.decoding(len(frame), is_answer=True):
            return codec.decode_response(api_key, version, frame, self.sizes.values)

    def send_for(self, header: RequestHeader, api_key: ApiKey, version: int, **fields: Any) -> None:
        """Send a request with a client's correlation and client id, for :meth:`receive_whole`."""
        request = codec.request_class(api_key)(version=version, **fields)
        frame = codec.encode_request(request, header.correlation_id, header.client_id or "")
        self.send_parts([frame], api_key, header.correlation_id, fields.get("max_bytes"))

    def supports(self, api_key: int, version: int) -> bool:
        """Whether the broker supports a version of an API."""
        oldest, newest = self.versions.get(api_key, (0, -1))
        return oldest <= version <= newest

    def oldest(self, api_key: ApiKey) -> int:
        """
        Return the oldest version that both the gateway and the broker support.

        The answers of the oldest version are the most similar to those that an old client expects.
        """
        return max(TRANSLATED.get(api_key, 0), self.versions[api_key][0])

"""The connection to a broker for a client: it forwards requests, and drops answers if the client hung up."""

from __future__ import annotations

import mmap
import select
from typing import Any

from ..client.answer_sizes import ANSWER_BYTES_PROPERTY
from ..net.hung_up import HUNG_UP
from ..protocol import codec
from ..protocol.apis import ApiKey
from ..protocol.codec import RequestHeader
from ..protocol.primitives import INT32
from .client_connection import PIECE_BYTES, Client, ClientGone, ClientRequest
from .streamed_connection import StreamedConnection
from .versions import name_of
from .work import Work

__all__ = ["TooLarge", "Upstream"]


class TooLarge(Exception):
    """An answer exceeds its limit. The rest of it is unread, so the connection is unusable."""


class Upstream:
    """
    A connection to one broker on behalf of one client.

    One request is in flight at a time, since a broker serves one at a time. An error of the broker's
    connection is a :class:`~shoal.errors.ShoalError`, one of the client's is :class:`ClientGone`.

    """

    def __init__(self, connection: StreamedConnection, client: Client, work: Work) -> None:
        self.connection = connection
        self.work = work
        self._client = client

    def wait_for_request(self, idle_s: float) -> None:
        """
        Wait until the client sends something, or hangs up.

        Raises:
            ClientGone: The client sent nothing in this time, or the broker hung up.

        """
        if self._client.is_readable:
            return
        poll = select.poll()
        poll.register(self._client.fileno(), select.POLLIN)
        poll.register(self.connection.fileno(), select.POLLIN)
        while True:
            ready = poll.poll(idle_s * 1000)
            if not ready:
                raise ClientGone(f"it sent nothing for {idle_s:g} s")
            if any(descriptor == self._client.fileno() for descriptor, _ in ready):
                return
            if self.connection.has_hung_up():
                raise ClientGone("the broker hung up between two requests")

    def forward(self, request: ClientRequest, *, answered: bool = True) -> None:
        """Send a client's request unchanged, while it is being received."""
        header = request.header
        self.connection.stream_parts(
            request.parts(), name_of(header.api_key), header.correlation_id, answered=answered
        )

    def relay_answer(self) -> None:
        """Send the answer to the client unchanged, while it is being received."""
        left = self._begin_answer()
        head = INT32.pack(left)
        buffer = memoryview(bytearray(len(head) + min(left, PIECE_BYTES)))
        buffer[: len(head)] = head
        start = len(head)
        while left:
            count = self.connection.read_into(buffer[start : start + left])
            left -= count
            self._client.send(buffer[: start + count])
            start = 0

    def receive(self, largest: int | None = None) -> memoryview:
        """
        Receive a whole answer, into memory that the system gets back with the last view of it.

        A large answer waits at the broker until there is memory for it.

        Args:
            largest: The limit in bytes; by default that of every answer without batches.

        Raises:
            TooLarge: The answer exceeds the limit.

        """
        size = self._begin_answer()
        self._check_size(size, largest)
        self.work.answer(size)
        return self._receive_rest(size)

    def _check_size(self, size: int, largest: int | None) -> None:
        if largest is None:
            largest = self.connection.sizes.answer_bytes
        if size > largest:
            raise TooLarge(
                f"{self.connection.address} sent an answer of {size} bytes, and the limit is {largest}. If "
                f"the cluster needs more, raise {ANSWER_BYTES_PROPERTY} in the upstream properties, or "
                "--max-decompressed-bytes for a batch. The gateway closed the client's connection"
            )

    def _receive_rest(self, size: int) -> memoryview:
        # Mapped memory returns to the system at once; the allocator would keep it.
        view = memoryview(mmap.mmap(-1, size) if size > PIECE_BYTES else bytearray(size))
        position = 0
        while position < size:
            position += self.connection.read_into(view[position:])
        return view

    def ask(self, header: RequestHeader, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request with a client's correlation and client id, and return the decoded answer."""
        self.send(header, api_key, version, **fields)
        frame = self.receive()
        with self.work.decoding(len(frame), is_answer=True):
            return codec.decode_response(api_key, version, frame, self.connection.sizes.values)

    def send(self, header: RequestHeader, api_key: ApiKey, version: int, **fields: Any) -> None:
        """Send a request with a client's correlation and client id; :meth:`receive` returns the answer."""
        request = codec.request_class(api_key)(version=version, **fields)
        frame = codec.encode_request(request, header.correlation_id, header.client_id or "")
        self.connection.send_parts([frame], api_key, header.correlation_id, fields.get("max_bytes"))

    def speaks(self, api_key: int, version: int) -> bool:
        """Whether the broker supports a version of an API."""
        oldest, newest = self.connection.versions.get(api_key, (0, -1))
        return oldest <= version <= newest

    def oldest(self, api_key: ApiKey, wanted: int) -> int:
        """
        Return the oldest version that the broker supports, from ``wanted`` on.

        The answers of the oldest version are the most similar to those that an old client expects.
        """
        return max(wanted, self.connection.versions[api_key][0])

    def _begin_answer(self) -> int:
        """
        Wait until the answer begins, or the client hangs up; return the answer's size.

        A client that sent more before it hung up is served, as in :meth:`Client.check_answer`.
        """
        if not self.connection.is_readable:
            poll = select.poll()
            poll.register(self._client.fileno(), HUNG_UP)
            poll.register(self.connection.fileno(), select.POLLIN)
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self.connection.fileno() not in ready and not self._client.has_sent_more():
                raise ClientGone("it did not wait for its answer")
        return self.connection.begin_frame()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

"""The broker's end: what a client asked is asked there, and nobody waits for an answer that nobody wants."""

from __future__ import annotations

import mmap
import select
from typing import Any

from ..client.answer_sizes import ANSWER_BYTES_PROPERTY
from ..client.connection import Connection
from ..net.hung_up import HUNG_UP
from ..protocol import codec
from ..protocol.apis import ApiKey
from ..protocol.codec import RequestHeader
from ..protocol.primitives import INT32
from .client_connection import PIECE_BYTES, Client, ClientGone, Incoming
from .versions import name_of
from .working import LARGE_BYTES, answer_is_large, waiting

__all__ = ["TooLarge", "Upstream"]


class TooLarge(Exception):
    """An answer is not worth its memory; the rest of it is still to come, so the connection is of no use."""


class Upstream:
    """
    A connection to one broker on behalf of one client.

    One request is in flight at a time, as a broker works on one at a time. What goes wrong at the
    broker's end is a :class:`~shoal.errors.ShoalError`, at the client's :class:`ClientGone`.

    """

    def __init__(self, connection: Connection, client: Client) -> None:
        self.connection = connection
        self._client = client

    def wait_for_request(self, idle_s: float) -> None:
        """
        Wait until the client says something, or hangs up.

        Raises:
            ClientGone: It said nothing for so long, or the broker hung up meanwhile, and so shall we.

        """
        if self._client.is_readable:
            return
        poll = select.poll()
        poll.register(self._client.fileno(), select.POLLIN)
        poll.register(self.connection.fileno(), select.POLLIN)
        while True:
            ready = poll.poll(idle_s * 1000)
            if not ready:
                raise ClientGone(f"it said nothing for {idle_s:g} s")
            if any(descriptor == self._client.fileno() for descriptor, _ in ready):
                return
            if self.connection.has_hung_up():
                raise ClientGone("the broker hung up between two requests")

    def forward(self, request: Incoming, *, answered: bool = True) -> None:
        """Send a client's request as it is, as it comes."""
        header = request.header
        self.connection.stream_parts(
            request.parts(), name_of(header.api_key), header.correlation_id, answered=answered
        )

    def relay_answer(self) -> None:
        """Send the answer to the client as it is, as it comes."""
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
        Receive a whole answer, into memory that goes back to the system with the last view of it.

        Args:
            largest: The most bytes; by default what the request can need if the gateway made it, else what
                an answer that grows with the cluster may have.

        Raises:
            TooLarge: It is larger than that.

        """
        with waiting(self._client.check_answer):
            size = self.begin_answer(largest)
            if size <= LARGE_BYTES:
                return self.receive_rest(size)
            answer_is_large()
        return self.receive_rest(size)

    def begin_answer(self, largest: int | None = None) -> int:
        """
        Wait for the answer to begin, and return its size; :meth:`receive_rest` returns it.

        Args:
            largest: As for :meth:`receive`.

        Raises:
            TooLarge: It is larger than that.

        """
        if largest is None:
            largest = min(self.connection.sizes.of_cluster, self.connection.largest_answer)
        size = self._begin_answer()
        if size > largest:
            raise TooLarge(
                f"{self.connection.address}: an answer of {size} bytes, where {largest} are held; if the "
                f"cluster really needs more, raise {ANSWER_BYTES_PROPERTY} in the upstream properties, or "
                "--max-decompressed-bytes for a batch"
            )
        return size

    def receive_rest(self, size: int) -> memoryview:
        """Receive an answer that has begun; see :meth:`receive`."""
        # An idle client holds no buffer, and nobody's allocator keeps one.
        view = memoryview(mmap.mmap(-1, size) if size > PIECE_BYTES else bytearray(size))
        position = 0
        while position < size:
            position += self.connection.read_into(view[position:])
        return view

    def ask(self, header: RequestHeader, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Ask in the name of a client's request, and return the decoded answer."""
        self.send(header, api_key, version, **fields)
        return codec.decode_response(api_key, version, self.receive(), self.connection.sizes.values)

    def send(self, header: RequestHeader, api_key: ApiKey, version: int, **fields: Any) -> None:
        """Ask in the name of a client's request; :meth:`receive` returns the answer."""
        request = codec.request_class(api_key)(version=version, **fields)
        frame = codec.encode_request(request, header.correlation_id, header.client_id or "")
        with waiting():
            self.connection.send_parts([frame], api_key, version, header.correlation_id, fields)

    def speaks(self, api_key: int, version: int) -> bool:
        """Whether the broker does."""
        oldest, newest = self.connection.versions.get(api_key, (0, -1))
        return oldest <= version <= newest

    def oldest(self, api_key: ApiKey, wanted: int) -> int:
        """
        Return the oldest version that the broker speaks, from ``wanted`` on.

        The oldest, since what a broker answers in it is nearest to what an old client knows.
        """
        return max(wanted, self.connection.versions[api_key][0])

    def _begin_answer(self) -> int:
        """
        Wait until the answer begins, for as long as the client does; return its size.

        One that hung up after it had sent more is served on, as a broker does (KAFKA-3703): nobody waits
        for the answers to requests with ``acks=0``, and few did for those to a last commit.
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
        self.connection.close()

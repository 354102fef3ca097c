"""A connection to a broker whose requests and responses pass piece by piece, without memory for the whole."""

from __future__ import annotations

from collections.abc import Iterable

from ..client.answer_sizes import LARGEST_FRAME
from ..client.connection import Connection
from ..client.opening import CLOSED
from ..client.receiving import Expected
from ..protocol.primitives import INT32

__all__ = ["StreamedConnection"]

#: The bound of responses that are passed on piece by piece: they take no memory.
_LARGEST_SIZE = 2**31 - 1


class StreamedConnection(Connection):
    """A connection that also sends a request part by part, and receives a response in pieces."""

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
            self._in_flight.append(Expected(correlation_id, name, LARGEST_FRAME))

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

"""
The cores and the memory that the requests of one client take, of those for all clients.

Each byte of a decoded message becomes many bytes of Python objects. So as many messages are decoded at a time
as there are cores, and of large ones one. Large messages that the gateway holds whole share one budget of
bytes.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .budget import Budget, Refused, Share
from .client_connection import Client, ClientGone
from .converting import CORES

__all__ = ["LARGE", "LARGE_BYTES", "Work"]

#: The largest message for the compiled decoder of :mod:`..protocol.codec`, which needs up to 0.3 s for it.
#: Smaller ones do not count.
LARGE_BYTES = 64 * 1024

#: Turns to decode a large message.
LARGE = Budget(1)


class Work:
    """The shares of one connection, for its thread."""

    def __init__(self, client: Client, memory: Budget, warn: Callable[[str], object]) -> None:
        """
        Begin without any.

        Args:
            client: The connection.
            memory: The bytes of all clients.
            warn: Receives a sentence if the connection is closed for its memory.

        """
        self._client = client
        self._memory = memory
        self._warn = warn
        self._shares: list[Share] = []
        self._answer: Share | None = None

    @property
    def network(self) -> str:
        """The client, as budgets count it."""
        return self._client.network

    @contextmanager
    def decoding(self, size_bytes: int, *, is_answer: bool = False) -> Iterator[None]:
        """
        Wait for a turn to decode and encode a message of this size.

        Args:
            is_answer: End the wait if the client hung up. A request is served regardless: a producer with
                ``acks=0`` may have sent its last records.

        """
        turns = LARGE if size_bytes > LARGE_BYTES else CORES
        with turns.share(self.network, check=self._client.check_answer if is_answer else None):
            yield

    @contextmanager
    def request(self, size_bytes: int) -> Iterator[None]:
        """
        Wait for the memory of a request, and give it back after the block.

        Raises:
            ClientGone: There was none in time.

        """
        share = self._take(size_bytes)
        try:
            yield
        finally:
            self._give_back(share)

    def answer(self, size_bytes: int) -> None:
        """
        Wait for the memory of a broker's answer, in place of the answer before it.

        Raises:
            ClientGone: There was none in time.

        """
        self.finish()
        self._answer = self._take(size_bytes)

    def finish(self) -> None:
        """Give the memory of the last answer back."""
        self._give_back(self._answer)
        self._answer = None

    def _take(self, size_bytes: int) -> Share | None:
        if size_bytes <= LARGE_BYTES:
            return None
        try:
            share = self._memory.take(self.network, size_bytes, check=self._client.check_open)
        except Refused as error:
            self._warn(
                f"the gateway closed the connection of {self._client.host}: a message of {size_bytes} bytes "
                "found no memory in time. Raise --max-bytes-in-flight"
            )
            raise ClientGone("no memory") from error
        self._shares.append(share)
        return share

    def _give_back(self, share: Share | None) -> None:
        if share is not None:
            self._shares.remove(share)
            self._memory.give_back(share)

    @contextmanager
    def awaiting_client(self) -> Iterator[None]:
        """Let others end the connection meanwhile if they need its memory: it depends on the client."""
        for each in self._shares:
            each.end = self._end
        try:
            yield
        finally:
            for each in self._shares:
                each.end = None

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            # Not SSLSocket's own method: the thread that serves the client may be using it.
            socket.socket.shutdown(self._client.socket, socket.SHUT_RDWR)
        self._warn(
            f"the gateway closed the connection of {self._client.host}: the client sent a request or read an "
            "answer too slowly while others waited for memory. Raise --max-bytes-in-flight if it is honest"
        )

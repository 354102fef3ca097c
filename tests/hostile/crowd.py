"""Clients that occupy a server's connections during a step: slow, silent, deaf and dead ones."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from types import TracebackType
from typing import Self

from shoal.protocol.apis import ApiKey
from tests import old_messages

from .inputs import TOPICS, draw_input

__all__ = ["Crowd"]

_SLOW = 8
_SILENT = 40
_DEAF = 4
_GONE = 24
_BYTE_EVERY_S = 0.2
_LONGEST_WAIT_MS = 2**31 - 1


class Crowd:
    """A crowd of clients; use it as a context manager.

    8 send a request byte by byte. 40 connect and send nothing. 4 request much data and never read. 24 begin a
    request, or request a wait of 24 days, and disconnect: half of them by a reset.
    """

    def __init__(self, address: tuple[str, int], seed: int, step: int) -> None:
        self._address = address
        self._draw = random.Random(f"crowd:{seed}:{step}")
        self._sockets: list[socket.socket] = []
        self._ended = threading.Event()
        self._slow: list[tuple[socket.socket, bytes]] = []
        self._thread = threading.Thread(target=self._send_slowly, daemon=True)
        self.clients = 0

    def __enter__(self) -> Self:
        for _ in range(_SILENT):
            self._connect()
        for _ in range(_DEAF):
            self._send(self._connect(), fetch(0) * 20)
        for number in range(_GONE):
            self._leave(number)
        self._slow = [(self._connect(), self._request()) for _ in range(_SLOW)]
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        for each in self._sockets:
            each.close()

    def _leave(self, number: int) -> None:
        client = self._connect()
        self._send(client, fetch(_LONGEST_WAIT_MS) if number % 3 else self._request()[:-3])
        if number % 2:
            # A reset, as if the client's machine had failed.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

    def _send_slowly(self) -> None:
        at = 0
        while not self._ended.wait(_BYTE_EVERY_S):
            for client, request in self._slow:
                self._send(client, request[at % len(request) : at % len(request) + 1])
            at += 1

    def _request(self) -> bytes:
        return draw_input(0, self._draw.randrange(1 << 32)).frame

    def _connect(self) -> socket.socket:
        client = socket.create_connection(self._address, timeout=10)
        self._sockets.append(client)
        self.clients += 1
        return client

    @staticmethod
    def _send(client: socket.socket, data: bytes) -> None:
        # The server may have disconnected, or have no room for a deaf client's request.
        with contextlib.suppress(OSError):
            client.settimeout(1)
            client.sendall(data)


def fetch(wait_ms: int) -> bytes:
    """Write a Fetch v4 of a topic's end or beginning; at -1, an invalid offset, a broker does not wait."""
    asked = old_messages.schema(ApiKey.FETCH, 4, is_request=True)(
        -1, wait_ms, 1, 50 << 20, 0, [(topic, [(0, 0, 1 << 20)]) for topic in TOPICS]
    )
    frame = old_messages.encode_request(asked, 1, "crowd")
    return struct.pack(">i", len(frame)) + frame

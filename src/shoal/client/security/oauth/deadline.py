"""One deadline for a whole HTTP request: its connection ends then, however slowly the answer arrives."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import urllib.request
from typing import Any, Self

__all__ = ["Deadline"]


class Deadline:
    """
    Shuts down the sockets of a request at the deadline.

    A socket's own timeout begins again with each byte.
    """

    def __init__(self, timeout_s: float) -> None:
        """Prepare the timer; the ``with`` block starts and cancels it."""
        self._timer = threading.Timer(timeout_s, self._end)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.has_passed = False

    def handlers(self, context: ssl.SSLContext) -> list[urllib.request.BaseHandler]:
        """Return the handlers of an opener whose connections end at the deadline."""
        return [_Http(self), _Https(self, context)]

    def watch(self, opened: socket.socket | None) -> None:
        """Take the present socket of the request."""
        with self._lock:
            self._socket = opened
        if self.has_passed:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self.has_passed = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    # Not that of SSLSocket, which changes its state under a thread that reads.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        """Start the timer."""
        self._timer.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Cancel the timer."""
        self._timer.cancel()


class _Watched(http.client.HTTPConnection):
    deadline: Deadline

    def connect(self) -> None:
        super().connect()
        self.deadline.watch(self.sock)


class _WatchedTls(http.client.HTTPSConnection):
    deadline: Deadline

    def connect(self) -> None:
        # The socket's timeout is a deadline for the whole TLS handshake.
        super().connect()
        self.deadline.watch(self.sock)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        def make(host: str, **how: Any) -> http.client.HTTPConnection:
            connection = _Watched(host, **how)
            connection.deadline = self._deadline
            return connection

        return self.do_open(make, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: Deadline, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._deadline = deadline
        self._context_of_all = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        def make(host: str, **how: Any) -> http.client.HTTPConnection:
            connection = _WatchedTls(host, context=self._context_of_all, **how)
            connection.deadline = self._deadline
            return connection

        return self.do_open(make, req)

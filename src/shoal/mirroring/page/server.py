"""The live page: a server with two answers, the page and what it shows."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import socket
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ...client.connection import Address
from ...errors import ConfigError
from .data import PageData
from .html import html
from .observer import Observer

__all__ = ["PageServer"]

#: Who looks at once sees the same: however many look, the object is made twice a second.
_FRESH_S = 0.5

#: Who does not speak, or does not read, is not waited for.
_PEER_TIMEOUT_S = 10.0

#: Beyond these a connection is closed at once.
_MOST_CONNECTIONS = 64


class PageServer:
    """
    Serves the page to whoever can reach the address: there is no password.

    Attributes:
        address: Where it listens; with the port that it took, where any would do.

    """

    def __init__(self, address: Address, observer: Observer) -> None:
        """
        Raises:
            ConfigError: It cannot listen there.
        """
        self._answers = _Answers(PageData(observer))
        try:
            self._server = _Server(address, self._answers)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"--ui {address}: cannot listen there: {reason}") from None
        self.address = Address(address.host, self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="shoal-page", daemon=True)

    def __enter__(self) -> PageServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Answers:
    """What is served, made when it is asked for."""

    def __init__(self, data: PageData) -> None:
        self._data = data
        self._lock = threading.Lock()
        self._page: tuple[bytes, str] | None = None
        self._made: dict[tuple[bool, bool], tuple[float, bytes]] = {}

    def page(self) -> tuple[bytes, str]:
        """Return the page, compressed, and its tag."""
        with self._lock:
            if self._page is None:
                body = gzip.compress(html(None).encode(), mtime=0)
                self._page = body, f'"{hashlib.sha256(body).hexdigest()[:16]}"'
            return self._page

    def data(self, query: str) -> bytes:
        """Return the object that a query asks for, as JSON."""
        wanted = parse_qs(query)
        whole = wanted.get("range") == ["whole"]
        every_partition = wanted.get("partitions") == ["all"]
        with self._lock:
            made_at, body = self._made.get((whole, every_partition), (0.0, b""))
            if not body or time.monotonic() - made_at >= _FRESH_S:
                data = self._data.live(whole=whole, every_partition=every_partition)
                body = json.dumps(data).encode()
                self._made[whole, every_partition] = time.monotonic(), body
            return body


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Connections that wait to be accepted; five, the default, are lost for seconds when many come at once.
    request_queue_size = _MOST_CONNECTIONS
    # Its threads end with the process: who is being answered when the mirror ends does not hold it up.
    block_on_close = False

    def __init__(self, address: Address, answers: _Answers) -> None:
        self.answers = answers
        self._free = threading.Semaphore(_MOST_CONNECTIONS)
        family, *_, resolved = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        self.address_family = family
        super().__init__(resolved[:2], _Handler)  # type: ignore[arg-type]

    def server_bind(self) -> None:
        # Not HTTPServer's own, which asks the name service for this host's name.
        TCPServer.server_bind(self)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return self._free.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a peer that goes away is no news, and stderr is the mirror's."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PEER_TIMEOUT_S

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/":
            self._send_page()
        elif url.path == "/data.json":
            self._send(self.server.answers.data(url.query), {"Content-Type": "application/json"})
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send_page(self) -> None:
        body, tag = self.server.answers.page()
        if self.headers.get("If-None-Match") == tag:
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self.send_header("ETag", tag)
            self.end_headers()
            return
        accepts = "gzip" in self.headers.get("Accept-Encoding", "")
        headers = {"Content-Type": "text/html; charset=utf-8", "ETag": tag, "Vary": "Accept-Encoding"}
        if accepts:
            self._send(body, {**headers, "Content-Encoding": "gzip"}, cache="no-cache")
        else:
            self._send(gzip.decompress(body), headers, cache="no-cache")

    def _send(self, body: bytes, headers: dict[str, str], cache: str = "no-store") -> None:
        self.send_response(HTTPStatus.OK)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Cache-Control", cache)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def version_string(self) -> str:
        return "shoal"

    def log_message(self, format: str, *args: Any) -> None:
        """Keep no log of who looked."""

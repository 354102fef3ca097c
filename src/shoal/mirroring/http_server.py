"""
The HTTP server of those who look at a mirror while it runs: ``--metrics`` and ``--ui``.

Nobody who asks can hold up the mirror or its end: connections are bounded, in
number and in time, and what becomes of them is not told on stderr.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, Self, TypeAlias
from urllib.parse import urlsplit

from ..client.connection import Address
from ..errors import ConfigError
from ..printable import logger

__all__ = ["Answer", "HttpServer", "Request"]

_log = logger("shoal.http")

#: Who says nothing for so long, or takes longer to read an answer, is let go.
_PEER_TIMEOUT_S = 10.0

#: For a request and its answer, however the peer spreads its bytes.
_REQUEST_TIMEOUT_S = 30.0

#: How long to wait if no connection can be accepted: until another one ends, if descriptors ran out.
_REFUSED_PAUSE_S = 0.1

#: Beyond these a connection is closed at once.
_MOST_CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class Request:
    """
    A GET or HEAD.

    Attributes:
        query: What follows the path's ``?``.
        headers: By their names, in whatever case.

    """

    query: str
    headers: Message


@dataclass(frozen=True, slots=True)
class Answer:
    """
    What a path has for a request.

    Attributes:
        body: None where the status has none. It is not sent to HEAD.
        headers: Besides Content-Length, and in place of those that each answer has.
        status: Of HTTP.

    """

    body: bytes | None
    headers: Mapping[str, str]
    status: HTTPStatus = HTTPStatus.OK


_Routes: TypeAlias = Mapping[str, Callable[[Request], Answer]]


class HttpServer:
    """
    Answers while it is entered, whoever can reach the address: there is no password.

    Attributes:
        address: Where it listens; with the port that was found for port 0.

    """

    def __init__(self, option: str, address: Address, routes: _Routes, hosts: Collection[str] = ()) -> None:
        """
        Listen. Answers come once it is entered.

        Args:
            option: Which option gave the address, without its dashes.
            address: Where to listen.
            routes: What is asked for an answer, by path; from several threads at once.
            hosts: Names in the Host header that are accepted besides this machine's: those of proxies.

        Raises:
            ConfigError: It cannot listen there; says what to do.

        """
        try:
            self._server = _Server(address, routes, hosts)
        except (OSError, UnicodeError) as error:  # the latter: no name of a host is like that
            cause = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"--{option} {address}: cannot listen there ({cause}). Give an address of this machine "
                "and a free port (0 takes one)"
            ) from error
        self.address = Address(address.host, self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name=f"shoal-{option}", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingTCPServer):
    # Not http.server's HTTPServer, which asks the name service for this host's name.
    allow_reuse_address = True
    daemon_threads = True
    # Who is being answered when the mirror ends does not hold it up.
    block_on_close = False
    # Connections that wait to be accepted; five, the default, are lost for seconds when many come at once.
    request_queue_size = _MOST_CONNECTIONS

    def __init__(self, address: Address, routes: _Routes, hosts: Collection[str]) -> None:
        self.routes = routes
        self._hosts = {
            each.lower() for each in ("localhost", address.host, socket.gethostname(), *hosts) if each
        }
        self._free = threading.Semaphore(_MOST_CONNECTIONS)
        self.address_family, *_, where = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        super().__init__(where, _Handler)  # type: ignore[arg-type]  # IPv6 addresses have four parts

    def is_ours(self, host: str) -> bool:
        """
        Whether a Host header names this server.

        An attacker's page can make its own name resolve to this machine (DNS rebinding), and then read what
        this server answers. It cannot do so with an address.
        """
        name = (urlsplit(f"//{host}").hostname or "").lower().rstrip(".")
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError:
            time.sleep(_REFUSED_PAUSE_S)  # else serve_forever takes a whole core until a descriptor is free
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return self._free.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A peer that goes away is no news, and stderr is the mirror's.
        _log.debug("a client at %s was not answered", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PEER_TIMEOUT_S

    def handle(self) -> None:
        deadline = threading.Timer(_REQUEST_TIMEOUT_S, self._hang_up)
        deadline.daemon = True
        deadline.start()
        try:
            super().handle()
        finally:
            deadline.cancel()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):  # the peer was faster
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        answer = self._answer()
        if answer is not None and answer.body is not None:
            self.wfile.write(answer.body)

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> Answer | None:
        """Send status and headers; return what they are of, or None where all was said."""
        if not self._names_us():
            self.send_error(
                HTTPStatus.MISDIRECTED_REQUEST,
                "the Host header names another server; allow it by --http-host",
            )
            return None
        url = urlsplit(self.path)
        route = self.server.routes.get(url.path)
        if route is None:
            self.send_error(HTTPStatus.NOT_FOUND, f"there is {' and '.join(self.server.routes)}, and no more")
            return None
        answer = route(Request(url.query, self.headers))
        self.send_response(answer.status)
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **answer.headers}
        if answer.body is not None:
            headers["Content-Length"] = str(len(answer.body))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        return answer

    def _names_us(self) -> bool:
        host = self.headers.get("Host")
        try:
            return host is None or self.server.is_ours(host)  # browsers always send one
        except ValueError:
            return False

    def version_string(self) -> str:
        return "shoal"

    def log_message(self, format: str, *args: Any) -> None:
        """Keep no log of who looked."""

"""
The HTTP server for ``--metrics`` and ``--ui``, in threads of the mirror's process.

No client can delay the mirror or its end. Connections are bounded in number and in time, and a slow client
loses its connection if a new one needs the slot. The server writes nothing to stderr.

The base is Python's own ``http.server``; docs/dependencies.md compares libraries, which bound less.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import Any, Self, TypeAlias
from urllib.parse import urlsplit

from ....errors import ConfigError
from ....net.address import Address
from ....net.tls_handshake import begin_tls
from ....printable import logger
from ....timing import Timing
from ...model.http_access import HttpAccess
from .access import CHALLENGES, Guard
from .slots import Slot, Slots, hang_up

__all__ = ["Answer", "HttpServer", "Request", "Route"]

_log = logger("shoal.http")

#: The pause after a failed accept, until another connection ends and frees a descriptor.
_REFUSED_PAUSE_S = 0.1

#: The limit for open connections, each with two threads. Beyond it the slowest one is closed.
_MOST_CONNECTIONS = 64

#: The error numbers of accept if descriptors, or memory for one, ran out.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class Request:
    """
    A GET or HEAD.

    Attributes:
        query: The part of the URL behind ``?``.
        headers: The headers, by name in any case.

    """

    query: str
    headers: Message


@dataclass(frozen=True, slots=True)
class Answer:
    """
    The answer to a request.

    Attributes:
        body: None if the status has no body. HEAD receives none either.
        headers: Headers besides Content-Length; they replace defaults of the same name.
        status: The HTTP status.

    """

    body: bytes | None
    headers: Mapping[str, str]
    status: HTTPStatus = HTTPStatus.OK


_UNAUTHORIZED = Answer(
    b"This server answers only requests with its token: as a bearer token, or as the password of any user.\n",
    {"Content-Type": "text/plain; charset=utf-8"},
    HTTPStatus.UNAUTHORIZED,
)

#: A function that answers the requests of one path.
Route: TypeAlias = Callable[[Request], Answer]

_Routes: TypeAlias = Mapping[str, Route]


class HttpServer:
    """
    A server that answers while it is entered, if its access rules allow the request.

    Attributes:
        address: The address that it listens on, with the chosen port for port 0.
        url: The URL without a path.

    """

    def __init__(
        self,
        option: str,
        address: Address,
        routes: _Routes,
        access: HttpAccess,
        public: _Routes | None = None,
    ) -> None:
        """
        Listen. Answers come once it is entered.

        Args:
            option: The name of the option with the address, without dashes.
            address: The address to listen on.
            routes: The functions that answer, by path; several threads call them at once.
            access: The requests that are answered.
            public: Further routes, which answer without a token.

        Raises:
            ConfigError: The address is unusable, or a file of the access is.

        """
        guard = Guard(access, address.host)
        try:
            self._server = _Server(address, routes, guard, public or {}, access.timing)
        except (OSError, UnicodeError) as error:  # UnicodeError: not a host name
            cause = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"--{option} {address}: cannot listen there ({cause}). Give an address of this machine "
                "and a free port (0 takes one)"
            ) from error
        self.address = Address(address.host, self._server.server_address[1])
        self.url = f"{'https' if guard.tls else 'http'}://{self.address}"
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


class _Server(TCPServer):
    # Not http.server's HTTPServer, which looks this host up in DNS.
    allow_reuse_address = True
    # With the default of five, clients that connect at once would retry for seconds.
    request_queue_size = _MOST_CONNECTIONS

    def __init__(
        self, address: Address, routes: _Routes, guard: Guard, public: _Routes, timing: Timing
    ) -> None:
        self._timing = timing
        self.routes = {**routes, **public}
        self.public = public
        self.guard = guard
        self._slots = Slots(_MOST_CONNECTIONS, timing)
        self.address_family, *_, where = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        # IPv6 addresses have four parts. _serve creates the handler itself.
        super().__init__(where, None)  # type: ignore[arg-type]

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._slots.make_room()
            time.sleep(
                _REFUSED_PAUSE_S
            )  # else serve_forever would take a whole core until a descriptor is free
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        slot = self._slots.take(request, client_address[0])
        if slot is None:
            self.shutdown_request(request)
            return
        # A daemon: the end of the mirror does not wait for answers.
        thread = threading.Thread(target=self._serve, args=(slot, client_address), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads
            self._slots.give_back(slot)
            raise

    def _serve(self, slot: Slot, client_address: Any) -> None:
        deadline = threading.Timer(self._timing.http_request_s, lambda: hang_up(slot.connection))
        deadline.daemon = True
        try:
            deadline.start()
            slot.connection.settimeout(self._timing.http_peer_s)
            self._encrypt(slot)
            _Handler(slot, client_address, self)
        except Exception:
            # A client that disconnects is no error, and stderr belongs to the mirror.
            _log.debug("a client at %s was not answered", client_address, exc_info=True)
        finally:
            deadline.cancel()
            hang_up(slot.connection)
            slot.connection.close()
            self._slots.give_back(slot)

    def _encrypt(self, slot: Slot) -> None:
        """Begin TLS if it is configured; not in the accepting thread, since clients can take long."""
        if self.guard.tls is None:
            return
        encrypted = begin_tls(
            self.guard.tls, slot.connection, server_side=True, do_handshake_on_connect=False
        )
        self._slots.encrypt(slot, encrypted)
        encrypted.do_handshake()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def __init__(self, slot: Slot, client_address: Any, server: _Server) -> None:
        self._slot = slot
        super().__init__(slot.connection, client_address, server)

    def do_GET(self) -> None:
        """Answer with headers and body."""
        answer = self._answer()
        if answer is not None and answer.body is not None:
            self.wfile.write(answer.body)

    def do_HEAD(self) -> None:
        """Answer with headers alone."""
        self._answer()

    def _answer(self) -> Answer | None:
        """Send status and headers; return the answer, or None if it is already complete."""
        guard = self.server.guard
        if not guard.names_us(self.headers.get("Host")):
            self.send_error(
                HTTPStatus.MISDIRECTED_REQUEST,
                "the Host header names another server. Option http-host allows it",
            )
            return None
        url = urlsplit(self.path)
        if guard.may_read(self.headers.get("Authorization")):
            self._slot.is_proven = True
        elif url.path not in self.server.public:
            return self._send(_UNAUTHORIZED, [("WWW-Authenticate", each) for each in CHALLENGES])
        route = self.server.routes.get(url.path)
        if route is None:
            self.send_error(HTTPStatus.NOT_FOUND, f"this server has only {' and '.join(self.server.routes)}")
            return None
        return self._send(route(Request(url.query, self.headers)))

    def _send(self, answer: Answer, more: Sequence[tuple[str, str]] = ()) -> Answer:
        """Send an answer's status and headers; ``more`` may repeat a name."""
        self.send_response(answer.status)
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **answer.headers}
        if answer.body is not None:
            headers["Content-Length"] = str(len(answer.body))
        for name, value in (*headers.items(), *more):
            self.send_header(name, value)
        self.end_headers()
        return answer

    def version_string(self) -> str:
        return "shoal"

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""

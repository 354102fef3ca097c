"""
Answers requests for ``--metrics`` and ``--ui``, in threads of the process that is looked at.

No client can hold up the mirror or its end: connections are bounded in number and in time, a slow client has
to leave if another one comes, and nothing that becomes of them is on stderr.

It is Python's own ``http.server``: the libraries that were looked at bound less (docs/dependencies.md).
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
from ...model.http_access import HttpAccess
from .access import CHALLENGES, Guard
from .slots import Slot, Slots, hang_up

__all__ = ["Answer", "HttpServer", "Request"]

_log = logger("shoal.http")

#: A client that sends nothing for so long, or takes longer to read an answer, is disconnected.
_PEER_TIMEOUT_S = 10.0

#: The time for a TLS handshake, a request and its answer, however the client spreads its bytes.
_REQUEST_TIMEOUT_S = 30.0

#: How long to wait if no connection can be accepted: until another one ends, if descriptors ran out.
_REFUSED_PAUSE_S = 0.1

#: Connections at the same time, each with two threads; beyond these the slowest one has to leave.
_MOST_CONNECTIONS = 64

#: The error numbers of accept if descriptors, or memory for one, ran out.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


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


_UNAUTHORIZED = Answer(
    b"This server answers only requests with its token: as a bearer token, or as the password of any user.\n",
    {"Content-Type": "text/plain; charset=utf-8"},
    HTTPStatus.UNAUTHORIZED,
)

_Routes: TypeAlias = Mapping[str, Callable[[Request], Answer]]


class HttpServer:
    """
    Answers while it is entered, all clients that its access allows.

    Attributes:
        address: Where it listens; with the port that was found for port 0.
        url: What to open, without a path.

    """

    def __init__(self, option: str, address: Address, routes: _Routes, access: HttpAccess) -> None:
        """
        Listen. Answers come once it is entered.

        Args:
            option: Which option gave the address, without its dashes.
            address: Where to listen.
            routes: What is asked for an answer, by path; from several threads at once.
            access: Which requests are answered.

        Raises:
            ConfigError: It cannot listen there, or a file of the access cannot be used; says what to do.

        """
        guard = Guard(access, address.host)
        try:
            self._server = _Server(address, routes, guard)
        except (OSError, UnicodeError) as error:  # the latter: no name of a host is like that
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
    # Not http.server's HTTPServer, which asks the name service for this host's name.
    allow_reuse_address = True
    # Connections that wait to be accepted; five, the default, are lost for seconds when many come at once.
    request_queue_size = _MOST_CONNECTIONS

    def __init__(self, address: Address, routes: _Routes, guard: Guard) -> None:
        self.routes = routes
        self.guard = guard
        self._slots = Slots(_MOST_CONNECTIONS)
        self.address_family, *_, where = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        # IPv6 addresses have four parts. Which handler serves a connection, _serve says.
        super().__init__(where, None)  # type: ignore[arg-type]

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._slots.make_room()
            time.sleep(_REFUSED_PAUSE_S)  # else serve_forever takes a whole core until a descriptor is free
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        slot = self._slots.take(request, client_address[0])
        if slot is None:
            self.shutdown_request(request)
            return
        # Not waited for: a client that is being answered when the mirror ends does not hold it up.
        thread = threading.Thread(target=self._serve, args=(slot, client_address), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads
            self._slots.give_back(slot)
            raise

    def _serve(self, slot: Slot, client_address: Any) -> None:
        deadline = threading.Timer(_REQUEST_TIMEOUT_S, lambda: hang_up(slot.connection))
        deadline.daemon = True
        try:
            deadline.start()
            slot.connection.settimeout(_Handler.timeout)
            self._encrypt(slot)
            _Handler(slot, client_address, self)
        except Exception:
            # A peer that goes away is no news, and stderr is the mirror's.
            _log.debug("a client at %s was not answered", client_address, exc_info=True)
        finally:
            deadline.cancel()
            hang_up(slot.connection)
            slot.connection.close()
            self._slots.give_back(slot)

    def _encrypt(self, slot: Slot) -> None:
        """Begin TLS if it is wanted; here, and not where connections are accepted: clients can take long."""
        if self.guard.tls is None:
            return
        encrypted = begin_tls(
            self.guard.tls, slot.connection, server_side=True, do_handshake_on_connect=False
        )
        self._slots.encrypt(slot, encrypted)
        encrypted.do_handshake()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PEER_TIMEOUT_S

    def __init__(self, slot: Slot, client_address: Any, server: _Server) -> None:
        self._slot = slot
        super().__init__(slot.connection, client_address, server)

    def do_GET(self) -> None:
        answer = self._answer()
        if answer is not None and answer.body is not None:
            self.wfile.write(answer.body)

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> Answer | None:
        """Send status and headers; return the answer, or None if nothing of it is left to send."""
        guard = self.server.guard
        if not guard.names_us(self.headers.get("Host")):
            self.send_error(
                HTTPStatus.MISDIRECTED_REQUEST,
                "the Host header names another server; allow it by --http-host",
            )
            return None
        if not guard.may_read(self.headers.get("Authorization")):
            return self._send(_UNAUTHORIZED, [("WWW-Authenticate", each) for each in CHALLENGES])
        self._slot.is_proven = True
        url = urlsplit(self.path)
        route = self.server.routes.get(url.path)
        if route is None:
            self.send_error(HTTPStatus.NOT_FOUND, f"there is {' and '.join(self.server.routes)}, and no more")
            return None
        return self._send(route(Request(url.query, self.headers)))

    def _send(self, answer: Answer, more: Sequence[tuple[str, str]] = ()) -> Answer:
        """Send an answer's status and headers; ``more`` are headers that may have one name."""
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
        """Keep no log of requests."""

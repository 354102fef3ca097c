"""
The one HTTP server of a process: on TCP addresses, and on a unix socket that also takes commands.

No client can delay the mirror or its end. Connections are bounded in number and in time, and a slow client
loses its connection if a new one needs the slot. The server writes nothing to stderr. The unix socket has the
mode 0600, and answers only processes of this user and of root.

The base is Python's own ``http.server``; docs/architecture.md compares libraries, which bound less.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from ....errors import ConfigError
from ....net.address import Address
from ....net.budget import Share
from ....net.listener import Admitted, Listener, hang_up, places, take_place
from ....net.private_socket import listen_privately, user_of
from ....printable import logger, printable
from ....timing import DEFAULT_TIMING, Timing
from .access import CHALLENGES, Guard

__all__ = ["Answer", "CommandAnswer", "Door", "OnCommand", "Route"]

_log = logger("shoal.http")

#: The limit for open connections, each with two threads. Beyond it the slowest one is closed.
_MOST_CONNECTIONS = 64

#: The longest form of a command: an expression has at most 1,000 characters, each of three bytes in a form.
_LONGEST_FORM = 4096

_TEXT = {"Content-Type": "text/plain; charset=utf-8"}
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Answer:
    """
    The answer to a request.

    Attributes:
        headers: Headers besides Content-Length; they replace defaults of the same name.

    """

    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: _TEXT)
    status: HTTPStatus = HTTPStatus.OK


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """
    The answer to a command.

    Attributes:
        text: Lines for a person.
        values: The same for a program.

    """

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)


#: A function that answers the requests of one path.
Route: TypeAlias = Callable[[], Answer]

_Routes: TypeAlias = Mapping[str, Route]

#: Carries out a command with its arguments by name; raises ConfigError if it refuses.
OnCommand: TypeAlias = Callable[[str, Mapping[str, str]], CommandAnswer]

_UNAUTHORIZED = Answer(
    b"This server answers only requests with its token: as a bearer token, or as the password of any user.\n",
    status=HTTPStatus.UNAUTHORIZED,
)


@dataclass(frozen=True, slots=True)
class _Listener:
    """One socket to accept from; ``guard`` is None for the unix socket, and ``on_command`` for all others."""

    name: str
    socket: socket.socket
    routes: _Routes
    public: _Routes
    guard: Guard | None = None
    on_command: OnCommand | None = None


class Door:
    """The server. It listens from :meth:`listen` on, and answers while it is entered."""

    def __init__(
        self,
        token_file: str | Path | None = None,
        on_warning: Callable[[str], object] = lambda _: None,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        """
        Prepare; nothing is listened on yet.

        Args:
            token_file: The file with the token that every request must have; None for none.
            on_warning: Receives what a user of the token has to know.
            timing: How long the server waits for clients.

        """
        self._token_file = token_file
        self._on_warning = on_warning
        self._timing = timing
        self._places = places(_MOST_CONNECTIONS, timing.leaving_s)
        self._listeners: list[_Listener] = []
        self._closing = contextlib.ExitStack()

    def listen(
        self, option: str, address: Address, routes: _Routes, public: _Routes | None = None
    ) -> Address:
        """
        Listen on an address; return it, with the chosen port for port 0.

        Args:
            option: The name of the option with the address, without dashes.
            address: The address to listen on.
            routes: The functions that answer, by path; several threads call them at once.
            public: Further routes, which answer without a token.

        Raises:
            ConfigError: The address is unusable, or the file of the token is.

        """
        guard = Guard(self._token_file, address.host)
        try:
            family, *_, where = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
            # With the default backlog, clients that connect at once would retry for seconds.
            listening = socket.create_server(where[:2], family=family, backlog=_MOST_CONNECTIONS)
        except (OSError, UnicodeError) as error:  # UnicodeError: not a host name
            cause = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"--{option} {address}: cannot listen there ({cause}). Give an address of this machine "
                "and a free port (0 takes one)"
            ) from error
        if self._token_file is not None and not _is_loopback(address.host):
            self._on_warning(
                f"--{option} {address}: clients send the token of --http-token-file without encryption. "
                "Listen on 127.0.0.1, behind a proxy with TLS"
            )
        self._add(_Listener(option, listening, {**routes, **(public or {})}, public or {}, guard))
        return Address(address.host, listening.getsockname()[1])

    def listen_on_socket(self, path: str, routes: _Routes, on_command: OnCommand) -> None:
        """
        Listen on a unix socket, which takes commands by POST.

        Raises:
            ConfigError: Another process listens there, or the path cannot be used.

        """
        listening = listen_privately("--control", path, self._timing.http_peer_s)
        inode = os.lstat(path).st_ino
        self._add(_Listener("control", listening, routes, {}, on_command=on_command))
        self._closing.callback(_unlink, Path(path), inode)

    def _add(self, listener: _Listener) -> None:
        self._closing.callback(listener.socket.close)
        self._listeners.append(listener)

    def __enter__(self) -> Self:
        for each in self._listeners:
            name = f"shoal-{each.name}"
            accepting = Listener("", 0, partial(self._admit, each), name, self._places.make_room)
            accepting.accept_from(each.socket)
            # The end of the mirror waits for no answer.
            self._closing.callback(accepting.stop, self._timing.leaving_s)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._closing.close()

    def _admit(self, listener: _Listener, connection: socket.socket) -> Admitted | None:
        place = take_place(self._places, connection)
        if place is None:
            return None
        serve = partial(self._serve, listener, connection, place)
        return Admitted(serve, partial(self._places.give_back, place))

    def _serve(self, listener: _Listener, connection: socket.socket, place: Share) -> None:
        deadline = threading.Timer(self._timing.http_request_s, hang_up, [connection])
        deadline.daemon = True
        try:
            deadline.start()
            connection.settimeout(self._timing.http_peer_s)
            if listener.guard is None and (user := user_of(connection)) not in (os.geteuid(), 0):
                _log.warning("a process of user %d is not allowed to use the control socket", user)
                return
            _Handler(listener, connection, place, deadline)
        except Exception:
            # A client that disconnects is no error, and stderr belongs to the mirror.
            _log.debug("a client was not answered", exc_info=True)
        finally:
            deadline.cancel()
            hang_up(connection)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _unlink(path: Path, inode: int) -> None:
    """Remove a socket, unless another one has its name by now."""
    with contextlib.suppress(OSError):
        if path.lstat().st_ino == inode:
            path.unlink()


class _Handler(BaseHTTPRequestHandler):
    """One request of a connection."""

    def __init__(
        self, listener: _Listener, connection: socket.socket, place: Share, deadline: threading.Timer
    ) -> None:
        self._listener = listener
        self._place = place
        self._deadline = deadline
        super().__init__(connection, "", None)  # type: ignore[arg-type]  # the base only keeps them

    def do_GET(self) -> None:
        """Answer with headers and body."""
        url = urlsplit(self.path)
        if not self._is_allowed(url.path):
            return
        route = self._listener.routes.get(url.path)
        if route is None:
            self.send_error(
                HTTPStatus.NOT_FOUND, f"this server has only {' and '.join(self._listener.routes)}"
            )
        else:
            self._send(route())

    def do_HEAD(self) -> None:
        """Answer with headers alone."""
        self.do_GET()

    def do_POST(self) -> None:
        """Carry out a command; only the unix socket takes any."""
        on_command = self._listener.on_command
        if on_command is None:
            self.send_error(HTTPStatus.NOT_IMPLEMENTED, "only the control socket takes commands")
            return
        if "Transfer-Encoding" in self.headers:
            # Its arguments would not be read, and a command may mean more without any.
            self.send_error(HTTPStatus.LENGTH_REQUIRED, "a command needs a Content-Length")
            return
        url = urlsplit(self.path)
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or len(length) > 9 or int(length) + len(url.query) > _LONGEST_FORM:
            self.send_error(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a command has at most {_LONGEST_FORM} bytes"
            )
            return
        form = self.rfile.read(int(length)).decode("utf-8", "replace")
        self._place.end = None
        self._deadline.cancel()  # a command may wait for others
        arguments = dict(parse_qsl(f"{url.query}&{form.strip()}", keep_blank_values=True))
        self._send(self._carry_out(on_command, url.path.removeprefix("/"), arguments))

    def _carry_out(self, on_command: OnCommand, name: str, arguments: Mapping[str, str]) -> Answer:
        status = HTTPStatus.CONFLICT
        try:
            done = on_command(name, arguments)
            status = HTTPStatus.OK
        except ConfigError as error:
            done = CommandAnswer(str(error))
        except Exception as error:
            # A mistake in a command must not end the mirror, and the operator has to see it.
            _log.exception("the command %r failed", name)
            done = CommandAnswer(f"the command failed: {type(error).__name__}: {error}")
        text = "\n".join(printable(each) for each in done.text.split("\n"))
        if "application/json" in self.headers.get("Accept", ""):
            values = {"type": "control", "ok": status is HTTPStatus.OK, "text": text}
            return Answer(json.dumps({**done.values, **values}).encode() + b"\n", _JSON, status)
        return Answer(text.encode(errors="replace") + b"\n", _TEXT, status)

    def _is_allowed(self, path: str) -> bool:
        """Whether a request may be answered; otherwise it is refused here."""
        guard = self._listener.guard
        if guard is None:
            self._place.end = None
            return True
        has_token = guard.has_token(self.headers.get("Authorization"))
        if not has_token and not guard.names_us(self.headers.get("Host")):
            self.send_error(
                HTTPStatus.MISDIRECTED_REQUEST,
                "the Host header names another server. Use an address, or --http-token-file",
            )
            return False
        if has_token:
            self._place.end = None
        elif guard.needs_token and path not in self._listener.public:
            self._send(_UNAUTHORIZED, [("WWW-Authenticate", each) for each in CHALLENGES])
            return False
        return True

    def _send(self, answer: Answer, more: Sequence[tuple[str, str]] = ()) -> None:
        """Send an answer; ``more`` may repeat the name of a header."""
        self.send_response(answer.status)
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **answer.headers}
        for name, value in (*headers.items(), ("Content-Length", str(len(answer.body))), *more):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        return "shoal"

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""

"""A cluster that asks for a login: listeners with SASL before a gateway, which gives the brokers' addresses.

The embedded broker has no SASL. These listeners check a login by PLAIN or SCRAM, and then pass all bytes on.
The real broker's logins are in tests/integration/test_gateway_logins.py.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from scramp import ScramException, ScramMechanism

from shoal.client.config import ClientConfig
from shoal.error_codes import ErrorCode
from shoal.gateway import Gateway, GatewaySettings
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import (
    RequestHeader,
    decode_request,
    decode_response,
    encode_response,
    read_request_header,
    response_class,
)

__all__ = ["MECHANISMS", "LockedCluster", "locked_cluster"]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

#: The listeners have the gateway's ports at another address of this machine.
_HOST = "127.0.0.2"

_SASL = {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}

_REFUSED = "Authentication failed: Invalid username or password"


class LockedCluster(NamedTuple):
    """The address that clients bootstrap from, and the ids of the brokers."""

    bootstrap: str
    node_ids: frozenset[int]


@contextmanager
def locked_cluster(bootstrap: str, passwords: Mapping[str, str]) -> Iterator[LockedCluster]:
    """Let clients of a cluster without logins log in as one of these users."""
    upstream = ClientConfig.from_properties("upstream", {"bootstrap.servers": bootstrap})[0]
    settings = GatewaySettings("127.0.0.1", 0, upstream, advertised_host=_HOST, most_connections=10_000)
    with ExitStack() as stack:
        behind = stack.enter_context(Gateway(settings))
        for address in (behind.bootstrap, *behind.brokers.values()):
            stack.enter_context(_listening(address.port, passwords))
        yield LockedCluster(str(behind.bootstrap), frozenset(behind.brokers))


@contextmanager
def _listening(port: int, passwords: Mapping[str, str]) -> Iterator[None]:
    with _Server((_HOST, port), _Connection) as server:
        server.passwords = passwords
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    passwords: Mapping[str, str]


class _Refused(Exception):
    """A token is not that of a user."""


#: Returns the answer to a token, and whether it ends the login.
_Step = Callable[[bytes], tuple[bytes, bool]]


class _Connection(socketserver.StreamRequestHandler):
    rbufsize = 0  # bytes behind a login are passed on
    server: _Server

    def handle(self) -> None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as behind:
            if self._log_in(behind):
                _pass_on(self.connection, behind)

    @property
    def _port(self) -> int:
        return int(self.server.server_address[1])

    def _log_in(self, behind: socket.socket) -> bool:
        """Serve the requests of a login; False if the client leaves, or sends another request."""
        step: _Step | None = None
        while (frame := _frame(self.rfile.read)) is not None:
            header = read_request_header(frame)
            match header.api_key:
                case ApiKey.API_VERSIONS:
                    self.wfile.write(_versions(header, frame, behind))
                case ApiKey.SASL_HANDSHAKE:
                    step = self._shake_hands(header, frame)
                    if step is None or header.api_version == 0:
                        return step is not None and self._take_tokens(step)
                case ApiKey.SASL_AUTHENTICATE if step is not None:
                    found = self._authenticate(header, frame, step)
                    if found is not None:
                        return found
                case _:
                    return False
        return False

    def _shake_hands(self, header: RequestHeader, frame: memoryview) -> _Step | None:
        mechanism = decode_request(header, frame).mechanism
        is_offered = mechanism in MECHANISMS
        code = ErrorCode.NONE if is_offered else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._answer(header, error_code=code, mechanisms=list(MECHANISMS))
        if not is_offered:
            return None
        return self._plain if mechanism == "PLAIN" else _Scram(mechanism, self.server.passwords)

    def _take_tokens(self, step: _Step) -> bool:
        while (token := _frame(self.rfile.read)) is not None:
            try:
                answer, is_done = step(bytes(token))
            except _Refused:
                return False
            self.wfile.write(_framed(answer))
            if is_done:
                return True
        return False

    def _authenticate(self, header: RequestHeader, frame: memoryview, step: _Step) -> bool | None:
        """Answer a token; True after the last one, False after a refused one, else None."""
        try:
            answer, is_done = step(bytes(decode_request(header, frame).auth_bytes or b""))
        except _Refused as error:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            self._answer(header, error_code=code, error_message=str(error), auth_bytes=b"")
            return False
        self._answer(header, error_code=0, error_message=None, auth_bytes=answer)
        return True if is_done else None

    def _plain(self, token: bytes) -> tuple[bytes, bool]:
        _, *found = token.split(b"\0")
        passwords = {(user.encode(), each.encode()) for user, each in self.server.passwords.items()}
        if tuple(found) not in passwords:
            raise _Refused(_REFUSED)
        return b"", True

    def _answer(self, header: RequestHeader, **fields: Any) -> None:
        answer = response_class(ApiKey(header.api_key))(version=header.api_version, **fields)
        self.wfile.write(encode_response(answer, header.correlation_id))


class _Scram:
    """The server's side of one SCRAM exchange."""

    def __init__(self, name: str, passwords: Mapping[str, str]) -> None:
        self._name = name
        mechanism = ScramMechanism(name)
        known = {user: mechanism.make_auth_info(password) for user, password in passwords.items()}
        self._server = mechanism.make_server(known.__getitem__)
        self._has_begun = False

    def __call__(self, token: bytes) -> tuple[bytes, bool]:
        try:
            if not self._has_begun:
                self._has_begun = True
                self._server.set_client_first(token.decode())
                return str(self._server.get_server_first()).encode(), False
            self._server.set_client_final(token.decode())
            return str(self._server.get_server_final()).encode(), True
        except (ScramException, UnicodeDecodeError, KeyError) as error:
            raise _Refused(f"invalid credentials with SASL mechanism {self._name}") from error


def _versions(header: RequestHeader, frame: memoryview, behind: socket.socket) -> bytes:
    """Ask the server behind for its versions, and add those of a login."""
    behind.sendall(_framed(frame))
    found = _frame(behind.makefile("rb", buffering=0).read)
    assert found is not None
    answer = decode_response(ApiKey.API_VERSIONS, header.api_version, found)
    entry = response_class(ApiKey.API_VERSIONS).ApiVersion
    answer.api_keys = [
        *answer.api_keys,
        *(
            entry(api_key=key, min_version=oldest, max_version=newest)
            for key, (oldest, newest) in _SASL.items()
        ),
    ]
    return encode_response(answer, header.correlation_id)


def _framed(data: bytes | memoryview) -> bytes:
    return struct.pack(">i", len(data)) + data


def _frame(read: Callable[[int], bytes | None]) -> memoryview | None:
    size = _exactly(read, 4)
    if size is None:
        return None
    data = _exactly(read, struct.unpack(">I", size)[0] & 0xFFFFF)
    return None if data is None else memoryview(data)


def _exactly(read: Callable[[int], bytes | None], count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        received = read(count - len(data))
        if not received:
            return None
        data += received
    return data


def _pass_on(client: socket.socket, behind: socket.socket) -> None:
    """Pass bytes on in both directions until one end hangs up."""

    def pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    back = threading.Thread(target=pump, args=(behind, client), daemon=True)
    back.start()
    pump(client, behind)
    back.join()

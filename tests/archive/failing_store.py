"""
A proxy in front of an S3 server, which answers 503 for a while, delays, cuts connections, and lists late.

Each request is forwarded as it is. The proxy knows as much of S3 as hiding an object from a listing takes.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["Answer", "FailingStore", "Request"]

_ERROR = (
    '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
)
_CONTENTS = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
_KEY = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Request:
    """A request of S3: ``PUT``, ``GET`` or ``HEAD``, and the path of an object or a bucket with its query."""

    method: str
    path: str

    @property
    def key(self) -> str:
        """The object's name, without its bucket; empty for a bucket."""
        return unquote(urlsplit(self.path).path.lstrip("/").partition("/")[2])


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that the proxy gives itself, as S3 does: a status and the code of an error."""

    status: int
    code: str
    message: str = "of the test"


#: The fate of a request: an answer in place of the store's; True cuts the connection in the middle of the
#: store's answer, and an event is waited for there; None forwards it. After a number, the rest of the answer
#: drips for so many seconds.
Fault = Callable[[Request], "Answer | bool | float | threading.Event | None"]

_DROPS = 20


class FailingStore:
    """
    The proxy.

    Attributes:
        fault: The fate of each request.
        delay_s: How long each answer takes.
        lists_after_s: How old an object is before a listing has it.
        faults: How many requests had a fault.

    """

    def __init__(self, server: str) -> None:
        """Listen in front of a server, given as ``http://HOST:PORT``."""
        self.fault: Fault = lambda request: None
        self.delay_s = self.lists_after_s = 0.0
        self.faults = 0
        self._server = server.removeprefix("http://")
        self._written_at: dict[str, float] = {}
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def endpoint(self) -> str:
        """Its URL, for the parameter ``endpoint_override``."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        """Listen no more."""
        self._http.shutdown()
        self._http.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        body = _body_of(handler)
        request = Request(handler.command, handler.path)
        time.sleep(self.delay_s)
        fault = self.fault(request)
        self.faults += bool(fault)
        if isinstance(fault, Answer):
            _refuse(handler, fault)
            return
        status, headers, data = self._forward(handler, body)
        if request.method == "PUT" and status == 200:
            self._written_at[request.key] = time.monotonic()
        if request.method == "GET" and not request.key:
            data = _CONTENTS.sub(self._shown, data)
        _send(handler, status, headers, data, fault)

    def _forward(
        self, handler: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self._server, timeout=60)
        try:
            headers = {
                name: value
                for name, value in handler.headers.items()
                if name.lower() not in ("connection", "expect", "transfer-encoding")
            }
            connection.request(handler.command, handler.path, body, headers)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def _shown(self, entry: re.Match[bytes]) -> bytes:
        """Return a listing's entry, or nothing if it is too young."""
        key = _KEY.search(entry[0])
        written_at = self._written_at.get(key[1].decode(), 0.0) if key else 0.0
        return entry[0] if time.monotonic() - written_at >= self.lists_after_s else b""


def _body_of(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding") != "chunked":
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    body = b""
    while size := int(handler.rfile.readline(), 16):
        body += handler.rfile.read(size)
        handler.rfile.readline()
    handler.rfile.readline()
    return body


def _refuse(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    text = _ERROR.format(code=answer.code, message=answer.message).encode()
    _send(handler, answer.status, [("Content-Type", "application/xml")], text)


def _send(
    handler: BaseHTTPRequestHandler,
    status: int,
    headers: list[tuple[str, str]],
    data: bytes,
    fault: bool | float | threading.Event | None = None,
) -> None:
    handler.send_response(status)
    is_head = handler.command == "HEAD"
    for name, value in headers:
        if name.lower() not in ("connection", "transfer-encoding", "date", "server") and (
            is_head or name.lower() != "content-length"
        ):
            handler.send_header(name, value)
    if not is_head:
        handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    if not is_head:
        half = len(data) // 2 if fault else len(data)
        handler.wfile.write(data[:half])
        if isinstance(fault, threading.Event):
            fault.wait(30.0)
            handler.wfile.write(data[half:])
        if isinstance(fault, float):
            drop = len(data[half:]) // _DROPS + 1
            for begin in range(half, len(data), drop):
                handler.wfile.write(data[begin : begin + drop])
                time.sleep(fault / _DROPS)
    if fault is True:
        handler.close_connection = True


def _handler_of(store: FailingStore) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):  # the method of any request
                return lambda: store.answer(self)
            raise AttributeError(name)

        def log_message(self, *args: Any) -> None:
            """Print nothing."""

    return Handler

"""The live page: a server for the page and for its object."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
import time
from http import HTTPStatus
from urllib.parse import parse_qs

from ....net.address import Address
from ...model.http_access import HttpAccess
from ..http_server.server import Answer, HttpServer, Request
from .data import PageData
from .html import html
from .sampler import Sampler

__all__ = ["PageServer"]

#: The lifetime of the object, which all clients share.
_FRESH_S = 0.5


class PageServer(HttpServer):
    """Serves the page to the clients that its access allows."""

    def __init__(self, address: Address, sampler: Sampler, access: HttpAccess) -> None:
        """
        Listen. Answers come once it is entered.

        Raises:
            ConfigError: The address is unusable, or a file of the access is.

        """
        answers = _Answers(PageData(sampler))
        super().__init__("ui", address, {"/": answers.page, "/data.json": answers.data}, access)


class _Answers:
    """The answers, made on request."""

    def __init__(self, data: PageData) -> None:
        self._data = data
        self._lock = threading.Lock()
        self._page: tuple[bytes, str] | None = None
        self._made: dict[tuple[bool, bool], tuple[float, bytes]] = {}

    def page(self, request: Request) -> Answer:
        """Return the page, compressed if the client accepts that, or status 304 if it has the page."""
        body, tag = self._compressed_page()
        headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if request.headers.get("If-None-Match") == tag:
            return Answer(None, headers, HTTPStatus.NOT_MODIFIED)
        headers["Content-Type"] = "text/html; charset=utf-8"
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return Answer(body, {**headers, "Content-Encoding": "gzip"})
        return Answer(gzip.decompress(body), headers)

    def _compressed_page(self) -> tuple[bytes, str]:
        """Return the compressed page and its ETag."""
        with self._lock:
            if self._page is None:
                body = gzip.compress(html(None).encode(), mtime=0)
                self._page = body, f'"{hashlib.sha256(body).hexdigest()[:16]}"'
            return self._page

    def data(self, request: Request) -> Answer:
        """Return the requested object as JSON."""
        wanted = parse_qs(request.query)
        whole = wanted.get("range") == ["whole"]
        every_partition = wanted.get("partitions") == ["all"]
        return Answer(self._json(whole, every_partition), {"Content-Type": "application/json"})

    def _json(self, whole: bool, every_partition: bool) -> bytes:
        with self._lock:
            made_at, body = self._made.get((whole, every_partition), (0.0, b""))
            if not body or time.monotonic() - made_at >= _FRESH_S:
                data = self._data.live(whole=whole, every_partition=every_partition)
                body = json.dumps(data).encode()
                self._made[whole, every_partition] = time.monotonic(), body
            return body

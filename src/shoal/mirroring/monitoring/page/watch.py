"""``--ui`` and ``--report`` of one mirror, from its start to its end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any

from ....errors import ShoalError
from ....net.address import Address
from ....result_file import check_result_file, write_result_file
from ...model.http_access import OPEN, HttpAccess
from ...model.progress import Summary
from ..http_server.server import Answer, HttpServer
from ..metrics import Metrics
from .history import Processes, Sampler
from .html import html
from .state import About, Ending, state_object

__all__ = ["MirrorPage"]

#: The lifetime of the object, which all clients share.
_FRESH_S = 0.5


class MirrorPage:
    """
    Serves the page of a mirror while it runs, and writes the report at its end, also after an error.

    Without ``--ui`` and ``--report`` this does nothing.

    Attributes:
        address: The address of the page; None without ``--ui``.
        url: The URL of the page; None without ``--ui``.

    """

    def __init__(
        self,
        ui: Address | None,
        report: str | None,
        about: About,
        metrics: Metrics,
        processes: Processes,
        on_warning: Callable[[str], object] | None = None,
        access: HttpAccess = OPEN,
    ) -> None:
        """
        Listen, and check that the report can be written.

        Args:
            ui: The address of the page.
            report: The file of the report.
            about: The identity of the mirror, as far as it is known.
            metrics: The registry of the mirror.
            processes: Returns the usage of the driver and its JVMs.
            on_warning: Called if the report cannot be written at the end.
            access: The requests that the page answers.

        Raises:
            ConfigError: The address is taken, a file of the access cannot be used, or the report could not be
                written.

        """
        if report is not None:
            check_result_file("--report", report)
        self._report = report
        self._on_warning = on_warning
        self._about = about
        self._metrics = metrics
        self._sampler = Sampler(metrics, processes)
        self._lock = threading.Lock()
        self._made: tuple[float, bytes] = (0.0, b"")
        routes = {"/": lambda _: self._page(), "/state.json": lambda _: self._state()}
        self._server = HttpServer("ui", ui, routes, access) if ui else None
        self.address = self._server.address if self._server else None
        self.url = f"{self._server.url}/" if self._server else None
        self._ending: Ending | None = None
        self._running = ExitStack()

    def _page(self) -> Answer:
        return Answer(html(None).encode(), {"Content-Type": "text/html; charset=utf-8"})

    def _state(self) -> Answer:
        with self._lock:
            made_at, body = self._made
            if not body or time.monotonic() - made_at >= _FRESH_S:
                body = json.dumps(self._object()).encode()
                self._made = time.monotonic(), body
        return Answer(body, {"Content-Type": "application/json"})

    def _object(self, ending: Ending | None = None) -> dict[str, Any]:
        return state_object(self._about, self._metrics, self._sampler, ending)

    def show_group(self, group: str, warnings: Iterable[str]) -> None:
        """Set the group and the warnings once the mirror is prepared; a later call replaces the warnings."""
        self._about = replace(self._about, group=group, warnings=tuple(warnings))

    def end(self, summary: Summary) -> None:
        """Set the result of the mirror. Without this call, an error has ended it."""
        self._ending = Ending.of(summary)

    def __enter__(self) -> MirrorPage:
        if self._server or self._report is not None:
            self._running.enter_context(self._sampler)
        if self._server:
            self._running.enter_context(self._server)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()
        # A mirror that was refused at its start must not replace an older report.
        if self._report is None or self._about.group is None:
            return
        ending = self._ending or Ending(False, f"The mirror failed: {str(error) or type(error).__name__}")
        try:
            write_result_file("report", self._report, html(self._object(ending)))
        except ShoalError as problem:
            if self._on_warning:
                self._on_warning(str(problem))

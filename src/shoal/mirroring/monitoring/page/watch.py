"""The page and the report of one mirror, from its start to its end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any

from ....errors import ShoalError
from ....result_file import check_result_file, write_result_file
from ...model.progress import Summary
from ..door import Answer, Route
from ..metrics import Metrics
from .history import Processes, Sampler
from .html import html
from .state import About, Ending, state_object

__all__ = ["MirrorPage"]

#: The lifetime of the object, which all clients share.
_FRESH_S = 0.5


class MirrorPage:
    """
    Samples a mirror while it runs, for its page, and writes the report at its end, also after an error.

    If it is neither served nor reported, this does nothing.

    Attributes:
        routes: The answers of the page.

    """

    def __init__(
        self,
        report: str | None,
        about: About,
        metrics: Metrics,
        processes: Processes,
        on_warning: Callable[[str], object] | None = None,
        *,
        is_served: bool = False,
    ) -> None:
        """
        Check that the report can be written.

        Args:
            report: The file of the report.
            about: The identity of the mirror, as far as it is known.
            metrics: The registry of the mirror.
            processes: Returns the usage of the driver and its JVMs.
            on_warning: Called if the report cannot be written at the end.
            is_served: Whether a server has the routes.

        Raises:
            ConfigError: The report could not be written.

        """
        if report is not None:
            check_result_file("--report", report)
        self.routes: Mapping[str, Route] = {"/": self._page, "/state.json": self._state}
        self._report = report
        self._is_served = is_served
        self._on_warning = on_warning
        self._about = about
        self._metrics = metrics
        self._sampler = Sampler(metrics, processes)
        self._lock = threading.Lock()
        self._made: tuple[float, bytes] = (0.0, b"")
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
        if self._is_served or self._report is not None:
            self._running.enter_context(self._sampler)
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

"""``--ui`` and ``--report`` of one mirror, from its start to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType

from ....errors import ShoalError
from ....net.address import Address
from ....result_file import check_result_file
from ...model.http_access import OPEN, HttpAccess
from ...model.progress import Summary
from ..metrics import Metrics
from .data import Ending
from .report import write_report
from .sampler import About, Processes, Sampler
from .server import PageServer

__all__ = ["MirrorPage"]


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
            check_result_file("report", report)
        self._report = report
        self._on_warning = on_warning
        self._sampler = Sampler(about, metrics, processes)
        self._page = PageServer(ui, self._sampler, access) if ui else None
        self.address = self._page.address if self._page else None
        self.url = f"{self._page.url}/" if self._page else None
        self._ending: Ending | None = None
        self._running = ExitStack()

    def show_group(self, group: str, warnings: Iterable[str]) -> None:
        """Set the group and the warnings once the mirror is prepared; a later call replaces the warnings."""
        self._sampler.about = replace(self._sampler.about, group=group, warnings=tuple(warnings))

    def end(self, summary: Summary) -> None:
        """Set the result of the mirror. Without this call, an error has ended it."""
        self._ending = Ending.of(summary)

    def __enter__(self) -> MirrorPage:
        if self._page or self._report is not None:
            self._running.enter_context(self._sampler)
        if self._page:
            self._running.enter_context(self._page)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()
        # A mirror that was refused at its start must not replace an older report.
        if self._report is None or self._sampler.about.group is None:
            return
        ending = self._ending or Ending.failed(str(error) or type(error).__name__)
        try:
            write_report(self._report, self._sampler, ending)
        except ShoalError as problem:
            if self._on_warning:
                self._on_warning(str(problem))

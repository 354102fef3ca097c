"""``--ui`` and ``--report`` of one mirror, from its start to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType

from ....errors import ShoalError
from ....net.address import Address
from ...model.http_access import OPEN, HttpAccess
from ...model.progress import Summary
from ..metrics import Metrics
from .data import Ending
from .observer import About, Observer, Processes
from .report import check_report, write_report
from .server import PageServer

__all__ = ["Watch"]


class Watch:
    """
    Shows a mirror while it runs, and writes the report when it ends, however it does, once it is prepared.

    Where neither is wanted it does nothing, and costs nothing.

    Attributes:
        address: Where the page is served; None if none was wanted.
        url: The page's; likewise.

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
        Args:
            ui: Where browsers are answered.
            report: The file.
            about: Which mirror it is, as far as that is known.
            metrics: What it does.
            processes: Returns what the driver and its JVMs take.
            on_warning: Told where the report could not be written after all.
            access: Which of them are answered.

        Raises:
            ConfigError: The address is taken, a file of the access cannot be used, or the report could not be
                written.

        """
        if report is not None:
            check_report(report)
        self._report = report
        self._on_warning = on_warning
        self._observer = Observer(about, metrics, processes)
        self._page = PageServer(ui, self._observer, access) if ui else None
        self.address = self._page.address if self._page else None
        self.url = f"{self._page.url}/" if self._page else None
        self._ending: Ending | None = None
        self._running = ExitStack()

    def know(self, group: str, warnings: Iterable[str]) -> None:
        """Say what is known of the mirror once it is prepared; warnings may come again, with more."""
        self._observer.about = replace(self._observer.about, group=group, warnings=tuple(warnings))

    def end(self, summary: Summary) -> None:
        """Say how the mirror ended; where nobody does, an error ended it."""
        self._ending = Ending.of(summary)

    def __enter__(self) -> Watch:
        if self._page or self._report is not None:
            self._running.enter_context(self._observer)
        if self._page:
            self._running.enter_context(self._page)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()
        # A mirror that was refused before it began has nothing to report in place of an older one.
        if self._report is None or self._observer.about.group is None:
            return
        ending = self._ending or Ending.failed(str(error) or type(error).__name__)
        try:
            write_report(self._report, self._observer, ending)
        except ShoalError as problem:
            if self._on_warning:
                self._on_warning(str(problem))

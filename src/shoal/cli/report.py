"""The one report of a mirror that suits stdout and stderr."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from ..mirroring.model.progress import Progress, Summary
from .output import JsonReport, PlainReport, stamp_lines

__all__ = ["Report", "progress_until_unread", "report_to"]


class Report(Protocol):
    """Prints the progress and the end of a mirror. Progress comes from a thread of its own."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def progress(self, progress: Progress) -> None:
        """Show the progress, and print news of partitions."""

    def warning(self, sentence: str) -> None:
        """Print a warning."""

    def notice(self, sentence: str) -> None:
        """Print a notice, such as the address of the page."""

    def summary(self, summary: Summary) -> None:
        """Print the summary at the end."""


def progress_until_unread(report: Report, stop: threading.Event) -> Callable[[Progress], None]:
    """Return a function that reports progress, and stops the mirror if its reader has gone (``| head``)."""

    def on_progress(progress: Progress) -> None:
        try:
            report.progress(progress)
        except BrokenPipeError:
            # Printing the summary raises the error again, and `main` handles it.
            stop.set()

    return on_progress


def report_to(*, as_json: bool, is_service: bool = False) -> Report:
    """Return the report that suits stdout and stderr. The lines of a service begin with the time."""
    stamp_lines(is_service=is_service)
    if as_json:
        return JsonReport()
    if not sys.stderr.isatty():
        return PlainReport()
    from .live_report import LiveReport  # imports rich, which services do not need

    return LiveReport()

"""The one report of a mirror that suits stdout and stderr."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from ..mirroring.model.progress import Progress
from .output import stamp_lines
from .plain_report import JsonReport, PlainReport

__all__ = ["progress_until_unread", "report_to"]


def progress_until_unread(report: PlainReport, stop: threading.Event) -> Callable[[Progress], None]:
    """Return a function that reports progress, and stops the mirror if its reader has gone (``| head``)."""

    def on_progress(progress: Progress) -> None:
        try:
            report.progress(progress)
        except BrokenPipeError:
            # Printing the summary raises the error again, and `main` handles it.
            stop.set()

    return on_progress


def report_to(*, as_json: bool, is_service: bool = False) -> PlainReport:
    """Return the report that suits stdout and stderr. The lines of a service begin with the time."""
    stamp_lines(is_service=is_service)
    if as_json:
        return JsonReport()
    if not sys.stderr.isatty():
        return PlainReport()
    from .live_report import LiveReport  # imports rich, which services do not need

    return LiveReport()

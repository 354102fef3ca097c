"""A mirror's progress on a terminal: one line that changes, with news above it."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.live import Live

from ..mirroring.model.progress import Phase, Progress, Summary, line
from .output import first_line
from .plain_report import PlainReport
from .working import StatusLine

__all__ = ["LiveReport"]


class LiveReport(PlainReport):
    """One line that changes, on a terminal; a table at the end on stdout."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self._console = console or Console(stderr=True)
        self._progress: Progress | None = None
        self._live = Live(StatusLine(self._look), console=self._console, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.stop()

    def progress(self, progress: Progress) -> None:
        """Print news, and show the progress."""
        self._news.of(progress)
        self._progress = progress

    def summary(self, summary: Summary) -> None:
        """Print the summary at the end."""
        self._live.stop()
        super().summary(summary)

    def notice(self, sentence: str) -> None:
        """Print a notice."""
        # Above the live line. With soft_wrap the terminal wraps, so that the line can be copied whole.
        self._console.print(f"shoal: {first_line(sentence)}", markup=False, highlight=False, soft_wrap=True)

    def _look(self, room: int) -> tuple[str, float | None]:
        """Return the line; only a mirror with ``--once`` has an end, and so a share."""
        progress = self._progress
        if progress is None:
            return Phase.CHECKING.value, None
        if not progress.once or progress.phase != Phase.COPYING.value:
            return line(progress)[:room], None
        total = progress.records + progress.lag_records
        return line(progress)[:room], progress.records / total if total else 1.0

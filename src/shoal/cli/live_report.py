"""A mirror's progress on a terminal: one line that changes, with news above it."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.live import Live

from ..mirroring.model.progress import Phase, Progress, Summary
from .live_line import line
from .output import News, first_line, summary_rows, table
from .working import StatusLine

__all__ = ["LiveReport"]


class LiveReport:
    """One line that changes, on a terminal; a table at the end on stdout."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._progress: Progress | None = None
        self._live = Live(StatusLine(self._look), console=self._console, transient=True)
        self._news = News(self._say)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.stop()

    def progress(self, progress: Progress) -> None:
        """Print news, and a line or object now and then."""
        self._news.of(progress)
        self._progress = progress

    def warning(self, sentence: str) -> None:
        """Print a warning."""
        self._say(f"warning: {sentence}")

    def notice(self, sentence: str) -> None:
        """Print a notice."""
        self._say(sentence)

    def summary(self, summary: Summary) -> None:
        """Print the summary at the end."""
        self._live.stop()
        print(table(summary_rows(summary)), flush=True)

    def _say(self, sentence: str) -> None:
        # Above the live line. With soft_wrap the terminal wraps, so that the line can be copied whole.
        self._console.print(f"shoal: {first_line(sentence)}", markup=False, highlight=False, soft_wrap=True)

    def _look(self, room: int) -> tuple[str, float | None]:
        """Return the line; only a mirror with ``--once`` has an end, and so a share."""
        progress = self._progress
        if progress is None:
            return Phase.CHECKING.value, None
        if not progress.once or progress.phase != Phase.COPYING.value:
            return line(progress, room), None
        total = progress.records + progress.lag_records
        return line(progress, room), progress.records / total if total else 1.0

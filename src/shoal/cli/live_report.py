"""A mirror's progress on a terminal: one line that changes, with news above it."""

from __future__ import annotations

from typing import Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ..mirroring.model.progress import Phase, Progress, Summary
from .live_line import line
from .output import News, first_line, summary_rows, table

__all__ = ["LiveReport"]


class LiveReport:
    """One line that changes, on a terminal; a table at the end on stdout."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._line = _LiveLine()
        self._live = Live(self._line, console=self._console, transient=True)
        self._news = News(self._say)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.stop()

    def progress(self, progress: Progress) -> None:
        """Print news, and a line or object now and then."""
        self._news.of(progress)
        self._line.progress = progress

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


class _LiveLine:
    """
    The live line, drawn several times a second and cut to the terminal's width.

    Only a mirror with ``--once`` has a bar: without an end, a percentage has no meaning.
    """

    #: A shorter bar would show nothing.
    _LEAST_BAR = 10

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self._spinner = Spinner("dots")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        progress = self.progress
        room = options.max_width - 2  # the spinner and a space
        text = Phase.CHECKING.value if progress is None else line(progress, room)
        cells: list[Spinner | Text | ProgressBar] = [self._spinner, Text(text, no_wrap=True)]
        bar_width = room - len(text) - len(" 100% ")
        if progress is not None and self._has_bar(progress) and bar_width >= self._LEAST_BAR:
            total = progress.records + progress.lag_records
            share = progress.records / total if total else 1.0
            cells += [ProgressBar(total=1.0, completed=share, width=bar_width), Text(f"{share:4.0%}")]
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_row(*cells)
        yield grid

    def _has_bar(self, progress: Progress) -> bool:
        return progress.once and progress.phase == Phase.COPYING.value

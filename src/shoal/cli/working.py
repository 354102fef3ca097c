"""
The progress of a command on a terminal: one line that changes, with all other lines above it.

The line appears when the command has worked for two seconds, and goes away at its end. If stderr is no
terminal, there is none.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import NamedTuple, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ..mirroring.model.progress import clock
from ..printable import printable
from ..timing import SYSTEM_CLOCK, Clock

__all__ = ["Done", "StatusLine", "Working", "amounts"]

#: A command that ends sooner needs no progress.
_QUIET_S = 2.0

#: A shorter bar would show nothing.
_LEAST_BAR = 10

#: The share of the work after which its rate foretells its end.
_LEAST_SHARE = 0.01


class Done(NamedTuple):
    """
    How far a command is.

    Attributes:
        text: The work, such as ``3/16 partitions``.
        size: The bytes that were read; None if the work is not reading.
        share: The part of the work that is done, 0 to 1; None if its end is unknown.

    """

    text: str
    size: int | None = None
    share: float | None = None


def amounts(done: Done, elapsed_s: float) -> str:
    """Return ``3/16 partitions, 64.2 MB, 33.1 MB/s, 0:12 left``; the time so far if the end is unknown."""
    parts = [done.text]
    if done.size is not None:
        rate = done.size / elapsed_s if elapsed_s > 0 else 0.0
        parts += [f"{done.size / 1e6:,.1f} MB", f"{rate / 1e6:,.1f} MB/s"]
    if done.share is not None and done.share >= _LEAST_SHARE:
        parts.append(f"{clock(elapsed_s * (1 - done.share) / done.share)} left")
    else:
        parts.append(clock(elapsed_s))
    return ", ".join(parts)


class StatusLine:
    """A spinner, a text, and a bar if the end is known; drawn several times a second."""

    def __init__(self, look: Callable[[int], tuple[str, float | None]]) -> None:
        """
        Draw what a function returns.

        Args:
            look: Returns a text for a width, and the part of the work that is done.

        """
        self._look = look
        self._spinner = Spinner("dots")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - 2  # the spinner and a space
        text, share = self._look(room)
        cells: list[Spinner | Text | ProgressBar] = [self._spinner, Text(text, no_wrap=True)]
        bar_width = room - len(text) - len(" 100% ")
        if share is not None and bar_width >= _LEAST_BAR:
            cells += [ProgressBar(total=1.0, completed=share, width=bar_width), Text(f"{share:4.0%}")]
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_row(*cells)
        yield grid


class Working:
    """Shows how far a command is; use it as a context manager around the work."""

    def __init__(
        self,
        begins: str,
        *,
        as_json: bool = False,
        console: Console | None = None,
        quiet_s: float = _QUIET_S,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """
        Prepare the line.

        Args:
            begins: The work, until the first call of :meth:`show`.
            as_json: Whether a program reads the result: then there is no line.
            console: The terminal; stderr by default.
            quiet_s: The time before the line appears.
            clock: The clock of rates.

        """
        self._done = Done(begins)
        self._now = clock.monotonic
        self._began_at = self._now()
        # By itself rich takes a pipe for a terminal if FORCE_COLOR is set, as CI often does.
        console = console or Console(file=sys.stderr, force_terminal=sys.stderr.isatty())
        self._live = Live(StatusLine(self._look), console=console, transient=True)
        self._timer = threading.Timer(quiet_s, self._live.start)
        self._timer.daemon = True
        self._is_shown = console.is_terminal and not as_json

    def show(self, done: Done) -> None:
        """Show how far the work is from now on; its rate is that since it began to read."""
        if done.size is not None and self._done.size is None:
            self._began_at = self._now()
        self._done = done

    def __enter__(self) -> Self:
        self._began_at = self._now()
        if self._is_shown:
            self._timer.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._is_shown:
            self._timer.cancel()
            self._timer.join()
            self._live.stop()

    def _look(self, room: int) -> tuple[str, float | None]:
        done = self._done
        return printable(amounts(done, self._now() - self._began_at))[:room], done.share

"""
What a user sees of a mirror at work, and of its end.

A live line where stderr is a terminal; a plain line now and then where it is
not; JSON objects on stdout with ``--json``. Warnings, stopped and waiting
partitions are told once, on stderr, in all three.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn
from rich.progress import Progress as Bar

from ..mirroring.incidents import IncidentKind
from ..mirroring.progress import PartitionIncident, Progress, Summary
from ..mirroring.sentences import first_few

__all__ = [
    "JsonReport",
    "LiveReport",
    "PlainReport",
    "Report",
    "first_line",
    "print_json",
    "progress_until_unread",
    "report_to",
    "say",
    "table",
    "warn",
]

#: Between two plain lines.
_PLAIN_INTERVAL_S = 10.0
#: Between two JSON objects.
_JSON_INTERVAL_S = 1.0


def say(sentence: str) -> None:
    """Print one line to stderr: the first, where there are more (of an exception that is not ours)."""
    print(f"shoal: {first_line(sentence)}", file=sys.stderr, flush=True)


def first_line(text: str) -> str:
    """Return the first line that is not empty, with single spaces."""
    return " ".join(text.strip().partition("\n")[0].split())


def warn(sentence: str) -> None:
    say(f"warning: {sentence}")


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object as one line of stdout."""
    print(json.dumps(values), flush=True)


class Report(Protocol):
    """How a verb tells of a mirror. Progress comes from another thread than the rest."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def progress(self, progress: Progress) -> None: ...

    def warning(self, sentence: str) -> None: ...

    def notice(self, sentence: str) -> None: ...

    def summary(self, summary: Summary) -> None: ...


def progress_until_unread(report: Report, stop: threading.Event) -> Callable[[Progress], None]:
    """Return what passes progress on to a report, and asks for an end where nobody reads it (``| head``)."""

    def on_progress(progress: Progress) -> None:
        try:
            report.progress(progress)
        except BrokenPipeError:
            # It comes up again, and is dealt with, at the summary.
            stop.set()

    return on_progress


def report_to(*, as_json: bool) -> Report:
    """Return the report for where stdout and stderr lead."""
    if as_json:
        return JsonReport()
    return LiveReport() if sys.stderr.isatty() else PlainReport()


class News:
    """Tells of each stopped and each waiting partition once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._incidents = 0
        self._stopped: dict[str, str] = {}
        self._waiting: dict[str, str] = {}

    def of(self, progress: Progress) -> None:
        for reason, partitions in _by_reason(_new(progress.stopped, self._stopped)).items():
            self._say(f"{first_few(partitions)} stopped: {reason}")
        for reason, partitions in _by_reason(_new(progress.waiting, self._waiting)).items():
            self._say(f"{first_few(partitions)} waiting: {reason}")
        happened = progress.incidents_before + len(progress.incidents)
        for incident in progress.incidents[max(0, self._incidents - progress.incidents_before) :]:
            # Others are told as what stopped the partition; and each of what was left out, as it happens.
            if incident.continued and incident.kind != IncidentKind.SEND_FAILURE.value:
                self._say(f"{incident.partition} went on after {incident_text(incident)}")
        self._incidents = happened
        self._stopped = dict(progress.stopped)
        self._waiting = dict(progress.waiting)


def _new(now: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    return {partition: reason for partition, reason in now.items() if before.get(partition) != reason}


def _by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    partitions: dict[str, list[str]] = defaultdict(list)
    for partition, reason in reasons.items():
        partitions[reason].append(partition)
    return partitions


class PlainReport:
    """A line every ten seconds on stderr, and a table at the end on stdout."""

    def __init__(self, interval_s: float = _PLAIN_INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._next_s = interval_s
        self._news = News(say)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def progress(self, progress: Progress) -> None:
        self._news.of(progress)
        if progress.elapsed_s >= self._next_s:
            say(line(progress))
            self._next_s = progress.elapsed_s + self._interval_s

    def warning(self, sentence: str) -> None:
        warn(sentence)

    def notice(self, sentence: str) -> None:
        say(sentence)

    def summary(self, summary: Summary) -> None:
        print(table(summary_rows(summary)), flush=True)


class JsonReport(PlainReport):
    """An object a second and one at the end on stdout."""

    def __init__(self, interval_s: float = _JSON_INTERVAL_S) -> None:
        super().__init__(interval_s)
        self._next_s = 0.0

    def progress(self, progress: Progress) -> None:
        self._news.of(progress)
        if progress.elapsed_s >= self._next_s:
            print_json(progress.to_json_object())
            self._next_s = progress.elapsed_s + self._interval_s

    def summary(self, summary: Summary) -> None:
        print_json(summary.to_json_object())


class LiveReport:
    """One line that changes, on a terminal; a table at the end on stdout."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f}%"),
            console=self._console,
            expand=True,
            transient=True,
        )
        self._task: TaskID = self._bar.add_task("starting Spark", total=None)
        self._news = News(self._say)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._bar.stop()

    def progress(self, progress: Progress) -> None:
        self._news.of(progress)
        if not progress.bytes_in and progress.done < progress.partitions:
            return
        self._bar.update(
            self._task,
            description=line(progress),
            completed=progress.records,
            total=(progress.records + progress.lag_records) or None,
        )

    def warning(self, sentence: str) -> None:
        self._say(f"warning: {sentence}")

    def notice(self, sentence: str) -> None:
        self._say(sentence)

    def summary(self, summary: Summary) -> None:
        self._bar.stop()
        print(table(summary_rows(summary)), flush=True)

    def _say(self, sentence: str) -> None:
        # Above the live line; soft_wrap leaves the wrapping to the terminal, so that it can be copied whole.
        self._console.print(f"shoal: {first_line(sentence)}", markup=False, highlight=False, soft_wrap=True)


def line(progress: Progress) -> str:
    """``12/16 partitions, 812,004 records/s, 113.2 MB/s, lag 1,200,000 records, 0:02 left``"""
    parts = [
        f"{progress.done}/{progress.partitions} partitions",
        f"{progress.records_per_s:,.0f} records/s",
        f"{progress.bytes_per_s / 1e6:,.1f} MB/s",
        f"lag {progress.lag_records:,} records",
    ]
    if progress.remaining_s is not None and progress.lag_records:
        parts.append(f"{_clock(progress.remaining_s)} left")
    if progress.waiting:
        parts.append(f"{len(progress.waiting)} waiting")
    if progress.stopped:
        parts.append(f"{len(progress.stopped)} stopped")
    return ", ".join(parts)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def summary_rows(summary: Summary) -> list[tuple[str, str]]:
    """Return what to tell of a mirror's end: names and values."""
    decisions = ", ".join(f"{name} {count:,}" for name, count in sorted(summary.decisions.items()))
    rows = [
        ("topics", f"{len(summary.topics):,} ({summary.partitions:,} partitions)"),
        ("records", f"{summary.records:,}"),
        ("batches", f"{summary.batches:,}"),
        ("bytes in", f"{summary.bytes_in:,}"),
        ("bytes out", f"{summary.bytes_out:,}"),
        ("decisions", decisions or "none"),
        ("elapsed", _elapsed(summary)),
        ("MB/s", f"{summary.bytes_per_s / 1e6:.1f}"),
        ("CPU-seconds", f"{summary.python_cpu_s:.1f} Python, {summary.jvm_cpu_s:.1f} JVM"),
        ("retries", f"{summary.retries:,}"),
        ("group", summary.group),
    ]
    if summary.log_file:
        rows.append(("Spark's log", summary.log_file))
    rows += [("stopped", f"{partition}: {reason}") for partition, reason in summary.stopped.items()]
    rows += [("waiting", f"{partition}: {reason}") for partition, reason in summary.waiting.items()]
    rows += [
        ("went on", f"{each.partition} after {incident_text(each)}")
        for each in summary.incidents
        if each.continued
    ]
    if summary.incidents_before:
        rows.append(("went on", f"after {summary.incidents_before:,} incidents before these"))
    if summary.interrupted:
        rows.append(("interrupted", "not everything was copied; run it again to go on"))
    return rows


def incident_text(incident: PartitionIncident) -> str:
    """``source-retention (200 lost): the source cluster … does not have offset 7 any more …``"""
    lost = "an unknown number" if incident.lost is None else f"{incident.lost:,}"
    return f"{incident.kind} ({lost} lost): {incident.reason}"


def _elapsed(summary: Summary) -> str:
    if summary.copying_s is None:
        return f"{summary.elapsed_s:.1f} s"
    return f"{summary.elapsed_s:.1f} s, of which {summary.copying_s:.1f} s copying"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return columns, each as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)

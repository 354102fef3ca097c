"""
The reports of a mirror: its progress, its news and its summary.

A terminal on stderr shows a live line; otherwise stderr gets a plain line now and then. With ``--json``,
stdout gets JSON objects. In all three cases stderr gets warnings, stopped and waiting partitions, each once.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from ..mirroring.model.incidents import Incident, IncidentKind
from ..mirroring.model.progress import LONG_TRANSACTION_S, Phase, Progress, Summary, line
from ..mirroring.model.text import first_few, utc
from .output import print_json, say, table

__all__ = ["JsonReport", "News", "PlainReport", "summary_rows"]

#: Time between two plain lines with news, and between two without.
_PLAIN_INTERVAL_S = 10.0
_IDLE_INTERVAL_S = 600.0
#: Time between two JSON objects.
_JSON_INTERVAL_S = 1.0


class News:
    """Prints news of partitions, each once: stops, waits, open transactions, incidents."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._known: Mapping[_Place, str] = {}

    def of(self, progress: Progress) -> None:
        """Print the news since the last report."""
        found = dict(_news(progress))
        new = ((place.partition, each) for place, each in found.items() if self._known.get(place) != each)
        for sentence, partitions in _by_reason(new).items():
            self._say(f"{first_few(partitions)} {sentence}")
        gone = self._known.keys() - found.keys()
        if healed := sorted(each.partition for each in gone if each.kind == "stopped"):
            self._say(f"{first_few(healed)} no longer stopped")
        self._known = found


class _Place(NamedTuple):
    """The partition of a piece of news, and of several incidents the number."""

    kind: str
    partition: str
    incident: int = 0


def _news(progress: Progress) -> Iterator[tuple[_Place, str]]:
    for name, reason in progress.stopped.items():
        yield _Place("stopped", name), f"stopped: {reason}"
    for name, reason in progress.waiting.items():
        yield _Place("waiting", name), f"waiting: {reason}"
    now = time.time()
    for name, held in progress.held_back.items():
        if now - held.since >= LONG_TRANSACTION_S:
            sentence = f"held back by an open transaction of the source, seen since {utc(held.since)}"
            yield _Place("held", name), sentence
    for number, incident in enumerate(progress.incidents, progress.incidents_before + 1):
        # Other incidents are the reason of a stop, and a skipped batch has a warning of its own.
        if incident.continued and incident.kind is not IncidentKind.SEND_FAILURE:
            yield _Place("incident", incident.partition, number), f"continued after {incident_text(incident)}"


def _by_reason(reasons: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    partitions: dict[str, list[str]] = defaultdict(list)
    for partition, reason in reasons:
        partitions[reason].append(partition)
    return partitions


class PlainReport:
    """
    A line every ten seconds on stderr, or every ten minutes without news, and a table on stdout.

    Progress comes from a thread of its own.
    """

    def __init__(self) -> None:
        self._next_s = _PLAIN_INTERVAL_S
        self._idle_until_s = 0.0
        self._last: tuple[int, str] | None = None
        self._phase = Phase.COPYING.value
        self._news = News(self.notice)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def progress(self, progress: Progress) -> None:
        """Print news, and a line or object now and then."""
        self._news.of(progress)
        is_news = self._enters(progress) and progress.phase != Phase.STOPPING.value
        if is_news and progress.phase != Phase.COPYING.value:
            say(progress.phase)
        elif is_news or progress.elapsed_s >= self._next_s:
            self._say_line(progress, is_news=is_news)

    def _say_line(self, progress: Progress, *, is_news: bool) -> None:
        """Print the progress, unless it is that of the last line: a log needs no copies of it."""
        now = progress.records, line(progress)
        if not is_news and now == self._last and progress.elapsed_s < self._idle_until_s:
            return
        say(now[1])
        self._last = now
        self._next_s = progress.elapsed_s + _PLAIN_INTERVAL_S
        self._idle_until_s = progress.elapsed_s + _IDLE_INTERVAL_S

    def _enters(self, progress: Progress) -> bool:
        """Whether the mirror has entered another phase since the last report."""
        before, self._phase = self._phase, progress.phase
        return progress.phase != before

    def warning(self, sentence: str) -> None:
        """Print a warning."""
        self.notice(f"warning: {sentence}")

    def notice(self, sentence: str) -> None:
        """Print a notice, such as the address of the page."""
        say(sentence)

    def summary(self, summary: Summary) -> None:
        """Print the summary at the end."""
        print(table(summary_rows(summary)), flush=True)


class JsonReport(PlainReport):
    """An object a second and one at the end on stdout."""

    def __init__(self) -> None:
        super().__init__()
        self._next_s = 0.0

    def progress(self, progress: Progress) -> None:
        """Print news, and a line or object now and then."""
        self._news.of(progress)
        if self._enters(progress) or progress.elapsed_s >= self._next_s:
            print_json(progress.to_json_object())
            self._next_s = progress.elapsed_s + _JSON_INTERVAL_S

    def summary(self, summary: Summary) -> None:
        """Print the summary at the end."""
        print_json(summary.to_json_object())


def summary_rows(summary: Summary) -> list[tuple[str, str]]:
    """Return the rows of the summary: names and values."""
    if not summary.topics and summary.ended:
        return [("ended", summary.ended), ("elapsed", _elapsed(summary))]
    rows = [
        ("ended", summary.ended),
        ("topics", f"{len(summary.topics):,} ({summary.partitions:,} partitions)"),
        *_state_rows(summary),
        *[(name.replace("_", " "), _count(count)) for name, count in summary.counts().items()],
        ("elapsed", _elapsed(summary)),
        ("MB/s", f"{summary.bytes_per_s / 1e6:.1f}"),
        ("CPU-seconds", f"{summary.python_cpu_s:.1f} Python, {summary.jvm_cpu_s:.1f} JVM"),
        ("JVM's GC", _garbage_collection(summary)),
        ("inner loops", _engines(summary)),
        ("group", summary.group),
        ("consumer groups", _consumer_groups(summary.consumer_groups)),
        ("Spark's log", summary.log_file),
        ("report", summary.report),
        *[
            (name, f"{first_few(each)}: {reason}")
            for name, reasons in (("stopped", summary.stopped), ("waiting", summary.waiting))
            for reason, each in _by_reason(reasons.items()).items()
        ],
        *[
            ("continued", f"{each.partition} after {incident_text(each)}")
            for each in summary.incidents
            if each.continued
        ],
        (
            "continued",
            summary.incidents_before and f"after {summary.incidents_before:,} incidents before these",
        ),
        (
            "interrupted",
            summary.interrupted and "some records are not copied yet. Run the mirror again to continue",
        ),
    ]
    return [(name, str(text)) for name, text in rows if text]


def _count(count: int | Mapping[str, int]) -> str:
    if isinstance(count, int):
        return f"{count:,}"
    return ", ".join(f"{name} {each:,}" for name, each in sorted(count.items())) or "none"


def _consumer_groups(status: Mapping[str, Any] | None) -> str:
    """Return ``12, with 30 offsets exact, 2 ahead, 1 refused``."""
    if status is None:
        return ""
    counts = [
        f"{count:,} {name}"
        for name, count in (*status["offsets"].items(), *status["actions"].items())
        if count
    ]
    text = f"{status['groups']:,}" + (f": {', '.join(counts)}" if counts else "")
    return f"{text}, but the last translation failed: {status['failure']}" if status["failure"] else text


def _state_rows(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield the rows about the lag of the destination."""
    if not summary.states:
        return
    others = [f"{count:,} {state}" for state, count in summary.states.items() if count]
    age = "" if not summary.lag_s else f", {summary.lag_s:,.1f} s"
    yield "up to date", "yes" if summary.up_to_date else f"no: {', '.join(others)}"
    yield "lag", f"{'' if summary.lag_is_known else 'at least '}{summary.lag_records:,} records{age}"
    for name, each in summary.clusters_down.items():
        yield f"{name} down", f"{each.sentence}: {each.reason}"
    if summary.held_back_records:
        yield "held back", f"{summary.held_back_records:,} records, by open transactions of the source"


def incident_text(incident: Incident) -> str:
    """Return an incident as ``source-retention (200 source offsets lost): the source has no offset 7 …``."""
    lost = "an unknown number of" if incident.lost is None else f"{incident.lost:,}"
    # Not each offset that retention deleted, or that the source does not send, had a record.
    is_of_offsets = incident.kind.policy is IncidentKind.SOURCE_RETENTION
    unit = "source offset" if is_of_offsets else "record"
    return f"{incident.kind} ({lost} {unit}{'s' * (incident.lost != 1)} lost): {incident.reason}"


def _garbage_collection(summary: Summary) -> str:
    gc = summary.jvm_gc
    if gc is None:
        return ""
    pauses = "1 pause" if gc.pauses == 1 else f"{gc.pauses:,} pauses"
    return f"{gc.time_s:.2f} s in {pauses}"


def _engines(summary: Summary) -> str:
    different = ", each on other machines: install the same shoal on all" if len(summary.engines) > 1 else ""
    return " and ".join(summary.engines) + different


def _elapsed(summary: Summary) -> str:
    if summary.copying_s is None:
        return f"{summary.elapsed_s:.1f} s"
    return f"{summary.elapsed_s:.1f} s, of which {summary.copying_s:.1f} s copying"

"""
The page and the report of one mirror, from its start to its end.

Both show one object: ``/state.json``, and the inside of a report. It has no secrets. Its names are those of
partitions, processes and the consumer group, and its sentences are those that the mirror also prints.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from string import Template
from types import TracebackType
from typing import Any, TypeAlias

from ....errors import ShoalError
from ....exit_codes import EXIT_DONE
from ....printable import printable_values
from ....result_file import check_result_file, write_result_file
from ....static_page import style
from ...model.progress import ProcessRole, ProcessUsage, Summary
from ..door import Answer, Route
from ..metrics import Metrics

__all__ = ["About", "History", "MirrorPage", "Processes", "Sample", "html"]

_MOST_SAMPLES = 600
_FIRST_INTERVAL_S = 1.0
#: 450 samples are an hour then.
_LAST_INTERVAL_S = 8.0
_HOUR_MS = 3_600_000

#: Numbers by their names. ``at_ms`` is the time, in milliseconds since 1970. Bytes and CPU time count from
#: the start, so a rate is exact between any two samples. None stands for what is unknown.
Sample: TypeAlias = Mapping[str, Any]


class History:
    """
    The samples of the last hour.

    The interval between two doubles whenever they become too many, up to eight seconds.

    Attributes:
        interval_s: The time between two samples.

    """

    def __init__(self) -> None:
        """Begin without samples."""
        self.interval_s = _FIRST_INTERVAL_S
        self._samples: tuple[Sample, ...] = ()

    def add(self, sample: Sample) -> None:
        """Add the next sample, and drop those that are older than an hour."""
        kept = tuple(each for each in self._samples if each["at_ms"] >= sample["at_ms"] - _HOUR_MS)
        if len(kept) >= _MOST_SAMPLES and self.interval_s < _LAST_INTERVAL_S:
            kept = kept[::2]
            self.interval_s *= 2
        self._samples = (*kept[-_MOST_SAMPLES:], sample)

    def columns(self) -> dict[str, list[Any]]:
        """Return the samples as one list for each number, rounded for figures."""
        samples = self._samples
        return {name: [_rounded(each[name]) for each in samples] for name in samples[-1]} if samples else {}


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


#: The driver and its JVMs, now.
Processes: TypeAlias = Callable[[], Sequence[ProcessUsage]]

#: The totals in each sample.
_CHARTED = ("bytes_in", "bytes_out", "lag_records", "lag_s")

#: The lifetime of the object, which all clients share.
_FRESH_S = 0.5


@dataclass(slots=True)
class About:
    """
    The identity of a mirror, as far as it is known; the mirror adds to it.

    Attributes:
        source: The source's bootstrap servers, as the user wrote them.
        destination: The destination's bootstrap servers, as the user wrote them.
        group: The consumer group with the committed positions; None until it is known.
        warnings: The warnings in the summary.

    """

    source: str
    destination: str
    group: str | None = None
    warnings: list[str] = field(default_factory=list)


class MirrorPage:
    """
    Samples a mirror while it runs, and writes the report at its end, also after an error.

    Attributes:
        routes: The answers of the page.
        report: The file of the report; None without one, and from a failed attempt to write it on.

    """

    def __init__(
        self,
        report: str | None,
        about: About,
        metrics: Metrics,
        processes: Processes,
        on_warning: Callable[[str], object] = lambda _: None,
    ) -> None:
        """
        Check that the report can be written.

        Args:
            report: The file of the report.
            about: The identity of the mirror.
            metrics: The registry of the mirror.
            processes: Returns the usage of the driver and its JVMs.
            on_warning: Called if the report cannot be written at the end.

        Raises:
            ConfigError: The report could not be written.

        """
        if report is not None:
            check_result_file("--report", report)
        self.routes: Mapping[str, Route] = {"/": self._page, "/state.json": self._state}
        self.report = report
        self._on_warning = on_warning
        self._about = about
        self._metrics = metrics
        self._processes = processes
        self._history = History()
        self._sampled_at = 0.0
        self._lock = threading.Lock()
        self._made: tuple[float, bytes] = (0.0, b"")
        self._ending: Mapping[str, Any] | None = None

    def look(self) -> None:
        """Add to the history if it is time; the mirror calls this about twice a second."""
        if time.monotonic() - self._sampled_at >= self._history.interval_s:
            self._sample()

    def _sample(self) -> None:
        self._sampled_at = time.monotonic()
        progress = self._metrics.progress()
        processes = [*self._processes(), *self._metrics.workers()]
        sample: dict[str, Any] = {"at_ms": int(self._metrics.clock.wall() * 1000)}
        sample |= {name: getattr(progress, name) for name in _CHARTED}
        for role in ProcessRole:
            of_role = [each for each in processes if each.role is role]
            sample[f"{role.value}_cpu_s"] = sum(each.cpu_s for each in of_role)
            sample[f"{role.value}_rss_bytes"] = sum(each.rss_bytes for each in of_role)
        sample["worker_cpu_s"] = self._metrics.task_cpu_s  # of those that have ended, too
        self._history.add(sample)

    def _page(self) -> Answer:
        return Answer(html(None).encode(), {"Content-Type": "text/html; charset=utf-8"})

    def _state(self) -> Answer:
        with self._lock:
            made_at, body = self._made
            if not body or time.monotonic() - made_at >= _FRESH_S:
                body = json.dumps(self._object()).encode()
                self._made = time.monotonic(), body
        return Answer(body, {"Content-Type": "application/json"})

    def _object(self, ending: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the state of the mirror now, and its last hour, with printable texts."""
        now = self._metrics.clock.wall()
        of_page = {
            **asdict(self._about),
            "version": importlib.metadata.version("shoal"),
            "now_ms": int(now * 1000),
            "ending": ending,
        }
        state = self._metrics.state(self._processes()).to_json_object(now)
        # The history has only numbers.
        return {**state, **printable_values(of_page), "history": self._history.columns()}

    def end(self, summary: Summary) -> None:
        """Set the result of the mirror. Without this call, an error has ended it."""
        self._ending = _ending_of(summary)

    def __enter__(self) -> MirrorPage:
        self._sample()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sample()
        # A mirror that was refused at its start must not replace an older report.
        if self.report is None or self._about.group is None:
            return
        ending = self._ending
        if ending is None or error is not None:  # also one that comes behind the summary
            ending = _ending(f"The mirror failed: {str(error) or type(error).__name__}", good=False)
        try:
            write_result_file("report", self.report, html(self._object(ending)))
        except ShoalError as problem:
            self.report = None
            self._on_warning(str(problem))


def _ending_of(summary: Summary) -> Mapping[str, Any]:
    copied = f"{summary.records:,} records in {summary.batches:,} batches were copied"
    is_good = summary.exit_code == EXIT_DONE and not summary.clusters_down
    cpu_s = summary.python_cpu_s + summary.jvm_cpu_s
    jvm_gc = summary.jvm_gc and asdict(summary.jvm_gc)
    return _ending(f"{copied}. The end: {summary.ended}.", good=is_good, cpu_s=cpu_s, jvm_gc=jvm_gc)


def _ending(sentence: str, *, good: bool, **numbers: Any) -> Mapping[str, Any]:
    """Return the end as the page shows it. Without the CPU time, only the tasks' reports are known."""
    return {"good": good, "sentence": sentence, "cpu_s": None, "jvm_gc": None, **numbers}


_POLICY = (
    "default-src 'none'; style-src '{css}'; script-src '{script}'; img-src data:; connect-src {connect}; "
    "base-uri 'none'; form-action 'none'"
)


def html(state: Mapping[str, Any] | None) -> str:
    """
    Return the page.

    Args:
        state: The object in a report; None for the live page, which polls it.

    """
    css, script = style() + _read("page.css"), _read("page.js")
    connect = "'self'" if state is None else "'none'"
    return Template(_read("page.html")).substitute(
        policy=_POLICY.format(css=_digest(css), script=_digest(script), connect=connect),
        css=css,
        script=script,
        # Nothing in the object can end the HTML element around it.
        state=json.dumps(state).replace("<", "\\u003c"),
    )


def _read(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

"""
The page and the report of one mirror, from its start to its end.

Both show one object: ``/state.json``, and the inside of a report. It has no secrets. Its names are those of
partitions, processes and the consumer group, and its sentences are those that the mirror also prints.
"""

from __future__ import annotations

import importlib.metadata
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import Any, TypeAlias

from ....errors import ShoalError
from ....printable import printable_values
from ....result_file import check_result_file, write_result_file
from ...model.processes import ProcessRole, ProcessUsage
from ...model.progress import Summary
from ..door import Answer, Route
from ..metrics import Metrics
from .history import History, Sample
from .html import html

__all__ = ["About", "MirrorPage", "Processes"]

#: The driver and its JVMs, now.
Processes: TypeAlias = Callable[[], Sequence[ProcessUsage]]

#: The totals in each sample.
_CHARTED = ("bytes_in", "bytes_out", "lag_records", "lag_s")

#: The lifetime of the object, which all clients share.
_FRESH_S = 0.5


@dataclass(frozen=True, slots=True)
class About:
    """
    The identity of a mirror.

    Attributes:
        source: The source's bootstrap servers, as the user wrote them.
        destination: The destination's bootstrap servers, as the user wrote them.
        group: The consumer group with the committed positions; None until it is known.
        warnings: The warnings in the summary.

    """

    source: str
    destination: str
    group: str | None = None
    warnings: tuple[str, ...] = ()


class MirrorPage:
    """
    Samples a mirror while it runs, and writes the report at its end, also after an error.

    Attributes:
        routes: The answers of the page.

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
            about: The identity of the mirror, as far as it is known.
            metrics: The registry of the mirror.
            processes: Returns the usage of the driver and its JVMs.
            on_warning: Called if the report cannot be written at the end.

        Raises:
            ConfigError: The report could not be written.

        """
        if report is not None:
            check_result_file("--report", report)
        self.routes: Mapping[str, Route] = {"/": self._page, "/state.json": self._state}
        self._report = report
        self._on_warning = on_warning
        self._about = about
        self._metrics = metrics
        self._processes = processes
        self._history = History(self._sample)
        self._lock = threading.Lock()
        self._made: tuple[float, bytes] = (0.0, b"")
        self._ending: Mapping[str, Any] | None = None

    def _sample(self) -> Sample:
        progress = self._metrics.progress()
        processes = [*self._processes(), *self._metrics.workers()]
        sample: dict[str, Any] = {"at_ms": int(time.time() * 1000)}
        sample |= {name: getattr(progress, name) for name in _CHARTED}
        for role in ProcessRole:
            of_role = [each for each in processes if each.role is role]
            sample[f"{role.value}_cpu_s"] = sum(each.cpu_s for each in of_role)
            sample[f"{role.value}_rss_bytes"] = sum(each.rss_bytes for each in of_role)
        sample["worker_cpu_s"] = self._metrics.task_cpu_s  # of those that have ended, too
        return sample

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
        now = time.time()
        of_page = {
            **asdict(self._about),
            "version": importlib.metadata.version("shoal"),
            "now_ms": int(now * 1000),
            "ending": ending,
        }
        state = self._metrics.state(self._processes()).to_json_object(now)
        # The history has only numbers.
        return {**state, **printable_values(of_page), "history": self._history.columns()}

    def show_group(self, group: str, warnings: Iterable[str]) -> None:
        """Set the group and the warnings once the mirror is prepared; a later call replaces the warnings."""
        self._about = replace(self._about, group=group, warnings=tuple(warnings))

    def end(self, summary: Summary) -> None:
        """Set the result of the mirror. Without this call, an error has ended it."""
        self._ending = _ending_of(summary)

    def __enter__(self) -> MirrorPage:
        self._history.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._history.__exit__()
        # A mirror that was refused at its start must not replace an older report.
        if self._report is None or self._about.group is None:
            return
        failed = _ending(f"The mirror failed: {str(error) or type(error).__name__}", good=False)
        try:
            write_result_file("report", self._report, html(self._object(self._ending or failed)))
        except ShoalError as problem:
            self._on_warning(str(problem))


def _ending_of(summary: Summary) -> Mapping[str, Any]:
    copied = f"{summary.records:,} records in {summary.batches:,} batches were copied"
    problem = ""
    if summary.stopped:
        problem = f", but {len(summary.stopped):,} of {summary.partitions:,} partitions stopped"
    elif summary.interrupted:
        problem = ". The mirror was interrupted, and the next run continues there"
    elif summary.clusters_down:
        problem = f", but {', and '.join(each.sentence for each in summary.clusters_down.values())}"
    elif summary.incidents:
        problem = ". The mirror continued after incidents"
    cpu_s = summary.python_cpu_s + summary.jvm_cpu_s
    jvm_gc = summary.jvm_gc and asdict(summary.jvm_gc)
    return _ending(f"{copied}{problem}.", good=not problem, cpu_s=cpu_s, jvm_gc=jvm_gc)


def _ending(sentence: str, *, good: bool, **numbers: Any) -> Mapping[str, Any]:
    """Return the end as the page shows it. Without the CPU time, only the tasks' reports are known."""
    return {"good": good, "sentence": sentence, "cpu_s": None, "jvm_gc": None, **numbers}

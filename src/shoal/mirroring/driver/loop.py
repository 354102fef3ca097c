"""The driver's loop: it reports progress, passes an end on to tasks, and tries stopped partitions again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from ...errors import ShoalError
from ...timing import DEFAULT_TIMING, Timing
from ...topic_partition import TopicPartition
from ..control import ControlServer
from ..model.progress import Phase, Progress
from ..model.reports import left_out_report
from ..model.text import first_few
from ..monitoring.metrics import Metrics
from .cluster_watch import ClusterWatch
from .retrying import StoppedRetries
from .schedule import PartitionSchedule
from .signals import Signals

__all__ = ["AtWork", "DriverLoop", "GroupPlace"]

_PROGRESS_INTERVAL_S = 0.5

#: Interval at which a stop is passed on.
_LOOK_INTERVAL_S = 0.1


class GroupPlace(Protocol):
    """A mirror's place in its group."""

    @property
    def failure(self) -> ShoalError | None:
        """The error that ends the mirror; None as long as it holds its place."""


@dataclass(frozen=True, slots=True)
class AtWork:
    """
    A mirror whose tasks may begin.

    Attributes:
        control: The connection to the tasks.
        work: The partitions to copy.
        retries: The stopped partitions to try again; None if the mirror never does.
        ends_when_stopped: Whether the first partition that is stopped ends the mirror.
        clusters: Looks whether both clusters answer; None if nothing does.

    """

    control: ControlServer
    place: GroupPlace
    work: PartitionSchedule
    retries: StoppedRetries | None
    ends_when_stopped: bool
    clusters: ClusterWatch | None = None


class DriverLoop:
    """
    A thread from the beginning of a mirror to its end.

    Attributes:
        ended_by_stopped: Whether the loop ended the mirror because a partition was stopped.

    """

    def __init__(
        self,
        stop: threading.Event,
        signals: Signals,
        metrics: Metrics,
        on_progress: Callable[[Progress], object] | None,
        on_notice: Callable[[str], object],
        on_warning: Callable[[str], object],
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        """
        Prepare the thread.

        Args:
            stop: An event that ends the mirror; the loop sets it too, if the mirror has to end.
            signals: The signal that set the event.
            metrics: The counts to report.
            on_progress: Called about twice a second.
            on_notice: Called with a sentence when the mirror begins to stop, or tries partitions again.
            on_warning: Called with a sentence if no task reports.

        """
        self._stop = stop
        self._signals = signals
        self._metrics = metrics
        self._on_progress = on_progress
        self._on_notice = on_notice
        self._on_warning = on_warning
        self._timing = timing
        self._at_work: AtWork | None = None
        self._silence: _Silence | None = None
        self.ended_by_stopped = False
        self._is_stopping = False
        self._failed: Exception | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shoal-progress", daemon=True)

    def begin_work(self, at_work: AtWork) -> None:
        """Look after tasks as well, from now on."""
        self._silence = _Silence(at_work.control, self._metrics, self._on_warning, self._timing)
        self._at_work = at_work

    def _run(self) -> None:
        reported_at = time.monotonic()
        while not self._over.wait(_LOOK_INTERVAL_S):
            self._pass_on_stop()
            now = time.monotonic()
            if now - reported_at < _PROGRESS_INTERVAL_S:
                continue
            reported_at = now
            if self._at_work is not None:
                self._look_after(self._at_work)
                if self._at_work.clusters is not None:
                    self._at_work.clusters.look()
            if self._silence is not None and not self._is_stopping:
                self._silence.look()
            self._report()

    def _pass_on_stop(self) -> None:
        if not self._stop.is_set():
            return
        if not self._is_stopping:
            self._is_stopping = True
            self._on_notice(self._stopping())
            self._metrics.enter(Phase.STOPPING)
            self._report()
        if self._at_work is not None and not self._at_work.control.stop_requested:
            self._at_work.control.request_stop()

    def _stopping(self) -> str:
        """Answer a signal at once: requests in flight may take seconds."""
        if self._signals.received is not None:
            cause = f" on {self._signals.received}"
        else:
            cause = " because a partition is stopped" if self.ended_by_stopped else ""
        match self._metrics.phase:
            case Phase.CHECKING | Phase.CREATING | Phase.FINDING_POSITIONS | Phase.STARTING_SPARK:
                doing = "nothing was copied"
            case Phase.STARTING_TASKS:
                doing = "nothing was copied, but Spark has to start before it can end"
            case _:
                doing = "finishing and committing the batches in flight"
        return f"stopping{cause}: {doing}"

    def _look_after(self, at_work: AtWork) -> None:
        at_work.control.look()
        if at_work.place.failure is not None:
            self._stop.set()  # no task may go on; the mirror gives the reason when it has ended
        elif at_work.ends_when_stopped and not self._stop.is_set() and self._metrics.stopped():
            self.ended_by_stopped = True
            self._stop.set()
        if at_work.retries is not None and not self._stop.is_set():
            due = at_work.retries.take_due()
            if due:
                self._on_notice(f"trying {first_few(sorted(due))} again")
                at_work.work.try_again(due)
                at_work.control.recall(due)

    def _report(self) -> None:
        if self._on_progress is None:
            return
        try:
            self._on_progress(self._metrics.progress())
        except Exception as error:
            # The caller's own: the mirror ends in good order, and then raises it.
            self._on_progress = None
            self._failed = error
            self._stop.set()

    def __enter__(self) -> DriverLoop:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if error is None and self._failed is not None:
            raise self._failed


class _Silence:
    """Warns if no task reports: a mirror that copies nothing must not look as if all were well."""

    def __init__(
        self,
        control: ControlServer,
        metrics: Metrics,
        on_warning: Callable[[str], object],
        timing: Timing,
    ) -> None:
        self._patience_s = timing.silence_s
        self._control = control
        self._metrics = metrics
        self._on_warning = on_warning
        self._since = time.monotonic()
        self._is_silent = False

    def look(self) -> None:
        """Warn once if there is silence, and count the partitions as waiting until a task reports again."""
        partitions = [name for name, each in self._metrics.partitions().items() if each.stopped is None]
        silent_for_s = time.monotonic() - max(self._since, self._control.last_report_at)
        was_silent, self._is_silent = self._is_silent, silent_for_s >= self._patience_s and bool(partitions)
        if self._is_silent and not was_silent:
            self._begin(partitions)
        elif was_silent and not self._is_silent:
            self._control.ask_for_reports()

    def _begin(self, partitions: Sequence[TopicPartition]) -> None:
        self._on_warning(
            f"no task has reported for {self._patience_s:.0f} s, so nothing is copied. See Spark's log for "
            "executors that do not start, and check that tasks reach the driver's control port "
            f"{self._control.address[1]}"
        )
        self._metrics.apply(left_out_report(dict.fromkeys(partitions, "a task")))

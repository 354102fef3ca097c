"""The thread that reports a mirror's progress, answers a stop, and looks after the tasks."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from ..model.progress import Phase, Progress
from ..monitoring.metrics import Metrics
from .signals import Signals

__all__ = ["LOOK_INTERVAL_S", "Looking"]

#: Interval at which a stop is passed on, and at which the wait for the engine looks for one.
LOOK_INTERVAL_S = 0.1

_PROGRESS_INTERVAL_S = 0.5


class Looking:
    """
    Looks at a mirror in a thread of its own, from the beginning of its run to the end.

    Attributes:
        look_after: Looks after tasks, while they may run.
        end_tasks: Asks them to end.
        ended_by_stopped: Whether the mirror stops because a partition is stopped.

    """

    def __init__(
        self,
        metrics: Metrics,
        signals: Signals,
        stop: threading.Event,
        notify: Callable[[str], object],
        on_progress: Callable[[Progress], object] | None,
    ) -> None:
        """
        Prepare; nothing begins.

        Args:
            metrics: The counts, and the phase.
            signals: The signals that may have set `stop`.
            stop: An event that ends the mirror once it is set.
            notify: A function for the answer to a stop, in any thread.
            on_progress: A function that receives the progress about twice a second.

        """
        self.look_after: Callable[[], object] = lambda: None
        self.end_tasks: Callable[[], object] = lambda: None
        self.ended_by_stopped = False
        self._metrics = metrics
        self._signals = signals
        self._stop = stop
        self._notify = notify
        self._on_progress = on_progress
        self._failed: Exception | None = None
        self._over = threading.Event()
        self._is_stopping = False
        self._answering = threading.Lock()

    @contextlib.contextmanager
    def until_the_end(self) -> Iterator[None]:
        """Look until the block ends. An error of `on_progress` ends the mirror, and is raised behind it."""
        thread = threading.Thread(target=self._keep_looking, name="shoal-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.answer_stop()
            self._over.set()
            thread.join()
        if self._failed is not None:
            raise self._failed

    def _keep_looking(self) -> None:
        reported_at, has_told, is_over = time.monotonic(), False, False
        while not is_over:
            is_over = self._over.wait(LOOK_INTERVAL_S)
            self.answer_stop()
            now = time.monotonic()
            if self._is_stopping and not has_told:
                has_told = True
                self._report()
            elif not is_over and now - reported_at >= _PROGRESS_INTERVAL_S:
                reported_at = now
                self.look_after()
                self._report()

    def answer_stop(self) -> None:
        """Answer a stop once: in the thread that looks, or in the run, if that ends before a look."""
        with self._answering:
            if self._stop.is_set() and not self._is_stopping:
                self._is_stopping = True
                self._notify(self._stopping())
                self._metrics.enter(Phase.STOPPING)
                self.end_tasks()

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

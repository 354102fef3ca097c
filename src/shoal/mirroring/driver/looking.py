"""
Look after a running mirror: report its progress, answer a stop, notice clusters and tasks that are silent.

One thread looks about twice a second (:class:`Looking`), also whether both clusters answer and tasks report:
a mirror must not look as if all were well.

Both clusters are asked all the time, also if there is nothing to copy. A thread for each cluster asks any
broker for the cluster's metadata, without topics: that needs no ACL. The thread has connections of its own,
and a cluster that hangs does not delay the question to the other one. A cluster answers if one broker does.
Partitions without a leader have reasons of their own.

Silence is a matter of time, not of an error: a cluster is silent if its last answer is older than the
mirror's ``refresh_s``. So no partition is reported as up to date on an older answer, whatever the thread
waits for.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Self

from ...client.cluster import Cluster
from ...client.config import ClientConfig
from ...errors import Disconnected
from ..model.progress import ClusterSilence, Phase, Progress
from ..monitoring.metrics import Metrics
from .schedule import Running
from .signals import Signals

__all__ = ["LOOK_INTERVAL_S", "ClusterWatch", "Looking", "TaskWatch"]

#: Interval at which a stop is passed on, and at which the wait for the engine looks for one.
LOOK_INTERVAL_S = 0.1

_PROGRESS_INTERVAL_S = 0.5


class Looking:
    """
    Looks at a mirror in a thread of its own, from the beginning of its run to the end.

    Without these looks a mirror would run on after the loss of its group. So an error of a look, or of a
    caller's function, ends the mirror in good order, and is raised behind it.

    Attributes:
        show: Shows the mirror on its page.
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
        self.show: Callable[[], object] = lambda: None
        self.look_after: Callable[[], object] = lambda: None
        self.end_tasks: Callable[[], object] = lambda: None
        self.ended_by_stopped = False
        self._metrics = metrics
        self._signals = signals
        self._stop = stop
        self._notify = self.guarded(notify)
        self._on_progress = on_progress
        self._failed: Exception | None = None
        self._over = threading.Event()
        self._is_stopping = False
        self._answering = threading.Lock()

    @contextlib.contextmanager
    def until_the_end(self) -> Iterator[None]:
        """Look until the block ends; raise the error that ended the mirror, if one did."""
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

    def guarded(self, tell: Callable[[str], object]) -> Callable[[str], None]:
        """Return a function that reports a sentence; an error of it ends the mirror instead of its thread."""

        def told(sentence: str) -> None:
            try:
                tell(sentence)
            except Exception as error:
                self._fail(error)

        return told

    def _fail(self, error: Exception) -> None:
        self._failed = self._failed or error
        self._stop.set()

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
                self._look()
                self._report()

    def _look(self) -> None:
        try:
            self.look_after()
            self.show()
        except Exception as error:
            self._fail(error)

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
            self._on_progress = None
            self._fail(error)


#: The bounds of the time without an answer. A busy broker may take seconds, and an operator has to know
#: within a minute, however rarely the mirror looks for new topics.
_LEAST_PATIENCE_S, _MOST_PATIENCE_S = 5.0, 60.0

#: So often a cluster is asked within that time, and each question has half of it.
_QUESTIONS = 3

#: The time between two questions to a cluster that refuses connections.
_RETRY_S = 1.0

#: If so much time has passed since the look before, this process was stopped, and not the clusters.
_PAUSED_S = 3.0


class ClusterWatch:
    """Watches both clusters until the ``with`` block ends; :meth:`look` is called about twice a second."""

    def __init__(self, mirror: Running) -> None:
        """Prepare the threads."""
        options = mirror.options
        self._patience_s = min(max(options.refresh_s, _LEAST_PATIENCE_S), _MOST_PATIENCE_S)
        self._mirror = mirror
        self._questions = [
            _Questions(each, self._patience_s) for each in (options.source, options.destination)
        ]
        self._looked_at = time.monotonic()
        #: No silence begins earlier: the threads had no time to ask.
        self._asked_by = 0.0
        self._is_over = False

    def look(self) -> None:
        """Report the clusters that answer, and those that do not."""
        if self._is_over:
            return
        now = time.monotonic()
        if now - self._looked_at >= _PAUSED_S:
            self._asked_by = now + self._patience_s / 2
        self._looked_at = now
        for each in self._questions:
            silence, silent_for_s = each.silence, now - each.answered_at
            if silent_for_s < self._patience_s:
                each.silence = None
                if silence is not None:
                    lasted_s = time.time() - silence.since
                    self._mirror.notify(f"the {each.name} cluster answers again, after {lasted_s:.0f} s")
            elif silence is None and now >= self._asked_by:
                each.silence = silence = ClusterSilence(each.name, time.time() - silent_for_s, each.reason)
                self._mirror.warn(
                    f"{silence.sentence}: {silence.reason}. All partitions wait until it answers"
                )
        self._mirror.metrics.set_clusters({each.name: each.silence for each in self._questions})

    def __enter__(self) -> Self:
        self._looked_at = time.monotonic()
        for each in self._questions:
            each.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_over = True
        for each in self._questions:
            each.end()


class _Questions:
    """
    The questions to one cluster, in a thread.

    Attributes:
        answered_at: The time of the last answer, on the monotonic clock; of the start before the first.
        reason: Why the last question has no answer.
        silence: That of the cluster. At the start both have answered, or there would be no mirror yet.

    """

    def __init__(self, config: ClientConfig, patience_s: float) -> None:
        self.name = config.name
        self.answered_at = time.monotonic()
        self.silence: ClusterSilence | None = None
        self._timeout_s = patience_s / 2
        self._interval_s = patience_s / _QUESTIONS
        self.reason = self._no_answer = f"no broker has answered for {patience_s:.0f} s"
        timeout_ms = min(config.request_timeout_ms, int(self._timeout_s * 1000))
        self._cluster = Cluster(replace(config, request_timeout_ms=timeout_ms))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"shoal-watch-{self.name}", daemon=True)

    def start(self) -> None:
        self.answered_at = time.monotonic()
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._cluster.abort()
        # The thread may be waiting for a broker. It holds only its own connections.
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        with self._cluster as cluster:
            while not self._over.is_set():
                self._over.wait(self._interval_s if self._ask(cluster) else _RETRY_S)

    def _ask(self, cluster: Cluster) -> bool:
        try:
            cluster.refresh([])
        except Exception as error:  # a mirror runs for months
            self.reason = error.reason if isinstance(error, Disconnected) else str(error)
            return False
        self.answered_at = time.monotonic()
        self.reason = self._no_answer
        return True


class TaskWatch:
    """Warns if no task reports: a mirror that copies nothing must not look as if all were well."""

    def __init__(self, mirror: Running) -> None:
        """Begin to wait for a report."""
        self._patience_s = mirror.options.timing.silence_s
        self._mirror = mirror
        self._since = time.monotonic()
        self._is_silent = False

    def look(self) -> None:
        """Warn once if there is silence, and have the partitions wait until a task reports again."""
        metrics = self._mirror.metrics
        silent_for_s = time.monotonic() - max(self._since, self._mirror.control.last_report_at)
        is_silent = silent_for_s >= self._patience_s and metrics.has_work
        was_silent, self._is_silent = self._is_silent, is_silent
        metrics.set_tasks_silent(is_silent)
        if self._is_silent and not was_silent:
            self._mirror.warn(
                f"no task has reported for {self._patience_s:.0f} s, so nothing is copied. See Spark's log "
                "for executors that do not start, and check that tasks reach the driver's control port "
                f"{self._mirror.control.address[1]}"
            )

"""
Steers a running mirror: what is paused, limited and first, by options, files, latencies and commands.

A thread looks at all of that twice a second, and at once after a command. It gives the result to the
control server, which passes it on to the tasks. While there are limits, it also grants the tasks' workers
their bytes, twenty times a second. Commands of an operator (``steering_commands.py``) call the methods, from
any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from ...errors import OptionError, ShoalError
from ..control import ControlServer
from ..model.options import MirrorOptions
from ..model.steering import MirrorSteering, TopicsRate
from ..model.steering_options import SetSteering
from ..model.steering_status import SteeringStatus
from ..model.text import once_each
from ..monitoring.metrics import Metrics
from .latency import LatencyProbe
from .priorities import Priorities
from .schedule import PartitionSchedule
from .steering_file import SteeringFile
from .topic_expressions import topics_of

__all__ = ["Steering"]

_GRANT_INTERVAL_S = 0.05
_LOOK_INTERVAL_S = 0.5

#: A mirror that backs off continues once the latency is below this part of the bound: it is part of the load.
_CALM = 0.8


class Steering:
    """The steering of one mirror, from the first task to the end of the ``with`` block."""

    def __init__(
        self,
        options: MirrorOptions,
        directory: Path,
        control: ControlServer,
        schedule: PartitionSchedule,
        metrics: Metrics,
        warn: Callable[[str], object],
        notify: Callable[[str], object],
    ) -> None:
        """
        Read what was set, and steer the first tasks by it.

        Args:
            directory: The mirror's directory, which keeps what an operator sets.

        Raises:
            ConfigError: The file there cannot be read.
            OptionError: An expression cannot be matched in time.

        """
        self._options = options.steering
        self._file = SteeringFile(directory)
        self._control = control
        self._schedule = schedule
        self._metrics = metrics
        self._warn = once_each(warn)
        self._notify = notify
        self._priorities = Priorities()
        self._probes = self.make_probes(options)
        self._lock = threading.Lock()  # held during a command, and during a look
        self._set = self._file.read()
        self._commits = 0
        self._selected: Mapping[str, frozenset[str]] = {}
        self._selected_of: tuple[object, ...] = ()
        self._steering = MirrorSteering()
        self._is_slow = False
        self._over = threading.Event()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shoal-steering", daemon=True)
        self._select("steering")
        self._look()
        if self._metrics.steering is not None and (known := self._metrics.steering.sentences):
            kept = ", as set on the control socket" if self._set != SetSteering() else ""
            self._notify(f"steering{kept}: {', '.join(known)}")

    def make_probes(self, options: MirrorOptions) -> list[LatencyProbe]:
        """Return a probe of each cluster's latency, if the mirror has to be nice."""
        if self._options.nice is None:
            return []
        return [
            LatencyProbe(options.source, lambda: list(self._schedule.copies()), options.timing),
            LatencyProbe(options.destination, lambda: list(self._schedule.copies().values()), options.timing),
        ]

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for probe in self._probes:
                started.enter_context(probe)
            self._started = started.pop_all()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._hurry.set()
        self._thread.join(timeout=5.0)  # it may wait for a child process
        self._started.close()

    def _run(self) -> None:
        looked_at = time.monotonic()
        while not self._over.is_set():
            has_limits = self._control.grant()
            self._hurry.wait(_GRANT_INTERVAL_S if has_limits else _LOOK_INTERVAL_S)
            if self._hurry.is_set() or time.monotonic() - looked_at >= _LOOK_INTERVAL_S:
                self._hurry.clear()
                looked_at = time.monotonic()
                # A command under way looks itself, and grants must not wait for it.
                if self._lock.acquire(blocking=False):
                    try:
                        self._select("steering")
                        self._look()
                    except Exception as error:
                        # A mirror runs for months: a look that fails changes nothing.
                        self._warn(f"the steering of the mirror stays as it is: {error}")
                    finally:
                        self._lock.release()

    # A look

    def _select(self, option: str) -> None:
        """Find the topics that all expressions select, if an expression or a topic is new."""
        limits = self._set.limits_over(self._options)[1]
        priority = self._set.priority_over(self._options)
        expressions = (*self._set.paused, *(each for each, _ in limits), *priority)
        if not expressions:
            self._selected, self._selected_of = {}, ()
            return
        topics = self._schedule.names.keys()
        key = (expressions, frozenset(topics))
        if key != self._selected_of:
            self._selected, self._selected_of = topics_of(option, expressions, topics), key

    def _look(self) -> None:
        """Steer the tasks by everything that is known now."""
        limit, topic_limits = self._set.limits_over(self._options)
        priority = self._set.priority_over(self._options)
        paused = frozenset[str]().union(*(self._selected[each] for each in self._set.paused))
        later = frozenset[str]()
        if priority:
            ranks = [self._selected[each] for each in priority]
            later = self._priorities.later(ranks, self._metrics.partitions(), paused, time.time())
        throttled_by = self._throttled_by()
        rates: dict[str, TopicsRate] = {}
        taken = frozenset[str]()
        for expression, bytes_per_s in topic_limits:
            rates[expression] = TopicsRate(bytes_per_s, self._selected[expression] - taken)
            taken |= self._selected[expression]
        steering = MirrorSteering(bool(throttled_by), paused | later, limit, rates, self._commits)
        if steering != self._steering:
            self._control.steer(steering)
            self._steering = steering
        self._metrics.steering = SteeringStatus(
            paused,
            self._set.paused,
            later,
            limit,
            dict(topic_limits),
            priority,
            throttled_by,
            self._latencies_ms(),
            self._set != SetSteering(),
            self._control.is_steered,
        )

    def _throttled_by(self) -> tuple[str, ...]:
        found: list[str] = []
        flag = self._options.throttle_flag_file
        with suppress(OSError):  # there is none, or it cannot be looked at
            if flag is not None and Path(flag).stat():
                found += [f"the file {flag} exists"]
        bound = self._options.nice
        if bound is not None:
            bound *= _CALM if self._is_slow else 1.0
            slow = [each for each in self._probes if (each.seconds or 0.0) > bound]
            self._is_slow = bool(slow)
            found += [
                f"the {each.name} cluster answers in {(each.seconds or 0) * 1000:.0f} ms" for each in slow
            ]
        return tuple(found)

    def _latencies_ms(self) -> dict[str, float | None]:
        return {
            each.name: None if each.seconds is None else round(each.seconds * 1000, 1)
            for each in self._probes
        }

    # Commands, from any thread

    @property
    def status(self) -> SteeringStatus:
        """The steering as of the last look, or of the last command."""
        return self._metrics.steering or SteeringStatus()

    def pause(self, expression: str) -> frozenset[str]:
        """Pause topics, also those that are found later; return those that it selects now."""
        self._change("pause", lambda setting: setting.pausing(expression))
        return self._selected[expression]

    def resume(self, expression: str | None) -> tuple[str, ...]:
        """
        Resume what one command paused, or all; return the expressions that are no longer paused.

        Raises:
            OptionError: No command paused this expression.

        """
        resumed: list[str] = []

        def change(setting: SetSteering) -> SetSteering:
            resumed[:] = [each for each in setting.paused if expression in (None, each)]
            if expression is not None and not resumed:
                raise OptionError(
                    "{option}: '{value}' is not paused. Paused are: {paused}",
                    option="resume",
                    value=expression,
                    paused=", ".join(setting.paused) or "no topics",
                )
            return replace(setting, paused=tuple(each for each in setting.paused if each not in resumed))

        self._change("resume", change)
        return tuple(resumed)

    def limit(self, bytes_per_s: int, expression: str | None) -> frozenset[str] | None:
        """Limit the mirror, or the topics of an expression; return those that it selects now."""

        def change(setting: SetSteering) -> SetSteering:
            whole, topics = setting.limits_over(self._options)
            if expression is None:
                return replace(setting, limits=(bytes_per_s, topics))
            # The newest comes first: it counts for topics that another one selects, too.
            others = tuple(each for each in topics if each[0] != expression)
            return replace(setting, limits=(whole, ((expression, bytes_per_s), *others)))

        self._change("limit", change)
        return None if expression is None else self._selected[expression]

    def unlimit(self, expression: str | None) -> None:
        """
        End the limit of an expression, or all limits.

        Raises:
            OptionError: There is no such limit.

        """

        def change(setting: SetSteering) -> SetSteering:
            whole, topics = setting.limits_over(self._options)
            if expression is None:
                return replace(setting, limits=(None, ()))
            others = tuple(each for each in topics if each[0] != expression)
            if others == topics:
                raise OptionError(
                    "{option}: '{value}' has no limit. Limited are: {limited}",
                    option="unlimit",
                    value=expression,
                    limited=", ".join(each for each, _ in topics) or "no topics",
                )
            return replace(setting, limits=(whole, others))

        self._change("unlimit", change)

    def prioritize(self, expressions: tuple[str, ...]) -> None:
        """Let these topics catch up first, the most important first; none for no priority."""
        self._change("priority", lambda setting: replace(setting, priority=expressions))

    def reset(self) -> None:
        """Forget what was set: the options hold again."""
        self._change("reset", lambda _: SetSteering())

    def commit(self) -> None:
        """Let all tasks commit their positions now."""
        with self._lock:
            self._commits += 1
            self._look()

    def _change(self, command: str, change: Callable[[SetSteering], SetSteering]) -> None:
        """Change what is set, keep it, and steer by it; after an error everything is as before."""
        with self._lock:
            before, selected, selected_of = self._set, self._selected, self._selected_of
            self._set = change(before)
            try:
                self._select(command)
                self._file.write(self._set)
            except (ShoalError, OSError) as error:
                self._set, self._selected, self._selected_of = before, selected, selected_of
                if isinstance(error, OSError):
                    raise OptionError(
                        "{option}: the file {file}, which keeps it over a restart, cannot be written: "
                        "{error}. Nothing was changed",
                        option=command,
                        file=self._file.path,
                        error=error.strerror or str(error),
                    ) from error
                raise
            self._look()
        self._hurry.set()

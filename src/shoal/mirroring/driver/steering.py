"""
Steers a running mirror: the topics that are paused, and the limit, by options and commands.

The control server passes it on to the tasks. Commands of an operator (``commands.py``) call the methods, from
any thread, and the mirror calls :meth:`Steering.look` for new topics.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from ...errors import ConfigError
from ..control import ControlServer
from ..model.steering_options import SteeringOptions
from ..model.steering_status import SteeringStatus
from ..model.text import once_each
from ..monitoring.metrics import Metrics
from .schedule import PartitionSchedule
from .topic_expressions import topics_of

__all__ = ["Steering"]


class Steering:
    """The steering of one mirror."""

    def __init__(
        self,
        options: SteeringOptions,
        control: ControlServer,
        schedule: PartitionSchedule,
        metrics: Metrics,
        warn: Callable[[str], object],
        notify: Callable[[str], object],
    ) -> None:
        """
        Steer the first tasks by the options.

        Raises:
            ConfigError: An expression cannot be matched in time.

        """
        self._control = control
        self._schedule = schedule
        self._metrics = metrics
        self._warn = once_each(warn)
        self._lock = threading.Lock()  # held during a command, and a look
        self._limit = options.limit
        self._paused: Mapping[str, frozenset[str]] = {}
        self._paused_of: frozenset[str] = frozenset()
        self._passed_on: tuple[frozenset[str], int | None] = frozenset(), None
        self._select("pause", options.pause)
        self._pass_on()
        if known := self.status.sentences:
            notify(f"steering: {', '.join(known)}")

    def look(self) -> None:
        """Pause new topics that an expression selects."""
        with self._lock:
            try:
                self._select("pause", tuple(self._paused))
            except ConfigError as error:
                # A mirror runs for months: a look that fails changes nothing.
                self._warn(f"the steering of the mirror stays as it is: {error}")
            self._pass_on()

    def _select(self, option: str, expressions: tuple[str, ...]) -> None:
        """Pause the topics that expressions select; match only if an expression or a topic is new."""
        topics = frozenset(self._schedule.names)
        if tuple(self._paused) != expressions or (expressions and topics != self._paused_of):
            self._paused = topics_of(option, expressions, topics)
            self._paused_of = topics

    def _pass_on(self) -> None:
        """Steer the tasks."""
        paused = frozenset[str]().union(*self._paused.values())
        steering = paused, self._limit
        if steering != self._passed_on:
            self._control.steer(*steering)
            self._passed_on = steering
        self._metrics.steering = SteeringStatus(paused, tuple(self._paused), self._limit)

    # Commands, from any thread

    @property
    def status(self) -> SteeringStatus:
        """The steering as of the last look, or of the last command."""
        return self._metrics.steering or SteeringStatus()

    def pause(self, expression: str) -> frozenset[str]:
        """
        Pause topics, also those that are found later; return those that it selects now.

        Raises:
            ConfigError: The expression cannot be matched in time. Nothing has changed.

        """
        with self._lock:
            others = (each for each in self._paused if each != expression)
            self._select("pause", (*others, expression))
            selected = self._paused[expression]
            self._pass_on()
        return selected

    def resume(self, expression: str | None) -> tuple[str, ...]:
        """
        End one pause, or all; return the expressions that are no longer paused.

        Raises:
            ConfigError: This expression is not paused.

        """
        with self._lock:
            resumed = tuple(each for each in self._paused if expression in (None, each))
            if expression is not None and not resumed:
                paused = ", ".join(self._paused) or "no topics"
                raise ConfigError(f"resume: '{expression}' is not paused. Paused are: {paused}")
            self._paused = {each: topics for each, topics in self._paused.items() if each not in resumed}
            self._pass_on()
        return resumed

    def limit(self, bytes_per_s: int | None) -> None:
        """Limit the mirror; None ends its limit."""
        with self._lock:
            self._limit = bytes_per_s
            self._pass_on()

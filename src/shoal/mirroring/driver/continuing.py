"""
Let stopped partitions of a running mirror continue after the incident that stands now (``shoal control``).

The option ``--continue-after`` holds for all topics and all later incidents. This is for one topic, and
once: the partition is handed to the next task with the kind that an operator accepts. As soon as it is
aligned again, or has stopped again, nothing is accepted any more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ...errors import ConfigError, ShoalError
from ...topic_partition import TopicPartition
from ..control import ControlServer
from ..model.incidents import POLICIES, IncidentKind
from ..model.text import first_few
from ..monitoring.metrics import Metrics
from ..monitoring.partition_metrics import PartitionMetrics
from .schedule import PartitionSchedule

__all__ = ["Continuing"]

_KINDS = {each.value: each for each in POLICIES}

_Stopped = Mapping[TopicPartition, PartitionMetrics]


class Continuing:
    """Carries out ``continue``, in any thread."""

    def __init__(
        self,
        schedule: PartitionSchedule,
        metrics: Metrics,
        control: ControlServer,
        create_lost: Callable[[str], object],
    ) -> None:
        """
        Prepare.

        Args:
            schedule: The partitions to copy.
            metrics: The stopped ones, with their incidents.
            control: Gives the partitions to tasks again.
            create_lost: Creates the copy of a source topic if it is gone.

        """
        self._schedule = schedule
        self._metrics = metrics
        self._control = control
        self._create_lost = create_lost

    def continue_after(self, name: str, kind_name: str) -> str:
        """
        Try stopped partitions again, and let them continue after an incident of a kind, once.

        Args:
            name: A source topic, or one partition of it, as ``orders`` or ``orders-3``.
            kind_name: The kind of the incident.

        Returns:
            A sentence about the partitions.

        Raises:
            ConfigError: The kind or the partition is unknown, or no such incident stops it.
            ConfigError: The deleted copy cannot be created again.

        """
        kind = _KINDS.get(kind_name)
        if kind is None:
            kinds = ", ".join(_KINDS)
            raise ConfigError(f"continue: {kind_name!r} is not one of {kinds}")
        stopped = self._stopped(name, kind)
        if kind is IncidentKind.DESTINATION_LOSS:
            topic = next(iter(stopped)).topic
            try:
                self._create_lost(topic)
            except ShoalError as error:
                raise ConfigError(
                    f"continue: the copy of {topic} cannot be created again: {error}"
                ) from error
        self._schedule.accept(stopped, kind)
        self._control.recall(stopped)
        return f"{first_few(sorted(stopped))} may continue after {kind.value}, this once"

    def _stopped(self, name: str, kind: IncidentKind) -> _Stopped:
        """Return the partitions of this name that an incident of the kind stops, and that may continue."""
        named = self._named(name)
        stopped = {each: metrics for each, metrics in named.items() if metrics.stopped is not None}
        if not stopped:
            raise ConfigError(f"continue: {name!r} is not stopped")
        found = {each: metrics for each, metrics in stopped.items() if metrics.stopped_by is kind}
        if not found:
            raise ConfigError(
                f"continue: {name!r} is not stopped by {kind.value}, but by {_causes(stopped)}. No "
                "partition continues"
            )
        waiting = {each: metrics for each, metrics in found.items() if not metrics.is_tried_again}
        if not waiting:
            raise ConfigError(
                f"continue: {name!r} is tried again already. Wait until it has continued or stopped"
            )
        return waiting

    def _named(self, name: str) -> _Stopped:
        known = self._metrics.partitions()
        if of_topic := {each: metrics for each, metrics in known.items() if each.topic == name}:
            return of_topic
        number = re.fullmatch(r"(.+)-(\d{1,9})", name)
        partition = TopicPartition(number[1], int(number[2])) if number else None
        if partition is None or partition not in known:
            raise ConfigError(f"continue: the mirror has no topic and no partition {name!r}")
        return {partition: known[partition]}


def _causes(stopped: _Stopped) -> str:
    """Return the kinds that stop partitions, or the reason of one that no incident stops."""
    kinds = {each.stopped_by.value for each in stopped.values() if each.stopped_by is not None}
    if kinds:
        return ", ".join(sorted(kinds))
    reason = next(each.stopped.reason for each in stopped.values() if each.stopped is not None)
    return f"no incident: {reason}"

"""A task without a mirror's driver."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from types import MappingProxyType

from shoal.client.coordinator import MemberId
from shoal.client.lot import Gate, open_gate
from shoal.mirroring.control.allowance import Allowance
from shoal.mirroring.model.handover import Assigned
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.model.steering import UNSTEERED
from shoal.topic_partition import TopicPartition

__all__ = ["Uncontrolled"]

_log = logging.getLogger("shoal.control")


class Uncontrolled:
    """
    The control of a task without a mirror's driver: it runs to its end and is no group's member.

    So nothing refuses a late commit: a new generation is only one for the task.
    """

    stop_requested = False
    mirror_ends = False
    assignment: Mapping[TopicPartition, Assigned] = MappingProxyType({})
    term = 0
    interruptions = 0
    generation = 0
    steering = UNSTEERED
    #: No task needs it, since nothing is limited.
    allowance = Allowance()

    def check_lease(self) -> None:
        """Allow everything: without a driver there is no lease."""

    def open_gate(self) -> Gate:
        """Return a gate that stays open."""
        return open_gate()

    def close_gate(self, gate: Gate) -> None:
        """Do nothing."""

    def membership(self) -> MemberId:
        """Return a member outside of the group's protocol."""
        return MemberId()

    def begin_generation(self) -> None:
        """Begin one for this task alone."""
        self.interruptions += 1
        self.generation += 1

    def report(self, report: TaskReport) -> None:
        """Write incidents to the task's log, since there is no driver."""
        for each in report.partitions:
            for incident in each.counters.incidents:
                if incident.continued:
                    kind, lost, reason = incident.kind.value, incident.lost, incident.reason
                    _log.warning("%s continued after %s (lost: %s): %s", each.partition, kind, lost, reason)

    def wait(self, seconds: float) -> None:
        """Wait the whole time."""
        time.sleep(seconds)

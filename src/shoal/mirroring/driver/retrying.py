"""Try stopped partitions again: at intervals if the reason can heal, or at once on request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ...errors import PartitionStopped
from ...topic_partition import TopicPartition
from ..monitoring.metrics import Metrics

__all__ = ["StoppedRetries"]


@dataclass(slots=True)
class _PartitionStop:
    """
    One stop of one partition.

    Attributes:
        reason: The very object that was reported: the next stop, of the same reason too, is another one.
        at: When it was seen first, on the monotonic clock.
        is_tried: Whether the partition was tried again since.

    """

    reason: PartitionStopped
    at: float
    is_tried: bool = False


class StoppedRetries:
    """
    Chooses the stopped partitions to try again now.

    A reason may heal (:attr:`PartitionStopped.can_heal`): a missing ACL, a record that the destination's
    configuration refuses, a damaged batch. After an incident (foreign records, a loss, a reset) only a policy
    lets the partition continue. Such a partition is tried again only if an operator requests it.
    """

    def __init__(
        self, metrics: Metrics, interval_s: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """
        Begin without stopped partitions.

        Args:
            metrics: The counts, with the stopped partitions.
            interval_s: The time between two attempts of one partition.

        """
        self._metrics = metrics
        self._interval_s = interval_s
        self._now = now
        self._stops: dict[TopicPartition, _PartitionStop] = {}
        self._requested = threading.Event()

    def request(self) -> None:
        """Have all stopped partitions tried again; from any thread, or a signal handler."""
        self._requested.set()

    def take_due(self) -> list[TopicPartition]:
        """Return the partitions to try again now, each once for each time that it stopped."""
        now = self._now()
        requested = self._requested.is_set()
        self._requested.clear()
        stops = {TopicPartition(each.topic, each.partition): each for each in self._metrics.stopped()}
        self._stops = {
            partition: known
            if (known := self._stops.get(partition)) and known.reason is reason
            else _PartitionStop(reason, now)
            for partition, reason in stops.items()
        }
        due = [partition for partition, stop in self._stops.items() if self._is_due(stop, now, requested)]
        for partition in due:
            self._stops[partition].is_tried = True
        return due

    def _is_due(self, stop: _PartitionStop, now: float, requested: bool) -> bool:
        if stop.is_tried:
            return False
        has_waited = now - stop.at >= self._interval_s
        return requested or (stop.reason.can_heal and has_waited)

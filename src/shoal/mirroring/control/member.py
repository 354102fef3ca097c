"""
One attempt of a task, as the driver knows it: its document, and how long it may write at the most.

A lease counts from a reading of the task's own clock that the driver had before. So it has run out for the
task when it has for the driver, which counts from the time at which it received that reading. A task that
does not leave partitions in time gets no lease any more. The driver closes its connection when the last one
has run out. Then the task is an orphan: it writes and commits nothing.
"""

from __future__ import annotations

import contextlib
import math
import socket
import time

from ...client.coordinator import MemberId
from ...topic_partition import TopicPartition
from ..model.handover import Assigned
from .protocol import lease_clock_s

__all__ = ["Member"]


class Member:
    """
    The driver's state of one attempt of a task.

    Attributes:
        job: The number of the job that the task belongs to.
        attempt: The number of the attempt: Spark's, from 0.
        clock_s: The newest reading of the task's own clock that the driver has received.
        partitions: Its document, without what only steers it.
        leaving: The partitions that it was asked to leave: the entry, and since when.
        is_over: Whether the attempt has closed the connection. It writes nothing more then.
        is_cut: Whether the driver has closed the connection. The task may still have a lease.
        ends: Whether the driver has asked this task alone to end.
        waits: Whether a worker of the task waits for bytes of the mirror's limit.
        weight: Its weight when the limit is shared out.
        bytes_per_s: Its part of the limit; 0 before it has one.

    """

    def __init__(self, connection: socket.socket, job: int = 0, attempt: int = 0) -> None:
        self.connection = connection
        self.job = job
        self.attempt = attempt
        self.clock_s = 0.0
        self.partitions: dict[TopicPartition, Assigned] = {}
        self.leaving: dict[TopicPartition, tuple[Assigned, float]] = {}
        self.membership = MemberId()
        self.is_over = False
        self.is_cut = False
        self.ends = False
        self.waits = False
        self.weight = 1.0
        self.bytes_per_s = 0
        self._counts_from = 0.0
        #: When the oldest line was sent that may not be answered; None if all are.
        self._unanswered_since: float | None = None
        self._lease_until = -math.inf

    def hear(self, clock_s: float, *, waits: bool = False) -> None:
        """Note that a line came, with a reading of the task's clock, and whether it waits for bytes."""
        self._unanswered_since = None
        self.clock_s = clock_s
        self.waits = waits
        self._counts_from = lease_clock_s()

    def give_lease(self, until: float) -> float:
        """Give the lease up to a time of the driver's clock; return its seconds from the task's reading."""
        lease_s = max(0.0, until - lease_clock_s())
        self._lease_until = max(self._lease_until, min(until, self._counts_from + lease_s))
        return lease_s

    @property
    def may_write(self) -> bool:
        """Whether the attempt may still write, if it has received every lease."""
        return not self.is_over and lease_clock_s() < self._lease_until

    def note_sent(self) -> None:
        """Note that a line was sent, which the task answers at once."""
        if self._unanswered_since is None:
            self._unanswered_since = time.monotonic()

    @property
    def silent_s(self) -> float:
        """The seconds for which it has not answered a line."""
        return 0.0 if self._unanswered_since is None else time.monotonic() - self._unanswered_since

    @property
    def overdue_s(self) -> float:
        """The longest time for which it has not left a partition that it was asked to leave."""
        return max((time.monotonic() - since for _, since in self.leaving.values()), default=0.0)

    def cut(self) -> None:
        """Close the connection from the driver's side."""
        self.is_cut = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def ask_to_leave(self, partition: TopicPartition) -> None:
        """Take a partition out of the document."""
        self.leaving[partition] = self.partitions.pop(partition), time.monotonic()

    def leave(self, partition: TopicPartition, entry: int) -> Assigned | None:
        """Note that it writes no more by an entry; return the entry, or None if it does not have that."""
        assigned, asked = self.partitions.get(partition), self.leaving.get(partition)
        if assigned is not None and assigned.entry == entry:
            return self.partitions.pop(partition)
        if asked is not None and asked[0].entry == entry:
            return self.leaving.pop(partition)[0]
        return None

"""
Choose the attempt of a task that may write a partition: the newest, once no older one can.

Spark starts a second attempt if it has lost the first one, for instance after an executor was
lost. The first may still run and have a lease. Two attempts at a time can duplicate records that are older
than ``producer.id.expiration.ms``. So the driver fences the first: it ends its window and no longer renews
its lease. The second may begin when the first has left its partitions or closed its connection, or when its
last lease has expired.
"""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Iterable

from ...client.coordinator import MemberId
from ...topic_partition import TopicPartition
from .protocol import lease_clock_s

__all__ = ["Attempt", "Attempts"]


class Attempt:
    """
    The driver's state of one attempt of a task.

    Attributes:
        window: The number of the window that its job was started for.
        clock_s: The newest reading of the task's own clock that the driver has received.
        partitions: The partitions that the attempt requested, without those that it has left since.
        lease_until: The end of its longest lease, on the driver's clock.
        is_fenced: Whether a newer attempt has requested one of its partitions.
        membership: The member that it may commit as.
        is_over: Whether the attempt has closed the connection. It writes nothing more then.

    """

    def __init__(self, connection: socket.socket, clock_s: float) -> None:
        self.connection = connection
        self.window = 0
        self.clock_s = clock_s
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.lease_until = -math.inf
        self.is_fenced = False
        self.membership = MemberId()
        self.is_over = False
        self._is_cut = False

    def cut(self) -> None:
        """Close the connection from the driver's side. The task may still have a lease."""
        self._is_cut = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Note that the connection has ended. The attempt is over only if the task closed the connection."""
        self.is_over = not self._is_cut

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that the attempt writes nothing more of these partitions."""
        self.partitions = self.partitions.difference(partitions)

    def may_write(self, partitions: frozenset[TopicPartition]) -> bool:
        """Whether the attempt may still write one of these partitions."""
        return not self.partitions.isdisjoint(partitions) and self.lease_s > 0

    @property
    def lease_s(self) -> float:
        """The time for which the attempt may still write, if it has received every lease."""
        return 0.0 if self.is_over else max(0.0, self.lease_until - lease_clock_s())


class Attempts:
    """All attempts that may write. Not thread-safe."""

    def __init__(self) -> None:
        self._attempts: set[Attempt] = set()

    def begin(self, attempt: Attempt, partitions: Iterable[TopicPartition]) -> list[Attempt]:
        """Register an attempt's partitions; fence and return the older attempts that may still write them."""
        attempt.partitions = frozenset(partitions)
        self._attempts = {each for each in self._attempts if each.lease_s}
        rivals = [each for each in self._attempts if each.may_write(attempt.partitions)]
        for each in rivals:
            each.is_fenced = True
        self._attempts.add(attempt)
        return rivals

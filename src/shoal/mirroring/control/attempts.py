"""
Which attempt of a task may write a partition: the newest, once no older one can.

Spark starts a second attempt when it believes that the first is gone, for instance after an executor was
lost. The first may live on, with a lease that it was given. Two attempts at a time can double records
that are older than ``producer.id.expiration.ms``. So the driver fences the first: it ends the first's
micro-batch and renews its lease no more. The second may begin when the first has closed its connection, or
when the last lease of the first has run out.
"""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Iterable

from ...topic_partition import TopicPartition
from .protocol import lease_clock_s

__all__ = ["Attempt", "Attempts"]


class Attempt:
    """
    One attempt of a task, as the driver sees it over its control connection.

    Attributes:
        connection: The socket.
        clock_s: The newest reading of the task's own clock that has arrived.
        partitions: The partitions that it has asked for.
        lease_until: When the longest lease that it was given ends, on the driver's clock.
        is_fenced: Whether a newer attempt has asked for one of its partitions.
        is_over: Whether it has closed the connection, so that it writes nothing more.

    """

    def __init__(self, connection: socket.socket, clock_s: float) -> None:
        self.connection = connection
        self.clock_s = clock_s
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.lease_until = -math.inf
        self.is_fenced = False
        self.is_over = False
        self._is_cut = False

    def cut(self) -> None:
        """Close the connection from the driver's side: a task that is paused still has its lease."""
        self._is_cut = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Note that the connection has ended in good order. Only the task's own end shows that it is over."""
        self.is_over = not self._is_cut

    @property
    def lease_s(self) -> float:
        """How long it may still write, whatever it has received."""
        return 0.0 if self.is_over else max(0.0, self.lease_until - lease_clock_s())


class Attempts:
    """All attempts that may write. Not for several threads at once."""

    def __init__(self) -> None:
        self._attempts: set[Attempt] = set()

    def begin(self, attempt: Attempt, partitions: Iterable[TopicPartition]) -> list[Attempt]:
        """Let an attempt have partitions; fence and return the older ones that may still write them."""
        attempt.partitions = frozenset(partitions)
        self._attempts = {each for each in self._attempts if each.lease_s}
        rivals = [each for each in self._attempts if each.partitions & attempt.partitions]
        for each in rivals:
            each.is_fenced = True
        self._attempts.add(attempt)
        return rivals

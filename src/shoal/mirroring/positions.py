"""Where pairs are kept. A seam: some may read the source cluster, but not commit there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from ..client.cluster import Cluster
from ..client.groups import Membership, commit_offsets, fetch_offsets
from ..client.metadata import TopicPartition
from ..errors import Disconnected, ShoalError
from .pair import Pair

__all__ = ["GroupPositions", "Positions", "PositionsInThread"]


class Positions(Protocol):
    """Pairs by source partition; what is committed is what is read after any crash."""

    def read_all(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, Pair], dict[TopicPartition, int]]:
        """Return the pairs; and the offsets that somebody else committed, a consumer perhaps."""

    def commit(self, pairs: Mapping[TopicPartition, Pair]) -> Mapping[TopicPartition, ShoalError]:
        """
        Commit; raises a :class:`~shoal.errors.ShoalError` where nobody's pair can be.

        Returns:
            The partitions whose pair was refused, and why.

        """


class GroupPositions:
    """Pairs in the offsets of a consumer group on the source cluster."""

    def __init__(self, cluster: Cluster, group: str, membership: Callable[[], Membership]) -> None:
        """
        Take a cluster's control-plane connections.

        Args:
            cluster: The source.
            group: The group's name.
            membership: Who commits, asked at each commit: a mirror that lost
                its group commits nothing more.

        """
        self._cluster = cluster
        self._group = group
        self._membership = membership

    def read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Pair]:
        """Return the pairs of those partitions that have one."""
        return self.read_all(partitions)[0]

    def read_all(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, Pair], dict[TopicPartition, int]]:
        pairs: dict[TopicPartition, Pair] = {}
        others: dict[TopicPartition, int] = {}
        for partition, committed in fetch_offsets(self._cluster, self._group, partitions).items():
            pair = Pair.from_committed(committed)
            if pair is None:
                others[partition] = committed.offset
            else:
                pairs[partition] = pair
        return pairs, others

    def commit(self, pairs: Mapping[TopicPartition, Pair]) -> Mapping[TopicPartition, ShoalError]:
        positions = {partition: pair.to_committed() for partition, pair in pairs.items()}
        return commit_offsets(self._cluster, self._group, positions, self._membership())


class PositionsInThread:
    """
    Positions that are asked in a thread of their own, one question after the other.

    Attributes:
        is_committing: Whether :meth:`commit` waits for its outcome.
        unknown_at: When a commit ended last without one, on the monotonic clock: it may take effect later,
            after newer ones.

    """

    def __init__(self, positions: Positions) -> None:
        self.is_committing = False
        self.unknown_at = -math.inf
        self._positions = positions
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shoal-commit")

    def read_all(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, Pair], dict[TopicPartition, int]]:
        return self._thread.submit(self._positions.read_all, list(partitions)).result()

    def commit(self, pairs: Mapping[TopicPartition, Pair]) -> Mapping[TopicPartition, ShoalError]:
        self.is_committing = True
        try:
            return self.begin_commit(pairs).result()
        finally:
            self.is_committing = False

    def begin_commit(
        self, pairs: Mapping[TopicPartition, Pair]
    ) -> Future[Mapping[TopicPartition, ShoalError]]:
        """Commit without waiting for the outcome."""
        return self._thread.submit(self._commit, pairs)

    def _commit(self, pairs: Mapping[TopicPartition, Pair]) -> Mapping[TopicPartition, ShoalError]:
        try:
            return self._positions.commit(pairs)
        except Disconnected:
            self.unknown_at = time.monotonic()
            raise

    def end_with(self, last: Callable[[], object]) -> None:
        """
        Ask nothing more; let the thread do one thing more when what it does is over.

        Nobody waits for that: what was given up may still wait for a host that does not answer.
        """
        self._thread.submit(last)
        self._thread.shutdown(wait=False)

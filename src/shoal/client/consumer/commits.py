"""The commits of a consumer: what the program names, all positions from time to time, and at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ...errors import BrokerError, ConfigError, ShoalError
from ...topic_partition import TopicPartition
from ..cluster import Cluster, is_transient, patiently
from ..committed_offsets import Committed, commit_offsets
from ..coordinator import JOIN_AGAIN, MemberId
from .partitions import named, valid_offset
from .records import AnyRecord
from .settings import ConsumerSettings

__all__ = ["Commits", "Offsets"]

#: A program commits a record, or offsets by partition; None stands for all positions.
Offsets = AnyRecord | Mapping[TopicPartition, int | Committed] | None


class Commits:
    """Commits offsets of a consumer by its present identity."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        identity: Callable[[], MemberId],
        positions: Callable[[], Mapping[TopicPartition, int]],
    ) -> None:
        """
        Begin the interval of automatic commits.

        Args:
            identity: Returns the consumer's identity in its group, or raises if it has lost that.
            positions: Returns the next offsets of all partitions.

        """
        self._cluster = cluster
        self._settings = settings
        self._identity = identity
        self._positions = positions
        self._due_at = time.monotonic() + settings.auto_commit_interval_ms / 1000

    def commit(self, group: str, offsets: Offsets, metadata: str) -> dict[TopicPartition, Committed]:
        """Commit, and return what was committed; see :meth:`.RawConsumer.commit`."""
        wanted = self._wanted(offsets, metadata)
        if wanted:
            patience_s = self._settings.default_api_timeout_ms / 1000
            patiently(lambda: self._commit_once(group, wanted), patience_s=patience_s)
        return wanted

    def commit_when_due(self) -> None:
        """Commit all positions if ``enable.auto.commit`` is set, and the interval has passed."""
        if self._settings.commits_by_itself and time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + self._settings.auto_commit_interval_ms / 1000
            self.commit_quietly(0.0)

    def commit_quietly(self, patience_s: float) -> None:
        """Commit all positions; ignore errors after which a later commit may succeed."""
        wanted = self._wanted(None, "")
        group = self._settings.membership
        if not wanted or group is None:
            return
        try:
            patiently(lambda: self._commit_once(group.group, wanted), patience_s=patience_s)
        except ShoalError as error:
            must_join_again = isinstance(error, BrokerError) and error.code in JOIN_AGAIN
            if not (must_join_again or is_transient(error)):
                raise

    def _wanted(self, offsets: Offsets, metadata: str) -> dict[TopicPartition, Committed]:
        if offsets is None:
            return {partition: Committed(each, metadata) for partition, each in self._positions().items()}
        if isinstance(offsets, AnyRecord):
            return {offsets.topic_partition: Committed(offsets.next_offset, metadata)}
        if not isinstance(offsets, Mapping):
            raise ConfigError(f"commit({offsets!r}): give a record, or the next offsets by partition")
        wanted: dict[TopicPartition, Committed] = {}
        for partition, each in offsets.items():
            committed = each if isinstance(each, Committed) else Committed(each, metadata)
            valid_offset("commit of", committed.offset)
            wanted[named(partition)] = committed
        return wanted

    def _commit_once(self, group: str, wanted: Mapping[TopicPartition, Committed]) -> None:
        for error in commit_offsets(self._cluster, group, wanted, self._identity()).values():
            raise error

"""The pairs that a mirror committed, as far as they speak of the logs of now."""

from __future__ import annotations

from collections.abc import Set

from ...client.cluster import Cluster, patiently
from ...client.groups import Committed, fetch_offsets
from ...client.metadata import TopicPartition
from ...errors import ConfigError, ShoalError
from ..options import default_group
from ..pair import Pair
from .errors import NotComparable

__all__ = ["CommittedPairs"]


class CommittedPairs:
    """
    The committed pairs of a group.

    Attributes:
        group: Its name; None where no name could be made.
        warnings: Sentences.

    """

    def __init__(
        self,
        source: Cluster,
        destination: Cluster,
        group: str | None,
        rules: Set[str] | None,
        patience_s: float,
    ) -> None:
        self.warnings: list[str] = []
        self._source = source
        self._destination = destination
        self._rules = rules
        self._patience_s = patience_s
        self._committed: dict[TopicPartition, Committed] = {}
        self.group = group or self._default_group()

    def _default_group(self) -> str | None:
        try:
            return default_group(self._source.metadata.cluster_id, self._destination.metadata.cluster_id)
        except ConfigError as error:
            self.warnings.append(f"{error}; without a group, both sides are aligned by content")
            return None

    def read(self, partitions: list[TopicPartition]) -> None:
        """Read what the group committed; where it may not be read, there are no pairs."""
        group = self.group
        if group is None:
            return
        try:
            self._committed = patiently(
                lambda: fetch_offsets(self._source, group, partitions), patience_s=self._patience_s
            )
        except ShoalError as error:
            self.warnings.append(
                f"the positions of group {group!r} cannot be read ({error}); "
                "both sides are aligned by content"
            )

    def pair(self, source: TopicPartition, destination: TopicPartition) -> tuple[Pair | None, str]:
        """
        Return a partition's pair if it speaks of the logs of now, and a phrase about it.

        Raises:
            NotComparable: It was mirrored by other rules than those given here.

        """
        committed = self._committed.get(source)
        if committed is None:
            return None, f"group {self.group!r} has committed no position for it"
        pair = Pair.from_committed(committed)
        if pair is None:
            return None, f"the position that group {self.group!r} committed is no pair of shoal's"
        for cluster, partition, then in (
            (self._source, source, pair.source_topic_id),
            (self._destination, destination, pair.destination_topic_id),
        ):
            now = cluster.metadata.topics[partition.topic].topic_id
            if then and now and then != str(now):
                return None, f"topic {partition.topic} on {cluster} was created anew since it was mirrored"
        if self._rules is not None and pair.rules not in self._rules:
            raise NotComparable(
                f"group {self.group!r} mirrored {source} by other rules (isolation.level and the like decide "
                "what is copied); verify with the options of the mirror"
            )
        return pair, f"the pair of group {self.group!r}"

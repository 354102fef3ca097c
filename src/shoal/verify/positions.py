"""The positions that a mirror committed, if they are about the present logs."""

from __future__ import annotations

from collections.abc import Set

from ..client.cluster import Cluster, patiently
from ..client.committed_offsets import Committed, fetch_offsets
from ..errors import ConfigError, ShoalError
from ..mirroring.model.options import default_group
from ..mirroring.model.position import MirrorPosition, is_another_topic
from ..topic_partition import TopicPartition
from .errors import NotComparable

__all__ = ["CommittedPositions"]


_RECREATED = "topic {} on {} was deleted and created again since it was mirrored"
_ANOTHER_COPY = (
    "topic {} on {} is not the mirror's copy: it was created again, or the mirror has another --rename"
)


class CommittedPositions:
    """
    The committed positions of a group.

    Attributes:
        group: Its name; None if the clusters have no ids to make one of.
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
            self.warnings.append(f"{error}, so both sides are aligned by content")
            return None

    def read(self, partitions: list[TopicPartition]) -> None:
        """Read the group's positions; without the permission, there are no positions."""
        group = self.group
        if group is None:
            return
        try:
            self._committed = patiently(
                lambda: fetch_offsets(self._source, group, partitions), patience_s=self._patience_s
            )
        except ShoalError as error:
            self.warnings.append(
                f"the positions of group {group!r} cannot be read ({error}), "
                "so both sides are aligned by content"
            )

    def position(
        self, source: TopicPartition, destination: TopicPartition, *, copy_is_empty: bool = False
    ) -> tuple[MirrorPosition | None, str]:
        """
        Return a partition's position if it is about the present logs, and a phrase about it.

        Args:
            copy_is_empty: Whether the destination never held a record in the log of now. The position counts
                then whatever the topic's id is: all that was mirrored is missing.

        Raises:
            NotComparable: The mirror had other rules than those given here.

        """
        committed = self._committed.get(source)
        if committed is None:
            return None, "the group has committed no position for it"
        position = MirrorPosition.from_committed(committed)
        if position is None:
            return None, "the group's committed position is not one of shoal's"
        if self._is_another(self._source, source, position.source_topic_id):
            return None, _RECREATED.format(source.topic, self._source)
        if not copy_is_empty and self._is_another(
            self._destination, destination, position.destination_topic_id
        ):
            return None, _ANOTHER_COPY.format(destination.topic, self._destination)
        if self._rules is not None and position.rules not in self._rules:
            raise NotComparable(
                f"group {self.group!r} mirrored {source} by other rules, such as another isolation.level. "
                "Verify with the options of the mirror"
            )
        return position, "the group's committed position"

    @staticmethod
    def _is_another(cluster: Cluster, partition: TopicPartition, then: str | None) -> bool:
        topic = cluster.metadata.topics.get(partition.topic)
        return is_another_topic(then, topic.topic_id if topic else None)

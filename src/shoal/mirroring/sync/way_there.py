"""
Translations of offsets from before a cut-over, for a mirror that goes back.

Its own offset map begins at the cut. The offsets before are in the map of the mirror that led there, read the
other way round. Its group lies on the destination. A consumer that lags behind the cut needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...client.cluster import Cluster
from ...client.config import IsolationLevel
from ...client.coordinator import MemberId
from ...errors import BrokerError, ConfigError
from ...topic_partition import TopicPartition
from ..model.copy_options import CopySettings, all_copy_rules
from ..model.offset_map import Milestone, Translation
from ..model.options import default_group
from ..model.position import MirrorPosition, is_another_topic
from ..positions import GroupPositions
from .offset_rules import Direction
from .taken import SourceTaken

__all__ = ["WayThere"]


class WayThere:
    """The mirror from the destination to the source, which ran before a cut-over. For one thread."""

    def __init__(self, source: Cluster, destination: Cluster, settings: CopySettings) -> None:
        """
        Prepare; nothing is sent before a translation needs it.

        Args:
            source: The source of the mirror that goes back.
            destination: Its destination, which was the source before.
            settings: Its settings.

        """
        self._source = source
        self._destination = destination
        self._settings = settings
        self._positions: Mapping[TopicPartition, MirrorPosition] | None = None
        self._taken: dict[TopicPartition, SourceTaken] = {}

    def forget(self) -> None:
        """Forget the positions, and what was counted of the logs: a new round begins."""
        self._positions = None
        self._taken.clear()

    def translate(
        self,
        source: TopicPartition,
        destination: TopicPartition,
        cut: Milestone,
        offset: int,
        direction: Direction,
    ) -> Translation | None:
        """
        Translate an offset of a partition that lies before the cut.

        Args:
            source: The partition at the source.
            destination: Its copy.
            cut: The offsets at which the map of the mirror that goes back begins.
            offset: The offset at the cluster that is read.
            direction: Whether that is the source.

        Returns:
            None if no mirror led to this cut, or if its positions cannot be read.

        Raises:
            ShoalError: The destination does not respond.

        """
        position = self._read().get(destination)
        if position is None or not self._is_of_these_topics(position, source, destination):
            return None
        if position.destination_offset != cut.source or position.source_offset > cut.destination:
            return None
        taken = self._taken_of(destination, position)
        if taken is None:
            return None
        if direction is Direction.FORWARD:
            return position.offsets.to_source(offset, taken)
        return position.offsets.to_destination(offset, taken)

    def _read(self) -> Mapping[TopicPartition, MirrorPosition]:
        if self._positions is None:
            self._positions = {}
            for group in self._groups():
                try:
                    state = GroupPositions(self._destination, group, MemberId).read_state()
                except (BrokerError, ConfigError):
                    continue  # not for this principal, or of another version of shoal
                self._positions = {**state.positions, **self._positions}
        return self._positions

    def _groups(self) -> list[str]:
        """Return the groups that the mirror may have had: the default, and that of the way back."""
        ids = self._destination.metadata.cluster_id, self._source.metadata.cluster_id
        try:
            return list(dict.fromkeys([default_group(*ids), self._settings.group]))
        except ConfigError:
            return [self._settings.group]

    def _is_of_these_topics(
        self, position: MirrorPosition, source: TopicPartition, destination: TopicPartition
    ) -> bool:
        ids = (
            (position.source_topic_id, self._destination, destination),
            (position.destination_topic_id, self._source, source),
        )
        return not any(is_another_topic(then, cluster.topic_id(each.topic)) for then, cluster, each in ids)

    def _taken_of(self, partition: TopicPartition, position: MirrorPosition) -> SourceTaken | None:
        """Return the counts by the rules of that mirror; None if they are not known."""
        if partition not in self._taken:
            configs = (
                replace(self._settings.destination, isolation_level=level)
                for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
            )
            config = next((each for each in configs if position.rules in all_copy_rules(each)), None)
            if config is None:
                return None
            settings = replace(self._settings, source=config, destination=self._settings.source)
            self._taken[partition] = SourceTaken(self._destination, partition, settings)
        return self._taken[partition]

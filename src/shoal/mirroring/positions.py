"""Positions in a consumer group of the source cluster. A committed one is read after any crash."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from ..client.cluster import Cluster
from ..client.committed_offsets import Committed, commit_offsets, fetch_offsets
from ..client.coordinator import MemberId
from ..errors import BrokerError, ShoalError
from ..topic_partition import TopicPartition
from .model.first_start import FirstStart, is_start_mark, read_first_start, start_mark
from .model.position import MirrorPosition
from .model.text import first_few

__all__ = [
    "POSITION_RETENTION_MS",
    "GroupOffsets",
    "GroupPositions",
    "warning_of_others",
]

#: Ten years. The broker's own retention, by default 7 days, would delete the positions of a mirror that
#: stands still for longer.
POSITION_RETENTION_MS = 10 * 365 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """
    The committed offsets of a group, by source partition.

    Attributes:
        positions: The positions of mirrored partitions.
        starts: The start offsets of partitions with a start mark and no position yet.
        others: Offsets that no mirror committed, but a consumer, for example.
        first_start: The group's first start, as the positions have it; None if none has.
        takes_over_offsets: Whether ``others`` are positions, too.

    """

    positions: Mapping[TopicPartition, MirrorPosition]
    starts: Mapping[TopicPartition, int]
    others: Mapping[TopicPartition, int]
    first_start: FirstStart | None
    takes_over_offsets: bool = False

    @property
    def partitions(self) -> set[TopicPartition]:
        """Those that have a position."""
        return {*self.positions, *self.starts, *(self.others if self.takes_over_offsets else ())}

    @property
    def is_empty(self) -> bool:
        """Whether no mirror has ever started with this group."""
        return not self.partitions


class GroupPositions:
    """Positions in the committed offsets of a consumer group on the source cluster."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        membership: Callable[[], MemberId],
        *,
        takes_over_offsets: bool = False,
    ) -> None:
        """
        Use a cluster's control-plane connections.

        Args:
            cluster: The source.
            membership: Returns the member that commits, for each commit: a mirror that lost
                its group commits nothing more.
            takes_over_offsets: Whether a consumer's offset is a position, too.

        """
        self._takes_over_offsets = takes_over_offsets
        self._cluster = cluster
        self._group = group
        self._membership = membership

    def read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, MirrorPosition]:
        """Return the positions of those partitions that have one."""
        return dict(self.read_state(partitions).positions)

    def read_state(self, partitions: Iterable[TopicPartition] | None = None) -> GroupOffsets:
        """Return the committed offsets of some partitions, by default of all."""
        positions: dict[TopicPartition, MirrorPosition] = {}
        starts: dict[TopicPartition, int] = {}
        others: dict[TopicPartition, int] = {}
        first_starts: set[FirstStart | None] = set()
        for partition, committed in fetch_offsets(self._cluster, self._group, partitions).items():
            if (position := MirrorPosition.from_committed(committed)) is not None:
                positions[partition] = position
                first_starts.add(position.first_start)
                continue
            first_starts.add(read_first_start(committed))
            (starts if is_start_mark(committed) else others)[partition] = committed.offset
        known = [each for each in first_starts if each is not None]
        first = reduce(FirstStart.merged_with, known) if known else None
        return GroupOffsets(positions, starts, others, first, self._takes_over_offsets)

    def mark_starts(
        self, offsets: Mapping[TopicPartition, int], first_start: FirstStart
    ) -> Mapping[TopicPartition, ShoalError]:
        """Commit the start offsets of partitions without a position; see :meth:`commit`."""
        marks = {partition: start_mark(offset, first_start) for partition, offset in offsets.items()}
        return self._commit(marks) if marks else {}

    def commit(
        self, positions: Mapping[TopicPartition, MirrorPosition]
    ) -> Mapping[TopicPartition, ShoalError]:
        """
        Commit positions.

        Returns:
            The partitions whose position was refused, with the error.

        Raises:
            Disconnected: Some are committed, and it is unknown which.
            ShoalError: No position can be committed.

        """
        offsets = {partition: position.to_committed() for partition, position in positions.items()}
        # If offset.metadata.max.bytes is less than Kafka's default, there may be no room for all milestones.
        return self._commit(offsets, lambda each: positions[each].to_committed(0))

    def _commit(
        self,
        offsets: Mapping[TopicPartition, Committed],
        shorter: Callable[[TopicPartition], Committed] | None = None,
    ) -> dict[TopicPartition, BrokerError]:
        return commit_offsets(
            self._cluster,
            self._group,
            offsets,
            self._membership(),
            retention_ms=POSITION_RETENTION_MS,
            shorter=shorter,
        )


def warning_of_others(group: str, offsets: Mapping[TopicPartition, int]) -> str | None:
    """
    Return a warning of offsets in the mirror's group that no mirror committed; None if there are none.

    Args:
        group: The name of the group.
        offsets: The offsets that a consumer, for example, committed.

    """
    if not offsets:
        return None
    found = first_few([f"{offset} for {partition}" for partition, offset in sorted(offsets.items())], most=1)
    return (
        f"group {group!r} has committed offsets of another program ({found}): they "
        "have no position at the destination, so the mirror ignores them and begins at the start position"
    )

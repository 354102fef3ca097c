"""Go on where a former task left a partition, without asking what both clusters hold."""

from __future__ import annotations

from collections.abc import Sequence

from ....client.cluster import Cluster
from ....errors import ShoalError
from ...control.handover import InheritedPosition
from ...model.copy_options import CopyOptions
from ...other_groups import topic_id
from ..partition import PartitionCopy

__all__ = ["leader_epochs_of", "still_aligned", "take_over"]


def take_over(
    copies: Sequence[PartitionCopy], source: Cluster, destination: Cluster, settings: CopyOptions
) -> list[tuple[PartitionCopy, InheritedPosition]]:
    """
    Align the partitions that a former task left, where nothing happened to either cluster since.

    Nobody is asked. What is not taken over now has to be realigned, now and later.

    Returns:
        The partitions that are aligned now, and how they were left.

    """
    taken = []
    for copy in copies:
        left, copy.left = copy.left, None
        if left is not None and _still_holds(left, copy, source, destination, settings):
            copy.align(left.pair)
            copy.leader_epochs = left.leader_epochs
            taken.append((copy, left))
    return taken


def leader_epochs_of(copy: PartitionCopy, source: Cluster, destination: Cluster) -> tuple[int, int]:
    """Return both sides' leader epochs, as the metadata have them; raises where there is no leader."""
    return source.partition(copy.source).leader_epoch, destination.partition(copy.destination).leader_epoch


def still_aligned(copy: PartitionCopy, source: Cluster, destination: Cluster) -> bool:
    """
    Return whether both topics, and both leaders' epochs, are those that a copy is aligned with.

    Raises:
        BrokerError: A partition has no leader, or its topic does not exist.

    """
    assert copy.pair is not None, "it is aligned"
    return (
        copy.leader_epochs == leader_epochs_of(copy, source, destination)
        and _is_same(copy.pair.source_topic_id, topic_id(source, copy.source))
        and _is_same(copy.pair.destination_topic_id, topic_id(destination, copy.destination))
    )


def _is_same(then: str | None, now: str | None) -> bool:
    """Compare topic ids; a broker that is too old to send any proves nothing."""
    return then is None or now is None or then == now


def _still_holds(
    left: InheritedPosition, copy: PartitionCopy, source: Cluster, destination: Cluster, settings: CopyOptions
) -> bool:
    """Whether both topics are those of then, and neither partition has had an election since."""
    pair = left.pair
    try:
        leader_epochs = leader_epochs_of(copy, source, destination)
    except ShoalError:
        return False
    return (
        copy.pair is None
        and pair.rules == settings.rules
        and pair.source_topic_id == topic_id(source, copy.source)
        and pair.destination_topic_id == topic_id(destination, copy.destination)
        and left.leader_epochs == leader_epochs
    )

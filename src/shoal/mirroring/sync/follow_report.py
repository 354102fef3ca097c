"""The outcome of a round that compares settings of both clusters, as sentences for a user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...client.cluster import Cluster
from ...errors import BrokerError

__all__ = ["FollowReport", "at_both"]


class FollowReport(NamedTuple):
    """
    The outcome of a round.

    Attributes:
        changes: The changes that the destination got in this round.
        differences: Those that are left.
        refused: The errors of changes that the destination refused.
        warnings: The values that the destination does not get.

    """

    changes: Sequence[str]
    differences: Sequence[str]
    refused: Sequence[BrokerError]
    warnings: Sequence[str] = ()


def at_both(names: Mapping[str, str], source: Cluster, destination: Cluster) -> dict[str, str]:
    """Return those topics that both clusters have by their last metadata."""
    here, there = source.metadata.topics, destination.metadata.topics
    return {name: copy for name, copy in names.items() if name in here and copy in there}

"""The outcome of a round that compares settings of both clusters, as sentences for a user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import BrokerError

__all__ = ["FollowReport"]


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

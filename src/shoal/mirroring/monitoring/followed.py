"""The last rounds over what follows the records, for page, report and Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..model.follow_options import Follower

__all__ = ["FollowRound", "Followed"]


@dataclass(frozen=True, slots=True)
class FollowRound:
    """
    One comparison of both clusters.

    Attributes:
        at_s: Its time, in seconds since 1970.
        is_synced: Whether the mirror changes the destination; otherwise it only compares.
        differing: The number of topics or ACLs that still differ.
        sentences: The differences, and the errors of refused changes.

    """

    at_s: float
    is_synced: bool
    differing: int
    sentences: Sequence[str] = ()


class Followed:
    """The last round of each kind. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rounds: dict[Follower, FollowRound] = {}

    def set(self, follower: Follower, done: FollowRound) -> None:
        """Replace the last round."""
        with self._lock:
            self._rounds[follower] = done

    def rounds(self) -> Mapping[Follower, FollowRound]:
        """Return the last round of each kind; none of what was never compared."""
        with self._lock:
            return dict(self._rounds)

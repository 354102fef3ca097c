"""The last rounds over what follows the records, for page, report and Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from ..model.follow_options import Follower
from ..model.state import FollowRound

__all__ = ["FollowRound", "Followed"]


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

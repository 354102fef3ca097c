"""A thread beside the tasks that needs their last positions: consumer groups, which follow the records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

__all__ = ["Companion"]


class Companion(Protocol):
    """Works in its own thread, and never delays the tasks."""

    def begin(self, group: str, topics: Callable[[], Mapping[str, str]]) -> None:
        """
        Begin.

        Args:
            group: The mirror's group on the source cluster, which has the positions.
            topics: Returns the topics at the destination, by their names at the source.

        """

    def finish(self) -> None:
        """Work once more, behind the last positions, and end. Raises no error of a cluster."""

    def close(self) -> None:
        """End without another round."""

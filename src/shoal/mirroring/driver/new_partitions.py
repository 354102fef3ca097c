"""
The bound on partitions that a running mirror adds at the destination (``--max-new-partitions``).

Kafka cannot remove a partition, and more of them place keys differently. So a source that lists thousands of
new ones, by mistake or on purpose, must not grow the destination before an operator has looked.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from ...errors import ConfigError
from ..prepare.changes import TopicChanges

__all__ = ["NewPartitions"]

#: The bound since the start is so many times that of one look.
_LOOKS = 10

_NAMED_TOPICS = 3


class NewPartitions:
    """The partitions that a mirror added since its start, which creates its own list without a bound."""

    def __init__(self, a_look: int) -> None:
        """
        Begin with none added.

        Args:
            a_look: The most partitions that may be added for one look at the source.

        """
        self._a_look = a_look
        self._lock = threading.Lock()
        self._added = 0

    def warning_of(self, wanted: Mapping[str, int]) -> str | None:
        """
        Return a sentence if more partitions are wanted than may be added; None if they may.

        Args:
            wanted: The number of new partitions of each source topic that one look has found.

        """
        number, most = sum(wanted.values()), _LOOKS * self._a_look
        with self._lock:
            left = most - self._added
        if number <= min(self._a_look, left):
            return None
        largest = sorted(wanted, key=lambda topic: (-wanted[topic], topic))
        named = ", ".join(f"{topic}: {wanted[topic]:,}" for topic in largest[:_NAMED_TOPICS] if wanted[topic])
        more = len([topic for topic in largest[_NAMED_TOPICS:] if wanted[topic]])
        others = f" and {more} more topics" if more else ""
        return (
            f"the source lists {number:,} new partitions ({named}{others}), and none of them is added. "
            f"Option max-new-partitions allows {self._a_look:,} a look and {most:,} since the start, of "
            f"which {left:,} are left. Check the source. If it is right, start the mirror again to add them"
        )

    def add(self, number: int) -> None:
        """Count partitions that were added."""
        with self._lock:
            self._added += number

    def check(self, changes: TopicChanges, expected: Mapping[str, int]) -> None:
        """
        Check changes right before they are made, since the source may list more partitions than at the look.

        Args:
            expected: The number of partitions of each source topic that the mirror has, or has checked.

        Raises:
            ConfigError: More partitions than may be added.

        """
        wanted = {
            name: max(0, topic.partitions - max(topic.present_partitions, expected.get(name, 0)))
            for name, topic in changes.topics.items()
            if topic.deleted is None
        }
        if problem := self.warning_of(wanted):
            raise ConfigError(problem)
        self.add(sum(wanted.values()))

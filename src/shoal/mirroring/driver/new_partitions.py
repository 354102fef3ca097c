"""
The bound on partitions that a running mirror adds at the destination (``--max-new-partitions``).

Kafka cannot remove a partition, and more of them place keys differently. So a source that lists thousands of
new ones, by mistake or on purpose, must not grow the destination before an operator has looked.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from ...errors import ConfigError
from ..prepare.changes import Prepared

__all__ = ["NewPartitions"]

#: The bound since the start is so many times that of one look.
_LOOKS = 10

_NAMED_TOPICS = 3


class NewPartitions:
    """
    The partitions that a mirror added since its start, which creates its own list without a bound.

    A topic whose copy does not become ready is tried again at each look. Its partitions count once.

    """

    def __init__(self, a_look: int) -> None:
        """
        Begin with none added.

        Args:
            a_look: The most partitions that may be added for one look at the source.

        """
        self._a_look = a_look
        self._lock = threading.Lock()
        self._added = 0
        self._counted: dict[str, int] = {}

    def count(self, sizes: Mapping[str, int], present: Mapping[str, int]) -> str | None:
        """
        Count the new partitions of a look; if they are too many, count none and return a sentence about them.

        Args:
            sizes: The number of partitions of each source topic.
            present: The number of those that its copy has; none of a topic without a copy.

        """
        with self._lock:
            wanted = {name: self._uncounted(name, size, present) for name, size in sizes.items()}
            problem = self.warning_of(wanted)
            if problem is None:
                self._added += sum(wanted.values())
                self._counted |= {name: sizes[name] for name, number in wanted.items() if number}
        return problem

    def has_counted(self, topic: str, size: int, present: Mapping[str, int]) -> bool:
        """Return whether a source topic of this size has no partition that is still to be counted."""
        with self._lock:
            return not self._uncounted(topic, size, present)

    def _uncounted(self, topic: str, size: int, present: Mapping[str, int]) -> int:
        return max(0, size - max(present.get(topic, 0), self._counted.get(topic, 0)))

    def warning_of(self, wanted: Mapping[str, int]) -> str | None:
        """Return a sentence if more partitions are wanted than may be added; None if they may."""
        number, most = sum(wanted.values()), _LOOKS * self._a_look
        left = most - self._added
        if number <= min(self._a_look, left):
            return None
        largest = sorted(wanted, key=lambda topic: (-wanted[topic], topic))
        named = ", ".join(f"{topic}: {wanted[topic]:,}" for topic in largest[:_NAMED_TOPICS] if wanted[topic])
        more = len([topic for topic in largest[_NAMED_TOPICS:] if wanted[topic]])
        others = f" and {more} more topics" if more else ""
        return (
            f"the source lists {number:,} new partitions ({named}{others}), and none of them is added. "
            f"The bound is {self._a_look:,} a look and {most:,} since the start (--max-new-partitions), "
            f"of which {left:,} are left. Check the source. If it is right, start the mirror again to "
            "add them"
        )

    def check(self, changes: Prepared, expected: Mapping[str, int]) -> None:
        """
        Check changes right before they are made, since the source may list more partitions than at the look.

        Args:
            expected: The number of partitions of each source topic that the mirror has, or has checked.

        Raises:
            ConfigError: More partitions than may be added.

        """
        topics = {name: topic for name, topic in changes.topics.items() if topic.deleted is None}
        present = {name: max(each.present_partitions, expected.get(name, 0)) for name, each in topics.items()}
        if problem := self.count({name: each.partitions for name, each in topics.items()}, present):
            raise ConfigError(problem)

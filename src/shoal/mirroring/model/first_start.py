"""
The first start of a mirror, as its group stores it: the time, and the selected topics.

``--start latest`` means *from the first start on*. A partition that is created later is mirrored from its
beginning, even if no mirror runs at that time. Kafka does not store the time at which a topic was created, so
the group has to show it. At the first start, each selected partition gets a position. So if a selected
partition has no position, it is newer. Only a topic that was not selected then may be older.

Three kinds of committed offsets contain the first start. Older versions of shoal ignore it in all of them:

- each position (``first`` in its metadata),
- a *start mark*: an ordinary committed offset by which the driver fixes the start of a partition before any
  task has made its first position,
- the offsets that a mirror with a handler commits.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import Any

from ...client.committed_offsets import Committed
from ...client.metadata import TopicMetadata
from ...errors import ConfigError
from ...json_values import read_value
from .topics import TopicSelection

__all__ = ["FirstStart", "is_start_mark", "read_first_start", "remembering", "start_mark"]

#: The prefixes of the JSON. They differ from a position's, since an older shoal would refuse the group.
_MARK, _OFFSET = "start1", "first1"

#: A commit's metadata has 4,096 characters at most, of which a position needs about 400.
_MOST_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class FirstStart:
    """
    The time of a mirror's first start, and the selections of all its starts.

    Attributes:
        at_ms: The time of the first start, as Unix time in milliseconds.
        selections: ``(--topics, --exclude)`` of each start so far; empty if they are too long to be kept.

    """

    at_ms: int
    selections: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def now(cls) -> FirstStart:
        """Return a first start at this moment, without selections."""
        return cls(int(time.time() * 1000))

    def selecting(self, selection: TopicSelection) -> FirstStart:
        """Return the first start with the selection of another start."""
        ours = (selection.topics, selection.exclude)
        if self.selections and self.selections[-1] == ours:
            return self
        kept = [each for each in self.selections if each != ours] + [ours]
        while kept and len(replace(self, selections=tuple(kept)).to_text()) > _MOST_CHARACTERS:
            del kept[0]
        return replace(self, selections=tuple(kept))

    def merged_with(self, other: FirstStart) -> FirstStart:
        """Return the earlier of both, with the selections of both."""
        first, second = sorted((self, other), key=lambda each: each.at_ms)
        return replace(first, selections=tuple(dict.fromkeys([*first.selections, *second.selections])))

    def selected(self, topic: TopicMetadata) -> bool:
        """Whether any start selected a topic of this name; if the selections are unknown, True."""
        return not self.selections or any(_matches(*each, topic) for each in self.selections)

    def to_text(self) -> str:
        """Return the first start as compact JSON."""
        return json.dumps(self.to_json_object(), separators=(",", ":"))

    @classmethod
    def from_json_object(cls, values: Any) -> FirstStart:
        """
        Read the values of :meth:`to_json_object`.

        Raises:
            ValueError: The values are not a first start.

        """
        try:
            found = cls(*read_value(tuple[int, tuple[tuple[str, str | None], ...]], values))
        except TypeError as error:
            raise ValueError(f"{values!r} is not a first start: {error}") from None
        if not 0 <= found.at_ms < 2**63:
            raise ValueError(f"{values!r} is not a first start")
        return found

    def to_json_object(self) -> Any:
        """Return the first start as values of JSON."""
        return [self.at_ms, self.selections]


def _matches(topics: str, exclude: str | None, topic: TopicMetadata) -> bool:
    try:
        return TopicSelection(topics, exclude).matches(topic)
    except ConfigError:
        return True  # other programs may commit to the group, too


def start_mark(offset: int, first_start: FirstStart) -> Committed:
    """Return the position that makes a partition begin at an offset."""
    return Committed(offset, _MARK + first_start.to_text())


def is_start_mark(committed: Committed) -> bool:
    """Whether a committed offset is a start mark."""
    return committed.metadata.startswith(_MARK)


def remembering(offset: int, first_start: FirstStart | None) -> Committed:
    """Return an ordinary position that also contains the first start."""
    return Committed(offset, _OFFSET + first_start.to_text() if first_start else "")


def read_first_start(committed: Committed) -> FirstStart | None:
    """Return the first start in a start mark or an ordinary position; None if it has none."""
    for prefix in (_MARK, _OFFSET):
        if committed.metadata.startswith(prefix):
            try:
                return FirstStart.from_json_object(json.loads(committed.metadata.removeprefix(prefix)))
            except (ValueError, RecursionError):
                return None
    return None

"""
What a group remembers of its mirror's first start: when that was, and which topics were selected.

``--start latest`` means *from the first start on*: a partition that comes later
is mirrored from its beginning, also if no mirror runs then. Kafka does not store
when a topic was created, so the group has to show it. Each selected partition
gets a position at the first start, so a selected one without a position is
newer. Only a topic that was not selected then may be older.

It stands in each pair (``first`` in its metadata); in a *start mark*, an
ordinary committed offset with which the driver fixes where a partition begins
before any task has made its first pair; and in the offsets that a mirror with a
handler commits. Older versions of shoal ignore it in all three.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import Any

from ...client.committed_offsets import Committed
from ...client.metadata import TopicMetadata
from ...errors import ConfigError
from .topics import TopicSelection

__all__ = ["FirstStart", "is_start_mark", "read_first_start", "remembering", "start_mark"]

#: In front of the JSON. Not as a pair begins: an older shoal would refuse the group.
_MARK, _OFFSET = "start1", "first1"

#: A commit's metadata has 4,096 characters at most, of which a pair needs about 400.
_MOST_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class FirstStart:
    """
    When a group's mirror started first, and what it has selected since.

    Attributes:
        at_ms: Unix time in milliseconds.
        selections: ``(--topics, --exclude)`` of the starts so far; none if they are too long to be kept.

    """

    at_ms: int
    selections: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def now(cls) -> FirstStart:
        return cls(int(time.time() * 1000))

    def selecting(self, selection: TopicSelection) -> FirstStart:
        """Return it with what this start selects."""
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
        """Whether a topic of that name was selected; if that is not known, it counts as selected."""
        return not self.selections or any(_matches(*each, topic) for each in self.selections)

    def to_text(self) -> str:
        return json.dumps([self.at_ms, self.selections], separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> FirstStart:
        """
        Read what :meth:`to_text` returned.

        Raises:
            ValueError: It is something else.

        """
        return cls.from_json_object(json.loads(text))

    @classmethod
    def from_json_object(cls, values: Any) -> FirstStart:
        """
        Read the JSON of :meth:`to_text`.

        Raises:
            ValueError: It is something else.

        """
        match values:
            case [int(at_ms), list(selections)] if 0 <= at_ms < 2**63:
                return cls(at_ms, tuple(_selection(each) for each in selections))
        raise ValueError(f"{values!r} is no first start")

    def to_json_object(self) -> Any:
        return [self.at_ms, [list(each) for each in self.selections]]


def _selection(values: Any) -> tuple[str, str | None]:
    match values:
        case [str(topics), str() | None as exclude]:
            return topics, exclude
    raise ValueError(f"{values!r} is no selection of topics")


def _matches(topics: str, exclude: str | None, topic: TopicMetadata) -> bool:
    try:
        return TopicSelection(topics, exclude).matches(topic)
    except ConfigError:
        return True  # anybody may commit to a group


def start_mark(offset: int, first_start: FirstStart) -> Committed:
    """Return the position that makes a partition begin at an offset."""
    return Committed(offset, _MARK + first_start.to_text())


def is_start_mark(committed: Committed) -> bool:
    return committed.metadata.startswith(_MARK)


def remembering(offset: int, first_start: FirstStart | None) -> Committed:
    """Return an ordinary position that remembers the first start, too."""
    return Committed(offset, _OFFSET + first_start.to_text() if first_start else "")


def read_first_start(committed: Committed) -> FirstStart | None:
    """Return what a start mark or an ordinary position remembers; None if nothing."""
    for prefix in (_MARK, _OFFSET):
        if committed.metadata.startswith(prefix):
            try:
                return FirstStart.from_text(committed.metadata.removeprefix(prefix))
            except (ValueError, RecursionError):
                return None
    return None

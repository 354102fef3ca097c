"""Source offsets at which a partition does not get on, while nothing shows yet whether that will pass."""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from typing import NamedTuple

from ...timing import Timing

__all__ = ["Trouble", "Troubles"]


class Trouble(enum.Enum):
    """Sorts of trouble at an offset."""

    #: The batch is damaged, or refused with the cause.
    EXPLAINED = enum.auto()
    #: The batch is refused without a cause.
    UNEXPLAINED = enum.auto()
    #: The source's answers have no records.
    SILENCE = enum.auto()
    #: The source does not have the topic.
    NO_SOURCE = enum.auto()


class Spell(NamedTuple):
    """
    The same trouble at one offset, several times.

    Attributes:
        offset: The offset.
        since: When it was met first.
        last_at: When it was met last, on the monotonic clock.
        times: How often it was met.
        lasted_s: For how long, without outages in between.

    """

    offset: int
    since: datetime
    last_at: float
    times: int = 1
    lasted_s: float = 0.0


class Troubles:
    """The troubles of one partition: of each sort the last one, since offsets are passed in their order."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._spells: dict[Trouble, Spell] = {}

    def meet(self, offset: int, trouble: Trouble) -> Spell:
        """Count a trouble at an offset; return how often and how long it was met there."""
        now, before = self._timing.clock.monotonic(), self.at(offset, trouble)
        if before is None:
            spell = Spell(offset, datetime.now(UTC), now)
        else:
            lasted_s = before.lasted_s + min(now - before.last_at, self._timing.most_between_answers_s)
            spell = Spell(offset, before.since, now, before.times + 1, lasted_s)
        self._spells[trouble] = spell
        return spell

    def at(self, offset: int, trouble: Trouble) -> Spell | None:
        """Return a trouble that was met at an offset; None if there was none, or only long ago."""
        spell = self._spells.get(trouble)
        if spell is None or spell.offset != offset:
            return None
        passes = trouble in {Trouble.EXPLAINED, Trouble.UNEXPLAINED}
        quiet_for_s = self._timing.clock.monotonic() - spell.last_at
        return None if passes and quiet_for_s >= self._timing.forget_refusal_s else spell

    def end(self, trouble: Trouble) -> None:
        """Forget a trouble that has passed."""
        self._spells.pop(trouble, None)

    def clear(self) -> None:
        """Forget all: the log is another one."""
        self._spells.clear()

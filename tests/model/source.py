"""A model of resuming from a source that changed: it loses records, or shows less for a while.

A producer writes updates of a few keys to the source. The mirror copies some of
them and crashes, without a committed position after the first offset. If a later
update has the same key, compaction may remove an update. Another leader may be
elected, which does not show all of its log at first. Then the next process has to
find the end of the copy from the contents of both sides.

The model is smaller than reality: few updates, two keys, and no timestamps, so
that an update may be repeated exactly. In one way it is larger: compaction may
remove any such update, at any time, and leave any other.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from .search import Found, search

__all__ = ["Compaction", "SourceRule", "check_source"]

#: A key and its value; the first key has two.
UPDATES = ("K1", "K2", "f1")


class SourceRule(enum.Enum):
    """Rules that the mirror keeps or not."""

    COMPARE_ALL = "compare all that was written with what the source still has, not its number and its last"
    ONLY_HARMLESS = "of several places go on at the last only if that leaves no older value of a key"
    AWAIT_LEADER = "do not believe that the source ends before where its leader was elected"


class Log(NamedTuple):
    """The source.

    Attributes:
        updates: All updates ever written, by offset.
        lost: The offsets that compaction removed.
        shown: The end of the log that the leader shows.
    """

    updates: tuple[str, ...] = ()
    lost: frozenset[int] = frozenset()
    shown: int | None = None

    def left(self) -> tuple[tuple[int, str], ...]:
        """Return the updates that the leader shows, with offsets."""
        shown = len(self.updates) if self.shown is None else self.shown
        return tuple(
            (offset, update) for offset, update in enumerate(self.updates[:shown]) if offset not in self.lost
        )


class State(NamedTuple):
    """Both sides.

    Attributes:
        source: Its log.
        copied: The destination's log.
        process: 0 writes, 1 resumes, 2 continues.
        position: The position at which the second process continues.
        stopped: The reason for which it does not continue.
    """

    source: Log
    copied: tuple[str, ...] = ()
    process: int = 0
    position: int | None = None
    stopped: str | None = None


@dataclass(frozen=True)
class Compaction:
    """The model's transitions, by rules.

    Attributes:
        rules: The rules that the mirror keeps.
        updates: Number of updates in the source.
    """

    rules: frozenset[SourceRule]
    updates: int = 5

    @property
    def initial(self) -> State:
        return State(Log())

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        source = state.source
        if state.process == 0:
            if len(source.updates) < self.updates:
                for update in UPDATES:
                    after = source._replace(updates=(*source.updates, update))
                    yield f"{update} is written to the source", state._replace(source=after)
            elif len(state.copied) < len(source.updates):
                update = source.updates[len(state.copied)]
                yield f"{update} is mirrored", state._replace(copied=(*state.copied, update))
                if state.copied:
                    yield "the mirror dies", state._replace(process=1)
        elif state.process == 1 and not state.stopped:
            yield from self._changes(state)
            yield from self._resume(state)
        elif state.process == 2:
            yield from self._copy(state)

    def _changes(self, state: State) -> Iterator[tuple[str, State]]:
        source = state.source
        for offset, update in enumerate(source.updates):
            later = (
                each[0]
                for number, each in enumerate(source.updates)
                if number > offset and number not in source.lost
            )
            if offset not in source.lost and update[0] in later:
                after = source._replace(lost=source.lost | {offset})
                yield f"compaction takes {update} at {offset}", state._replace(source=after)
        if source.shown is None and len(state.copied) > 1:
            shown = len(state.copied) - 1
            after = source._replace(shown=shown)
            yield f"a new leader shows the source up to {shown}", state._replace(source=after)
        elif source.shown is not None and source.shown < len(source.updates):
            after = source._replace(shown=len(source.updates))
            yield "the new leader shows all", state._replace(source=after)

    def _resume(self, state: State) -> Iterator[tuple[str, State]]:
        source, written = state.source, state.copied
        shown = source.shown
        if SourceRule.AWAIT_LEADER in self.rules and shown is not None and shown < len(source.updates):
            return
        position = self._compare(state) if SourceRule.COMPARE_ALL in self.rules else _count(source, written)
        if isinstance(position, str):
            yield f"stops: {position}", state._replace(stopped=position)
        else:
            yield f"continues at {position}", state._replace(process=2, position=position)

    def _compare(self, state: State) -> int | str:
        left, written = state.source.left(), state.copied
        places = places_of(left, written, _end(state.source))
        if not places:
            return "nothing fits"
        first, last = min(places), max(places)
        newest = {update[0]: update for update in written}
        between = {update[0]: update for _, update in left[first:last]}
        is_harmless = all(newest.get(key) == update for key, update in between.items())
        if not is_harmless and SourceRule.ONLY_HARMLESS in self.rules:
            return "several places fit"
        return left[last - 1][0] + 1 if last else len(written)

    def _copy(self, state: State) -> Iterator[tuple[str, State]]:
        assert state.position is not None
        rest = [each for each in state.source.left() if each[0] >= state.position]
        if rest:
            offset, update = rest[0]
            copied = (*state.copied, update)
            yield f"{update} is mirrored", state._replace(copied=copied, position=offset + 1)

    def violation_of(self, state: State) -> str | None:
        """Return the violation after everything is mirrored."""
        if self.ending_of(state) != "done":
            return None
        ever, copied = state.source.updates, state.copied
        left = tuple(update for _, update in state.source.left())
        if not _is_in_order_in(copied, ever):
            return "doubled"
        if not _is_in_order_in(left, copied):
            return "lost"
        if {update[0]: update for update in copied} != {update[0]: update for update in ever}:
            return "older value"
        return None

    def ending_of(self, state: State) -> str | None:
        """Return the ending of the second process, if it has ended."""
        if state.stopped:
            return state.stopped
        return "done" if state.process == 2 and not list(self._copy(state)) else None


def _end(source: Log) -> int:
    return len(source.updates) if source.shown is None else source.shown


def _count(source: Log, written: tuple[str, ...]) -> int | str:
    """Skip as many updates as were written; the last of them has to be the last written one."""
    left = source.left()
    if len(left) < len(written) or left[len(written) - 1][1] != written[-1]:
        return "nothing fits"
    return left[len(written) - 1][0] + 1


@cache
def places_of(left: tuple[tuple[int, str], ...], written: tuple[str, ...], end: int) -> frozenset[int]:
    """Return how many of the remaining updates may lie before the mirror's position."""
    at = dict(left)

    @cache
    def reachable(offset: int, number: int) -> frozenset[int]:
        behind = sum(each < offset for each in at)
        found = frozenset({behind}) if number == len(written) else frozenset()
        if offset == end:
            return found
        if offset in at:
            matches = number < len(written) and written[number] == at[offset]
            return found | (reachable(offset + 1, number + 1) if matches else frozenset())
        lost = reachable(offset + 1, number + 1) if number < len(written) else frozenset()
        return found | lost | reachable(offset + 1, number)

    return reachable(0, 0)


def _is_in_order_in(some: tuple[str, ...], everything: tuple[str, ...]) -> bool:
    rest = iter(everything)
    return all(each in rest for each in some)


def check_source(model: Compaction) -> Found[State]:
    """Search all states."""
    return search(model.initial, model.steps, model.violation_of, model.ending_of)

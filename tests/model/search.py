"""Breadth-first search through all states; the first trace to a state is a shortest one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Found", "search"]

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Found(Generic[S]):
    """The result of a search.

    Attributes:
        states: Number of different states reached.
        violation: The violation in the first bad state; None if there is none.
        trace: Labels of the transitions on the shortest way to it.
        endings: The mirror's possible endings, with the shortest trace to each.
        trapped: The shortest trace to a state from which no ending can be reached; None if there is none,
            or if the search did not have to find it.
    """

    states: int
    violation: str | None
    trace: tuple[str, ...]
    endings: dict[str, tuple[str, ...]]
    trapped: tuple[str, ...] | None = None


def search(
    initial: S,
    steps: Callable[[S], Iterable[tuple[str, S]]],
    violation_of: Callable[[S], str | None],
    ending_of: Callable[[S], str | None],
    *,
    must_end: bool = False,
) -> Found[S]:
    """Visit every reachable state, or stop at the first violation.

    Args:
        initial: The first state.
        steps: Returns the transitions of a state: a label, and the state after it.
        violation_of: Returns a state's violation.
        ending_of: Returns the name of a state's ending; the search also continues from such states.
        must_end: Whether to look for a state from which no ending can be reached.
    """
    # The state from which each state was first reached, in the order of discovery: a list of numbers costs
    # less than a dict of states.
    number_of = {initial: 0}
    queue = [initial]
    came_from: list[tuple[int, str]] = [(0, "")]
    endings: dict[str, tuple[str, ...]] = {}
    ended: list[int] = []
    # The numbers of the states from which each state can be reached in one step.
    before: list[list[int]] = [[]]

    def trace_to(number: int) -> tuple[str, ...]:
        labels = []
        while number:
            number, label = came_from[number]
            labels.append(label)
        return tuple(reversed(labels))

    # The loop extends the queue.
    for number, state in enumerate(queue):
        for label, following in steps(state):
            known = number_of.get(following)
            if known is not None:
                if must_end:
                    before[known].append(number)
                continue
            number_of[following] = new = len(queue)
            queue.append(following)
            came_from.append((number, label))
            if must_end:
                before.append([number])
            violation = violation_of(following)
            if violation:
                return Found(len(queue), violation, trace_to(new), endings)
            ending = ending_of(following)
            if ending:
                ended.append(new)
                if ending not in endings:
                    endings[ending] = trace_to(new)
    trapped = _first_trapped(before, ended) if must_end else None
    return Found(len(queue), None, (), endings, None if trapped is None else trace_to(trapped))


def _first_trapped(before: list[list[int]], ended: list[int]) -> int | None:
    """Return the first state that leads to none of some others."""
    leads = [False] * len(before)
    for number in ended:
        leads[number] = True
    reached = list(ended)
    while reached:
        for number in before[reached.pop()]:
            if not leads[number]:
                leads[number] = True
                reached.append(number)
    return leads.index(False) if False in leads else None

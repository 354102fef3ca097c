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
    """

    states: int
    violation: str | None
    trace: tuple[str, ...]
    endings: dict[str, tuple[str, ...]]


def search(
    initial: S,
    steps: Callable[[S], Iterable[tuple[str, S]]],
    violation_of: Callable[[S], str | None],
    ending_of: Callable[[S], str | None],
) -> Found[S]:
    """Visit every reachable state, or stop at the first violation.

    Args:
        initial: The first state.
        steps: Returns the transitions of a state: a label, and the state after it.
        violation_of: Returns a state's violation.
        ending_of: Returns the name of a state's ending; the search also continues from such states.
    """
    # The state from which each state was first reached, in the order of discovery: a list of numbers costs
    # less than a dict of states.
    number_of = {initial: 0}
    queue = [initial]
    came_from: list[tuple[int, str]] = [(0, "")]
    endings: dict[str, tuple[str, ...]] = {}

    def trace_to(number: int) -> tuple[str, ...]:
        labels = []
        while number:
            number, label = came_from[number]
            labels.append(label)
        return tuple(reversed(labels))

    # The loop extends the queue.
    for number, state in enumerate(queue):
        for label, following in steps(state):
            if following in number_of:
                continue
            number_of[following] = new = len(queue)
            queue.append(following)
            came_from.append((number, label))
            violation = violation_of(following)
            if violation:
                return Found(len(queue), violation, trace_to(new), endings)
            ending = ending_of(following)
            if ending and ending not in endings:
                endings[ending] = trace_to(new)
    return Found(len(queue), None, (), endings)

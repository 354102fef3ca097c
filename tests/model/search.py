"""Breadth-first search through everything that can happen; the first trace to a state is a shortest one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Found", "search"]

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Found(Generic[S]):
    """
    What a search came upon.

    Attributes:
        states: How many different states were reached.
        violation: What is wrong in the first bad state; None where there is none.
        trace: What happened on the shortest way there.
        endings: How the mirror can end, with the shortest trace to each.

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
    """
    Visit every state that can be reached, or stop at the first that is wrong.

    Args:
        initial: Where everything begins.
        steps: All that can happen in a state: a label, and the state after it.
        violation_of: What is wrong with a state.
        ending_of: A name for the way in which something ended here; states with one are gone on from.

    """
    # Where each state was first reached from, in the order of discovery: a list
    # of numbers costs less than a dict of states.
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

    # The queue grows while it is walked through.
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

"""Find the place at which two streams of batches, or of records, agree again. No I/O."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from ..records import Fingerprint
from .digest import Digest, Entry

__all__ = ["MeetingPoint", "Proof", "meeting_point"]

#: Look-alikes that are tried as the place to meet again: a topic may repeat
#: one batch without end.
_MOST_CANDIDATES = 16

#: After this many that agree in a row, two streams may be in step again.
_CONFIRMING_RUN = 3


class Proof(enum.Enum):
    """How much has to agree from a place on."""

    #: More in a row than are stepped over: of two runs that changed places,
    #: the first one is not taken for the records behind both.
    LONG = enum.auto()
    #: A few in a row.
    SHORT = enum.auto()
    #: One. A last resort.
    NONE = enum.auto()


E = TypeVar("E", Digest, Entry)


class MeetingPoint(NamedTuple):
    """How many batches or records to step over on each side until they agree again."""

    source: int
    destination: int

    @property
    def distance(self) -> int:
        """How many to step over altogether."""
        return self.source + self.destination


def meeting_point(
    source: Sequence[E],
    destination: Sequence[E],
    agree: Callable[[E, E], bool],
    *,
    begins: Callable[[E, E], bool] | None = None,
    are_the_last: bool,
    proof: Proof,
    may_be_here: bool = False,
) -> MeetingPoint | None:
    """
    Find the nearest place at which two sides agree again.

    Args:
        source: The next ones of the source.
        destination: The next ones of the destination.
        agree: Whether one of the source may be one of the destination.
        begins: Whether the place may be at these two; by default, if they agree.
        are_the_last: Nothing follows on either side: a run to the end of both
            needs no further proof.
        proof: How much has to agree. If the same number is stepped over on both sides, as many as that
            have to, or a few: those before are altered in their places.
        may_be_here: Whether the place may be at the first of both: these were not compared yet.

    """
    places = _LikePlaces(destination, begins or agree)
    best: MeetingPoint | None = None
    for i, each in enumerate(source):
        if best is not None and i >= best.distance:
            break
        for j in places.of(each, i):
            point = MeetingPoint(i, j)
            if point.distance == 0 and not may_be_here:
                # Whatever suggests these two, they were compared before.
                continue
            if best is not None and point.distance >= best.distance:
                break
            least = _least(proof, point)
            if _is_in_step(source, destination, agree, point, least, are_the_last):
                best = point
    return best


class _LikePlaces(Generic[E]):
    """The places of batches or records like a given one."""

    def __init__(self, those: Sequence[E], agree: Callable[[E, E], bool]) -> None:
        self._those: Sequence[E] = those
        self._agree: Callable[[E, E], bool] = agree
        self._by_fingerprint = defaultdict[Fingerprint | None, list[int]](list)
        self._by_time = defaultdict[int | None, list[int]](list)
        for index, each in enumerate(those):
            if each.fingerprint is not None:
                _add(self._by_fingerprint[each.fingerprint], index)
            if each.first_timestamp is not None:
                _add(self._by_time[each.first_timestamp], index)

    def of(self, each: E, index: int) -> Iterator[int]:
        """Yield the places of those that agree with this one, ascending; ``index`` is its own place."""
        found: list[int] = self._by_fingerprint.get(each.fingerprint, [])
        found = found or self._by_time.get(each.first_timestamp, [])
        if index not in found and index < len(self._those):
            # If neither bytes nor time can be looked up, nothing but the
            # same place suggests that two are the same.
            found = sorted([*found, index])
        for place in found:
            if self._agree(each, self._those[place]):
                yield place


def _add(places: list[int], index: int) -> None:
    if len(places) < _MOST_CANDIDATES:
        places.append(index)


def _least(proof: Proof, point: MeetingPoint) -> int:
    if proof is Proof.NONE:
        return 1
    if point.source == point.destination:
        # One would be an accident behind many, in a topic that repeats itself.
        return max(1, min(point.source, _CONFIRMING_RUN))
    return max(_CONFIRMING_RUN, point.distance + 1 if proof is Proof.LONG else 0)


def _is_in_step(
    source: Sequence[E],
    destination: Sequence[E],
    agree: Callable[[E, E], bool],
    point: MeetingPoint,
    least: int,
    are_the_last: bool,
) -> bool:
    left = len(source) - point.source, len(destination) - point.destination
    if min(left) < least and not (are_the_last and left[0] == left[1]):
        return False
    return all(
        agree(source[point.source + step], destination[point.destination + step])
        for step in range(min(*left, least))
    )

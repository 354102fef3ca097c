"""A stream of batches with a bounded look ahead, and where two such streams meet again."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ..errors import ShoalError
from ..records import Fingerprint
from .digest import Agreement, Digest, agree, resemble

__all__ = ["LookAhead", "MeetingPoint", "meeting_point"]

#: Look-alikes that are tried as the place to meet again; a topic may well
#: repeat one batch without end.
_MOST_CANDIDATES = 16

#: After this many batches that agree in a row, two streams are taken to be in step again.
_CONFIRMING_RUN = 3

#: So many of the batches that were taken are remembered.
_MOST_REMEMBERED = 64


class LookAhead:
    """
    One side's batches, with a look ahead of as many as are asked for.

    Attributes:
        position: The offset after the last batch taken.
        taken: The last batches taken.
        failure: What broke the stream off, once it has; then it has no more
            batches, but not because this is the end of the log.

    """

    def __init__(self, batches: Iterable[Digest], position: int) -> None:
        self.position = position
        self.taken: deque[Digest] = deque(maxlen=_MOST_REMEMBERED)
        self.failure: ShoalError | None = None
        self._rest = iter(batches)
        self._window: deque[Digest] = deque()
        self._ended = False

    def first(self) -> Digest | None:
        """Return the next batch and leave it there; None at the end."""
        if not self._window:
            self._fill(1)
        return self._window[0] if self._window else None

    def at(self, index: int) -> Digest | None:
        """Return the batch behind so many others and leave it there; None behind the end."""
        if index >= len(self._window):
            self._fill(index + 1)
        return self._window[index] if index < len(self._window) else None

    def replace(self, index: int, batch: Digest) -> None:
        """Put what is known better in a batch's place."""
        self._window[index] = batch

    def look(self, count: int) -> list[Digest]:
        """Return up to ``count`` of the next batches and leave them there."""
        self._fill(count)
        return list(islice(self._window, count))

    def _fill(self, count: int) -> None:
        if self._ended:
            return
        try:
            self._window.extend(islice(self._rest, max(0, count - len(self._window))))
        except ShoalError as error:
            self.failure = error
        self._ended = len(self._window) < count

    def ends_within(self, count: int) -> bool:
        """Whether no more than ``count`` batches are left, as far as has been looked."""
        return self._ended and self.failure is None and len(self._window) <= count

    def pop(self) -> Digest:
        """Take the next batch; there must be one."""
        batch = self._window.popleft()
        self.position = batch.next_offset
        self.taken.append(batch)
        return batch

    def take(self, count: int) -> list[Digest]:
        return [self.pop() for _ in range(count)]


class MeetingPoint(NamedTuple):
    """How many batches to step over on each side until they agree again."""

    source: int
    destination: int

    @property
    def distance(self) -> int:
        return self.source + self.destination


def meeting_point(
    source: Sequence[Digest], destination: Sequence[Digest], *, are_the_last: bool, confirmed: bool
) -> MeetingPoint | None:
    """
    Find where two sides agree again, stepping over as few batches as possible.

    What bytes prove comes before what headers speak for (:func:`resemble`).

    Args:
        source: The next batches of the source.
        destination: The next batches of the destination.
        are_the_last: Nothing follows on either side: a run to the end of both
            needs no further confirmation.
        confirmed: Only where several agree in a row, or the same number is
            stepped over on both sides. Else one is enough: a last resort.

    """
    for belong in (_agree, resemble):
        point = _meeting_point(source, destination, belong, are_the_last, confirmed)
        if point is not None or not source or source[0].is_record:
            return point
    return None


def _agree(source: Digest, destination: Digest) -> bool:
    return agree(source, destination) is not Agreement.NONE


#: Whether a source batch and a destination batch are taken to hold the same.
_Belong = Callable[[Digest, Digest], bool]


def _meeting_point(
    source: Sequence[Digest],
    destination: Sequence[Digest],
    belong: _Belong,
    are_the_last: bool,
    confirmed: bool,
) -> MeetingPoint | None:
    places = _Places(destination, belong)
    best: MeetingPoint | None = None
    for i, batch in enumerate(source):
        if best is not None and i >= best.distance:
            break
        for j in places.of(batch, i):
            point = MeetingPoint(i, j)
            if point.distance == 0:
                # Whatever speaks for these two, they were compared before.
                continue
            if best is not None and point.distance >= best.distance:
                break
            if not confirmed or i == j or _is_in_step(source, destination, belong, point, are_the_last):
                best = point
    return best


class _Places:
    """Where batches like a given one are."""

    def __init__(self, batches: Sequence[Digest], belong: _Belong) -> None:
        self._batches = batches
        self._belong = belong
        self._by_fingerprint: dict[Fingerprint | None, list[int]] = defaultdict(list)
        self._by_time: dict[int | None, list[int]] = defaultdict(list)
        for index, batch in enumerate(batches):
            _add(self._by_fingerprint[batch.fingerprint], index)
            _add(self._by_time[batch.first_timestamp], index)

    def of(self, batch: Digest, index: int) -> Iterator[int]:
        """Yield the places of batches that agree with this one, ascending; ``index`` is its own place."""
        found = self._by_fingerprint.get(batch.fingerprint) or self._by_time.get(batch.first_timestamp) or []
        if index not in found and index < len(self._batches):
            # Where neither bytes nor time can be looked up, nothing but the
            # same place speaks for two batches.
            found = sorted([*found, index])
        for place in found:
            if self._belong(batch, self._batches[place]):
                yield place


def _add(places: list[int], index: int) -> None:
    if len(places) < _MOST_CANDIDATES:
        places.append(index)


def _is_in_step(
    source: Sequence[Digest],
    destination: Sequence[Digest],
    belong: _Belong,
    point: MeetingPoint,
    are_the_last: bool,
) -> bool:
    left = min(len(source) - point.source, len(destination) - point.destination)
    for step in range(min(left, _CONFIRMING_RUN)):
        if not belong(source[point.source + step], destination[point.destination + step]):
            return False
    if left >= _CONFIRMING_RUN:
        return True
    return are_the_last and len(source) - point.source == len(destination) - point.destination

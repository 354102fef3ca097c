"""
Where two logs have the same in common first, if nobody says so. No I/O.

The one that begins later is found in the other: a few of its first batches
(its *head*) are looked for in the stream of the other, and the other way
round, both at the same time. A run of batches that agree is needed, since one
batch may well be repeated; and the first batch itself may be altered or missing.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ...records import Fingerprint
from .digest import Agreement, Digest, agree, likeness, resemble

__all__ = ["HEAD_BATCHES", "CommonStart", "common_start"]

#: So many of a log's first batches are looked for.
HEAD_BATCHES = 64

#: So many that agree in a row are proof enough to look no further.
_PROOF_BATCHES = 8


class CommonStart(NamedTuple):
    """Offsets from which two logs are to be compared."""

    source: int
    destination: int


def common_start(
    source_head: Sequence[Digest],
    destination_head: Sequence[Digest],
    source: Iterable[Digest],
    destination: Iterable[Digest],
    *,
    from_the_start: bool = True,
    source_is_whole: bool = False,
) -> CommonStart | None:
    """
    Find the first place that two logs have in common.

    Args:
        source_head: The source's first batches, up to :data:`HEAD_BATCHES`.
        destination_head: Likewise.
        source: Where to look for the destination's head.
        destination: Where to look for the source's head.
        from_the_start: Whether both streams begin where the logs do. If not,
            only a whole head counts: its beginning may have been passed over.
        source_is_whole: Whether nothing was ever deleted from the source's
            beginning.

    Returns:
        Where to begin. What only the source has before that is a later start
        of the mirror. What only the destination has before the first batch in
        common is left out too if it may have been deleted from the source; if
        not, the destination's beginning is returned. None where no batch of
        either head is on the other side. Both streams are read at the same
        pace, and no further than needed.

    """
    in_source = _Search(destination_head, only_whole=not from_the_start)
    in_destination = _Search(source_head, only_whole=not from_the_start)
    _run({in_source: iter(source), in_destination: iter(destination)})
    ours, theirs = in_source.best, in_destination.best
    if ours and (not theirs or ours.weight >= theirs.weight):
        found, source_has_more = CommonStart(ours.in_stream, ours.in_head), ours.is_preceded_in_stream
    elif theirs:
        found, source_has_more = CommonStart(theirs.in_head, theirs.in_stream), theirs.is_preceded_in_head
    else:
        return None
    if source_has_more or source_is_whole:
        # It was not deleted from the source, which begins before that.
        return found._replace(destination=destination_head[0].base_offset)
    return found


def _run(searches: dict[_Search, Iterator[Digest]]) -> None:
    """Search in all streams at the same pace, until one is sure or all are at their ends."""
    while searches:
        for search, batches in list(searches.items()):
            batch = next(batches, None)
            if batch is not None:
                search.see(batch)
            else:
                search.see_end()
                del searches[search]
            if search.is_sure:
                return


class _Hit(NamedTuple):
    """
    A place where a head was found in a stream.

    Attributes:
        run: How many batches belong together in a row.
        proven: How many of them for sure.
        in_stream: The first offset of the stream that has its like in the head.
        in_head: The first offset of the head that has its like in the stream.
        is_preceded_in_stream: Whether the stream has batches before that.
        is_preceded_in_head: Whether the head has.

    """

    run: int
    proven: int
    in_stream: int
    in_head: int
    is_preceded_in_stream: bool
    is_preceded_in_head: bool

    @property
    def weight(self) -> tuple[int, int]:
        """What bytes prove counts before what headers speak for."""
        return self.proven, self.run


class _Search:
    """Looks for a head in a stream of batches."""

    def __init__(self, head: Sequence[Digest], *, only_whole: bool) -> None:
        self.best: _Hit | None = None
        self._head = head
        self._only_whole = only_whole
        self._proof = min(_PROOF_BATCHES, len(head))
        self._by_fingerprint: dict[Fingerprint | None, list[int]] = defaultdict(list)
        self._by_time: dict[int | None, list[int]] = defaultdict(list)
        for index, batch in enumerate(head):
            self._by_fingerprint[batch.fingerprint].append(index)
            self._by_time[batch.first_timestamp].append(index)
        self._first_offset: int | None = None
        self._passed: deque[Digest] = deque(maxlen=HEAD_BATCHES)
        self._window: deque[Digest] = deque()

    @property
    def is_sure(self) -> bool:
        return self.best is not None and self.best.proven >= self._proof

    def see(self, batch: Digest) -> None:
        """Take the next batch of the stream."""
        if self._first_offset is None:
            self._first_offset = batch.base_offset
        self._window.append(batch)
        if len(self._window) >= self._proof:
            self._try_first()

    def see_end(self) -> None:
        """The stream is at its end: shorter runs count too."""
        while self._window and not self.is_sure:
            self._try_first()

    def _try_first(self) -> None:
        if not self._head:
            self._window.clear()
            return
        first = self._window[0]
        places = self._by_fingerprint.get(first.fingerprint) or self._by_time.get(first.first_timestamp) or ()
        for place in places:
            if self._only_whole and place:
                continue
            run, proven = self._run(place)
            if run and (proven, run) > (self.best.weight if self.best else (0, 0)):
                self.best = self._hit(run, proven, place)
        self._passed.append(self._window.popleft())

    def _run(self, place: int) -> tuple[int, int]:
        """
        Return how many batches belong together one after the other, and how many of them for sure.

        From the first in the window, and the one of the head at ``place`` on.
        """
        run = proven = 0
        times = set()
        for ours, theirs in zip(self._window, self._head[place:], strict=False):
            if not resemble(ours, theirs):
                break
            run += 1
            proven += agree(ours, theirs) is Agreement.SAME
            times.add(ours.first_timestamp)
        # As many different times in the same order are no accident either.
        return run, run if run == self._proof == len(times) else proven

    def _hit(self, run: int, proven: int, place: int) -> _Hit:
        """Return where stream and head begin to belong together, if the batch at ``place`` was found now."""
        before = self._head[:place]
        pairs = [(one, other) for one in self._passed for other in before if resemble(one, other)]
        if not pairs:
            # Altered perhaps; but only what is near.
            near = islice(reversed(self._passed), place)
            pairs = [
                (one, other)
                for one in near
                for other in before
                if likeness(one) == likeness(other) is not None
            ]
        pairs.append((self._window[0], self._head[place]))
        in_stream = min(one.base_offset for one, _ in pairs)
        in_head = min(other.base_offset for _, other in pairs)
        return _Hit(
            run,
            proven,
            in_stream,
            in_head,
            in_stream != self._first_offset,
            in_head != self._head[0].base_offset,
        )

"""
Where two logs have the same in common first, if nobody says so. No I/O.

The one that begins later is found in the other: a few of its first batches
(its *head*) are looked for in the stream of the other, and the other way
round, both at the same time. A run of batches that agree is needed, since one
batch may well be repeated; and the first batch itself may be altered or missing.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from ...records import Fingerprint
from .digest import Agreement, Digest, agree, likeness

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
            beginning: what the destination has before it is extra.

    Returns:
        Offsets of batches that belong together; None where no batch of either
        head is on the other side. Both streams are read at the same pace, and
        no further than needed.

    """
    in_source = _Search(destination_head, from_the_start=from_the_start, is_whole=source_is_whole)
    in_destination = _Search(source_head, from_the_start=from_the_start, is_whole=False)
    searches = [(in_source, iter(source)), (in_destination, iter(destination))]
    while searches:
        for search, batches in list(searches):
            batch = next(batches, None)
            if batch is not None:
                search.see(batch)
            else:
                search.see_end()
                searches.remove((search, batches))
            if search.is_sure:
                searches.clear()
                break
    ours, theirs = in_source.best, in_destination.best
    if ours and (not theirs or ours.run >= theirs.run):
        return CommonStart(ours.offset, ours.head_offset)
    return CommonStart(theirs.head_offset, theirs.offset) if theirs else None


class _Hit(NamedTuple):
    """A place where a head was found: how many batches agree, and offsets that belong together."""

    run: int
    offset: int
    head_offset: int


class _Search:
    """Looks for a head in a stream of batches."""

    def __init__(self, head: Sequence[Digest], *, from_the_start: bool, is_whole: bool) -> None:
        self.best: _Hit | None = None
        self._head = head
        self._whole_head = not from_the_start
        self._is_whole = is_whole
        self._proof = min(_PROOF_BATCHES, len(head))
        self._by_fingerprint: dict[Fingerprint | None, list[int]] = defaultdict(list)
        self._by_time: dict[int | None, list[int]] = defaultdict(list)
        for index, batch in enumerate(head):
            self._by_fingerprint[batch.fingerprint].append(index)
            self._by_time[batch.first_timestamp].append(index)
        self._passed: deque[Digest] = deque(maxlen=HEAD_BATCHES)
        self._window: deque[Digest] = deque()

    @property
    def is_sure(self) -> bool:
        return self.best is not None and self.best.run >= self._proof

    def see(self, batch: Digest) -> None:
        """Take the next batch of the stream."""
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
            run = 0 if self._whole_head and place else self._run(place)
            if run > (self.best.run if self.best else 0):
                self.best = _Hit(run, *self._begin(place))
        self._passed.append(self._window.popleft())

    def _run(self, place: int) -> int:
        """Return how many batches agree one after the other, from the first in the window on."""
        run = 0
        for ours, theirs in zip(self._window, self._head[place:], strict=False):
            if agree(ours, theirs) is Agreement.NONE:
                break
            run += 1
        return run

    def _begin(self, place: int) -> tuple[int, int]:
        """
        Return where stream and head begin to belong together, if a batch of the head was found.

        Where one of the batches before it has passed, perhaps altered, the
        head begins there. Where nothing has passed, the stream begins later
        than the head, and what is before it in the head was deleted from it;
        if nothing ever was, it never was in the stream.

        """
        before = self._head[:place]
        first = self._head[0].base_offset
        for passed in self._passed:
            if any(agree(passed, batch) is Agreement.SAME for batch in before):
                return passed.base_offset, first
        for passed in islice(reversed(self._passed), place):
            if any(_may_belong_together(passed, batch) for batch in before):
                return passed.base_offset, first
        if self._passed or self._is_whole:
            return self._window[0].base_offset, first
        kept = next(batch for batch in self._head if self._is_in_window(batch))
        return self._window[0].base_offset, kept.base_offset

    def _is_in_window(self, batch: Digest) -> bool:
        return any(agree(passing, batch) is not Agreement.NONE for passing in self._window)


def _may_belong_together(one: Digest, other: Digest) -> bool:
    return agree(one, other) is not Agreement.NONE or likeness(one) == likeness(other) is not None

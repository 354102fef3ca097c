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
) -> CommonStart | None:
    """
    Find the first place that two logs have in common.

    Args:
        source_head: The source's first batches, up to :data:`HEAD_BATCHES`.
        destination_head: Likewise.
        source: Where to look for the destination's head.
        destination: Where to look for the source's head.

    Returns:
        Offsets of batches that belong together; None where no batch of either
        head is on the other side. Both streams are read at the same pace, and
        no further than needed.

    """
    in_source, in_destination = _Search(destination_head), _Search(source_head)
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
    hits = [search.best for search in (in_source, in_destination)]
    if hits[0] and (not hits[1] or hits[0].run >= hits[1].run):
        return CommonStart(hits[0].offset, destination_head[0].base_offset)
    return CommonStart(source_head[0].base_offset, hits[1].offset) if hits[1] else None


class _Hit(NamedTuple):
    """A place where a head was found: how many batches agree, and the offset that belongs to its first."""

    run: int
    offset: int


class _Search:
    """Looks for a head in a stream of batches."""

    def __init__(self, head: Sequence[Digest]) -> None:
        self.best: _Hit | None = None
        self._head = head
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
            run = self._run(place)
            if run > (self.best.run if self.best else 0):
                self.best = _Hit(run, self._offset_of_first(place))
        self._passed.append(self._window.popleft())

    def _run(self, place: int) -> int:
        """Return how many batches agree one after the other, from the first in the window on."""
        run = 0
        for ours, theirs in zip(self._window, self._head[place:], strict=False):
            if agree(ours, theirs) is Agreement.NONE:
                break
            run += 1
        return run

    def _offset_of_first(self, place: int) -> int:
        """
        Return where the head begins in the stream, in which the batch at ``place`` was found.

        Where one of the batches before it has passed, perhaps altered, that is it.

        """
        before = self._head[:place]
        for passed in self._passed:
            if any(agree(passed, batch) is Agreement.SAME for batch in before):
                return passed.base_offset
        for passed in islice(reversed(self._passed), place):
            if any(likeness(passed) == likeness(batch) is not None for batch in before):
                return passed.base_offset
        return self._window[0].base_offset

"""Offset maps of committed positions, compared with where the records are."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from shoal.mirroring.model.offset_map import Exactness, OffsetMap, Taken, TakenOffsets, Translation
from tests.two_brokers import batches_of

from .source import SourcePartition

__all__ = ["TakenNow", "wrong_translations"]

#: The most offsets of a map that are translated.
_MOST_OFFSETS = 12


class TakenNow:
    """The offsets that a copy takes of a source partition now, by what its producers wrote."""

    def __init__(self, partition: SourcePartition, *, reads_committed: bool) -> None:
        self._log = partition.log
        self._taken = sorted(
            each.offset
            for each in partition.of_this_topic
            if each.is_there and (each.is_shown or not reads_committed)
        )

    def count(self, first: int, end: int) -> TakenOffsets | None:
        """Count the offsets, as a mirror does that reads the log."""
        if first < self._log.log_start_offset:
            return None
        taken = [each for each in self._taken if first <= each < end]
        return TakenOffsets(len(taken), self._is_complete(first, end))

    def _is_complete(self, first: int, end: int) -> bool:
        explained = set(self._taken)
        for batch in batches_of(self._log):
            header = batch.header
            offsets = range(header.base_offset, header.next_offset)
            is_empty = header.is_control or (header.magic == 2 and not header.records_count)
            if is_empty or not explained.intersection(offsets):
                explained.update(offsets)
        return explained.issuperset(range(first, end))

    def nth(self, first: int, number: int) -> int:
        """Return the taken offset with a number."""
        return [each for each in self._taken if each >= first][number]


def wrong_translations(
    found: OffsetMap, taken: Taken, places: Sequence[tuple[int, int]], dice: random.Random, *, is_exact: bool
) -> Iterator[str]:
    """
    Yield what is wrong with some translations of a map.

    A consumer that continues at a translation misses no record. Behind an exact one it reads none again.

    Args:
        taken: The source.
        places: Source offset and copy's offset of each record of the copy.
        is_exact: Whether each offset before the position has an exact translation: no incident lies before
            it, and nothing has deleted records.

    """
    first, last = found.milestones[0], found.milestones[-1]
    edges = [each.source + by for each in found.milestones for by in (-1, 0, 1)]
    inside = [source for source, _ in places]
    for offset in _some([*edges, *inside], dice):
        translated = found.to_destination(offset, taken)
        wanted = [copy for source, copy in places if source >= offset]
        again = [copy for source, copy in places if source < offset]
        yield from _wrong(f"source offset {offset}", translated, wanted, again)
        if is_exact and first.source <= offset <= last.source and translated.exactness is not Exactness.EXACT:
            yield f"source offset {offset} is translated to {translated}, and nothing prevents an exact one"
    edges = [each.destination + by for each in found.milestones for by in (-1, 0, 1)]
    inside = [copy for _, copy in places]
    for offset in _some([*edges, *inside], dice):
        translated = found.to_source(offset, taken)
        wanted = [source for source, copy in places if copy >= offset]
        again = [source for source, copy in places if copy < offset]
        yield from _wrong(f"destination offset {offset}", translated, wanted, again)
        if (
            is_exact
            and first.destination <= offset <= last.destination
            and translated.exactness is not Exactness.EXACT
        ):
            yield f"destination offset {offset} is translated to {translated}, not exactly"


def _some(offsets: Sequence[int], dice: random.Random) -> list[int]:
    those = sorted({each for each in offsets if each >= 0})
    return dice.sample(those, min(_MOST_OFFSETS, len(those)))


def _wrong(what: str, translated: Translation, wanted: Sequence[int], again: Sequence[int]) -> Iterator[str]:
    offset, exactness = translated
    missed = [each for each in wanted if each < offset]
    if missed:
        yield f"{what} is translated to {translated}, behind {len(missed)} records from {min(missed)} on"
    repeated = [each for each in again if each >= offset]
    if repeated and exactness is Exactness.EXACT:
        yield f"{what} is translated to {translated}, before {len(repeated)} records up to {max(repeated)}"

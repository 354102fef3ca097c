"""Offset maps of committed positions, compared with where the records are."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from shoal.mirroring.model.counting import Counting, Piece
from shoal.mirroring.model.offset_map import Exactness, OffsetMap, Question, Translation
from tests.world.contents import batches_of

from .source import SourcePartition

__all__ = ["pieces_of", "translate", "wrong_translations"]

#: The most offsets of a map that are translated.
_MOST_OFFSETS = 12


def translate(
    offsets: OffsetMap, question: Question, pieces: Sequence[Piece], log_start: int = 0
) -> Translation:
    """Translate an offset by its map and, if that is not enough, by what the source has."""
    found = offsets.translate(question)
    for _ in range(2):
        around = offsets.around(question)
        if around is None:
            return found
        counting = Counting(*around, [question], log_start)
        for piece in pieces:
            counting.add(piece)
        counting.end_log()
        if (counted := counting.answers().get(question)) is not None:
            return counted if counted.exactness is Exactness.EXACT or counted.offset > found.offset else found
        if counting.log_begin is None:
            return found
        offsets = offsets.with_known([counting.log_begin])
    return found


def pieces_of(partition: SourcePartition, *, reads_committed: bool) -> list[Piece]:
    """Return the offsets that a copy takes of a source partition now, by what its producers wrote."""
    taken = {
        each.offset
        for each in partition.of_this_topic
        if each.is_there and (each.is_shown or not reads_committed)
    }
    pieces = []
    end_of_last = 0
    for batch in batches_of(partition.log):
        header = batch.header
        # Messages of older formats that are compressed together lie before the offset of their wrapper.
        offsets = range(header.base_offset if header.magic == 2 else end_of_last, header.next_offset)
        end_of_last = header.next_offset
        is_empty = header.is_control or (header.magic == 2 and not header.records_count)
        is_whole = is_empty or taken.isdisjoint(offsets)
        pieces += [
            Piece(each, each + 1, each in taken, is_complete=True)
            for each in offsets
            if each in taken or is_whole
        ]
    return pieces


def wrong_translations(
    found: OffsetMap,
    pieces: Sequence[Piece],
    places: Sequence[tuple[int, int]],
    dice: random.Random,
    *,
    log_start: int,
    is_exact: bool,
    is_counted: bool = True,
    certain_before: float = math.inf,
    refused: Collection[int] = (),
) -> Iterator[str]:
    """
    Yield what is wrong with some translations of a map.

    A consumer that continues at a translation misses no record. Behind an exact one it reads none again.

    Args:
        pieces: The source's offsets, see :func:`pieces_of`.
        places: Source offset and copy's offset of each record of the copy, which may have a record twice.
        log_start: The source's first offset.
        is_exact: Whether each offset before the position has an exact translation: no incident lies before
            it, and nothing has deleted records.
        is_counted: Whether that is so between milestones with a gap, too.
        certain_before: The source offset from which on records may be copied again.
        refused: The source offsets that the mirror named as refused: at the copy, consumers may miss them.

    """
    begin, end = found.milestones[0], found.milestones[-1]
    copies: dict[int, list[int]] = {}
    for source, copy in places:
        copies.setdefault(source, []).append(copy)

    def check(offset: int, *, is_source: bool) -> Iterator[str]:
        there, exactness = translate(found, Question(offset, is_source), pieces, log_start)
        may_miss = refused if is_source else ()
        missed, again = [], []
        for source, at in copies.items():
            is_wanted = (source if is_source else min(at)) >= offset
            reads = sum(each >= there for each in at) if is_source else source >= there
            if is_wanted and not reads and source < certain_before and source not in may_miss:
                missed.append(source)
            if reads > is_wanted:
                again.append(source)
        what = f"{'source' if is_source else 'destination'} offset {offset} is translated to {there}"
        if missed:
            yield f"{what}, behind {len(missed)} records from source offset {min(missed)} on"
        if again and exactness is Exactness.EXACT:
            yield f"{what}, and source offsets {again} are read again"
        first, last = (begin.source, end.source) if is_source else (begin.destination, end.destination)
        if is_source and not begin.destination:
            first = 0  # an empty copy: what lies before its mirror is at its beginning
        is_certain = is_counted or _is_without_a_gap(found, offset, is_source=is_source)
        if is_exact and is_certain and first <= offset <= last and exactness is not Exactness.EXACT:
            yield f"{what}, {exactness}, and nothing prevents an exact one"

    edges = [each.source + by for each in found.milestones for by in (-1, 0, 1)]
    for offset in _some([*edges, *copies], dice):
        yield from check(offset, is_source=True)
    edges = [each.destination + by for each in found.milestones for by in (-1, 0, 1)]
    for offset in _some([*edges, *(copy for _, copy in places)], dice):
        yield from check(offset, is_source=False)


def _is_without_a_gap(found: OffsetMap, offset: int, *, is_source: bool) -> bool:
    """Whether an offset lies between two milestones that are equally far apart at both sides."""
    return any(
        begin[not is_source] <= offset <= end[not is_source]
        and end.source - begin.source == end.destination - begin.destination
        for begin, end in pairwise(found.milestones)
    )


def _some(offsets: Sequence[int], dice: random.Random) -> list[int]:
    those = sorted({each for each in offsets if each >= 0})
    return dice.sample(those, min(_MOST_OFFSETS, len(those)))

"""
Extra records at the destination that are aborted transactions of the source.

A copy by a reader with ``read_uncommitted``, which is MirrorMaker 2's default,
has them. They are a difference, and the remedy is to verify with the copy's
isolation level.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from .alignment import LogPair
from .log_head import RecordKey
from .reading import LogReader
from .report import Difference, DifferenceKind, OffsetRange
from .seen_records import seen_records

__all__ = ["aborted_among"]

#: The most offsets of each log that are read to find them.
_MOST_OFFSETS = 131_072

#: The number of source offsets to read behind the last extra record: transactions may be interleaved.
_BEHIND = 4096


def aborted_among(
    differences: Sequence[Difference], logs: LogPair, uncommitted: LogReader
) -> set[OffsetRange]:
    """
    Return the destination offsets of the extra ranges that consist of aborted records of the source.

    Args:
        differences: The differences, by place. Those within the first 131,072 offsets are looked at.
        logs: Both logs; the source's is read without aborted records.
        uncommitted: Reads all of the source.

    """
    extra = [each for each in differences if each.kind is DifferenceKind.EXTRA and each.copy_of is None]
    if not extra:
        return set()
    begin = min(each.source.start for each in extra)
    end = max(each.source.start + each.records for each in extra) + _BEHIND
    here = OffsetRange(begin, min(end, begin + _MOST_OFFSETS, logs.end.source))
    kept = _keys(logs.source, here)
    aborted = {key for offset, keys in _keys(uncommitted, here).items() if offset not in kept for key in keys}
    first = min(each.destination.start for each in extra)
    last = max(each.destination.end for each in extra)
    there = _keys(logs.destination, OffsetRange(first, min(last, first + _MOST_OFFSETS)))
    return {each.destination for each in extra if _are_all(each.destination, there, aborted)}


def _keys(reader: LogReader, log: OffsetRange) -> dict[int, tuple[RecordKey, ...]]:
    """Return the keys of the records of a part of a log, by offset."""
    found = {}
    with closing(seen_records(reader, log)) as records:
        for record in records:
            if record.offset >= log.end:
                break
            found[record.offset] = record.keys
    return found


def _are_all(offsets: OffsetRange, there: dict[int, tuple[RecordKey, ...]], aborted: set[RecordKey]) -> bool:
    keys = [there.get(offset, ()) for offset in range(*offsets)]
    return all(not aborted.isdisjoint(each) for each in keys)

"""
Whether a source holds the first records of a copy in a second place.

A topic may repeat itself: records without a key, with the same value and the same timestamp. So if a copy did
not begin at the beginning of both logs, a comparison without a difference is no proof yet. No other place may
give the same result, and each such place begins with the copy's first records.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import closing
from itertools import islice

from ....client.config import IsolationLevel
from ....client.offsets import EARLIEST
from ....verify import OffsetRange, Side
from ....verify.log import Log, LogRecord
from ....verify.records import keys_of
from .logs import PartitionLogs

__all__ = ["are_distinct", "second_place"]

#: The number of consecutive records that are compared. A shorter copy is compared as a whole, so that the
#: answer is exact. In a longer one, a topic that repeats a thousand records in a row counts as one with two
#: places.
_MOST_RECORDS = 1000

#: If at least this number of different records, or of different times, is in the same order on both sides,
#: the records were mirrored.
_LEAST_DIFFERENT = 16
_LEAST_TIMES = 8


def second_place(
    logs: PartitionLogs,
    origin: tuple[int, int],
    source_log: OffsetRange,
    records: int,
) -> int | None:
    """
    Search the source for the first records of a copy.

    Args:
        logs: Both logs of the partition.
        origin: Their known place: a source and a destination offset.
        records: How many records the copy holds.

    Returns:
        Another source offset with which the copy could begin; None if there is none.

    """
    copied = OffsetRange(origin[1], logs.log.end)
    wanted = list(islice(_records(logs, Side.DESTINATION, copied), min(records, _MOST_RECORDS)))
    if not wanted:
        return None
    last_offset = source_log.end - records
    start = max(source_log.start, _first_at(logs, wanted[0]))
    window: deque[LogRecord] = deque(maxlen=len(wanted))
    for record in _records(logs, Side.SOURCE, OffsetRange(start, source_log.end)):
        window.append(record)
        if len(window) == len(wanted):
            place = window[0].offset
            if place > last_offset:
                return None
            if place != origin[0] and all(map(_are_same, window, wanted)):
                return place
    return None


def are_distinct(logs: PartitionLogs, source_log: OffsetRange, records: int) -> bool:
    """Whether so many records of the source differ enough to be recognized by."""
    found = islice(_records(logs, Side.SOURCE, source_log), min(records, _MOST_RECORDS))
    return _differ_enough([keys[0] for each in found if (keys := keys_of(each, Side.SOURCE))])


def _records(logs: PartitionLogs, side: Side, log: OffsetRange) -> Iterator[LogRecord]:
    """Yield the records of a part of a log, as verify compares them."""
    if side is Side.SOURCE:
        cluster, partition = logs.clusters.source, logs.copy.source
        level = logs.settings.source.isolation_level
    else:
        cluster, partition = logs.clusters.destination, logs.copy.destination
        level = IsolationLevel.READ_COMMITTED
    never = threading.Event()
    found = Log(side, cluster, partition, level, log, 0, never, logs.settings)
    with closing(found.records(*log)) as records:
        yield from records


def _are_same(ours: LogRecord, theirs: LogRecord) -> bool:
    """Whether a record of the copy may be that of the source."""
    return not set(keys_of(ours, Side.SOURCE)).isdisjoint(keys_of(theirs, Side.DESTINATION))


def _first_at(logs: PartitionLogs, first: LogRecord) -> int:
    """Return an offset before which no record has the time of the copy's first record."""
    keys = keys_of(first, Side.DESTINATION)
    time = keys[0][1] if keys else None
    offset = logs.source_offset_at(EARLIEST if time is None or time < 0 else time)
    if offset < 0:  # the copy has append times, and the source's index has none so late
        return logs.source_offset_at(EARLIEST)
    return offset


def _differ_enough(records: Collection[tuple[int, int | None]]) -> bool:
    """Whether records (hash and time of each) differ enough from each other to be recognized by."""
    return len(set(records)) >= _LEAST_DIFFERENT or len({time for _, time in records}) >= _LEAST_TIMES

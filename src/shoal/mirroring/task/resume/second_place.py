"""
Whether a source holds the first records of a copy in a second place.

A topic may repeat itself: records without a key, with the same value and the same timestamp. So if a copy did
not begin at the beginning of both logs, a comparison without a difference is no proof yet. No other place may
give the same result, and each such place begins with the copy's first records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from ....client.cluster import Cluster
from ....client.config import IsolationLevel
from ....client.offsets import EARLIEST
from ....client.scan import read_decided
from ....errors import UnsupportedBatch
from ....topic_partition import TopicPartition
from ....verify import OffsetRange
from .logs import PartitionLogs

__all__ = ["are_distinct", "second_place"]

#: So many records that follow each other are compared. The whole of a shorter copy, so that the answer is
#: exact; with more, a topic that repeats a thousand records in a row counts as one that has two places.
_MOST_RECORDS = 1000

#: So many different timestamps, or so many different records, are no accident in the same order.
_LEAST_TIMES = 8
_LEAST_DISTINCT = 16


class _Seen(NamedTuple):
    """
    A record as it is compared.

    Attributes:
        offset: Its offset.
        body: The hash of its key, value and headers.
        timestamp: Its create time.
        append_time: The append time of its batch, if that has one; a copy may have it for the other.

    """

    offset: int
    body: int
    timestamp: int
    append_time: tuple[int, ...]


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
        source_log: The source's log.
        records: How many records the copy holds.

    Returns:
        Another source offset with which the copy could begin; None if there is none.

    """
    source, level = logs.clusters.source, logs.settings.source.isolation_level
    wanted = _first_of(logs, origin[1], records)
    if not wanted:
        return None
    last_offset = source_log.end - records
    start = max(source_log.start, _first_at(logs, wanted[0]))
    window: deque[_Seen] = deque(maxlen=len(wanted))
    for record in _records(logs, source, logs.copy.source, start, level):
        window.append(record)
        if len(window) == len(wanted):
            place = window[0].offset
            if place > last_offset:
                return None
            if place != origin[0] and all(map(_may_be_copied_as, window, wanted)):
                return place
    return None


def are_distinct(logs: PartitionLogs, destination_offset: int, records: int) -> bool:
    """Whether the copy's records from an offset on differ enough to be recognized by."""
    found = _first_of(logs, destination_offset, records)
    times = {each.timestamp for each in found}
    return (
        len(times) >= _LEAST_TIMES or len({(each.body, each.timestamp) for each in found}) >= _LEAST_DISTINCT
    )


def _first_of(logs: PartitionLogs, destination_offset: int, records: int) -> list[_Seen]:
    level = IsolationLevel.READ_COMMITTED
    found = _records(logs, logs.clusters.destination, logs.copy.destination, destination_offset, level)
    return list(islice(found, min(records, _MOST_RECORDS)))


def _records(
    logs: PartitionLogs, cluster: Cluster, partition: TopicPartition, start: int, level: IsolationLevel
) -> Iterator[_Seen]:
    """Yield the records from an offset on; those of a batch that cannot be decoded are left out."""
    for decision, batch in read_decided(cluster, partition, start, level):
        if decision.is_drop:
            continue
        header = batch.header
        append_time = (header.max_timestamp,) if header.magic == 2 and header.is_log_append_time else ()
        with suppress(UnsupportedBatch):
            for record in logs.settings.decode(batch):
                if record.offset >= start:
                    yield _Seen(record.offset, hash(record.body), record.timestamp, append_time)


def _may_be_copied_as(source: _Seen, copy: _Seen) -> bool:
    """Whether a record of the copy may have been made of a record of the source."""
    if source.body != copy.body:
        return False
    # A destination that writes append times of its own has lost the source's.
    return bool(copy.append_time) or copy.timestamp in (source.timestamp, *source.append_time)


def _first_at(logs: PartitionLogs, first: _Seen) -> int:
    """Return an offset before which no record has the time of the copy's first record."""
    wanted = EARLIEST if first.append_time or first.timestamp < 0 else first.timestamp
    offset = logs.source_offset_at(wanted)
    if offset < 0:  # the copy has append times, and the source's index has none so late
        return logs.source_offset_at(EARLIEST)
    return offset

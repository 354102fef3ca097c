"""Records without their bytes: enough to compare those of both sides."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ....records import BatchHeader, Record

__all__ = ["RecordKey", "copied_key", "create_time_of", "differ_enough"]

#: If at least this number of different records, or of different times, is in the same order on both sides,
#: the records were mirrored.
_LEAST_DIFFERENT = 16
_LEAST_TIMES = 8


class RecordKey(NamedTuple):
    """
    The content of a record.

    Two different records with the same hash only look alike. That may add a place, and never hides one.

    Attributes:
        body: The hash of its key, value and headers.
        time: Its create time; None if it may have been replaced.

    """

    body: int
    time: int | None

    def is_same(self, other: RecordKey) -> bool:
        """Whether two records are equal, as far as their times are known."""
        return self.body == other.body and (self.time == other.time or None in (self.time, other.time))


def copied_key(header: BatchHeader, record: Record) -> RecordKey:
    """Return the key of a record at the destination, in a batch with this header."""
    return RecordKey(hash(record.body), create_time_of(header, record))


def create_time_of(header: BatchHeader, record: Record) -> int | None:
    """
    Return a record's create time; None if it may have been replaced.

    A cleaner that rewrites a LogAppendTime batch puts the append time into all its records.
    """
    is_replaced = header.magic == 2 and header.is_log_append_time and record.timestamp == header.max_timestamp
    return None if is_replaced else record.timestamp


def differ_enough(records: Collection[tuple[int, int | None]]) -> bool:
    """Whether records (hash and time of each) differ enough from each other to be recognized by."""
    return len(set(records)) >= _LEAST_DIFFERENT or len({time for _, time in records}) >= _LEAST_TIMES

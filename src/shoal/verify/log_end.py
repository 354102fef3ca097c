"""The end of a log, against a broker that finds no record of a time."""

from __future__ import annotations

from contextlib import closing

from .errors import NotComparable
from .reading import LogReader
from .report import OffsetRange
from .seen_records import seen_records

__all__ = ["check_end"]

#: The offsets at the end of a log whose times are read.
_LAST_OFFSETS = 256


def check_end(reader: LogReader, log: OffsetRange, time_ms: int) -> None:
    """
    Check that a log, in which its broker finds no record of a time or later, does not end with such records.

    A broker searches one segment alone, the first with a batch of this time: emptied batches mislead it.

    Raises:
        NotComparable: The log ends with later records.

    """
    tail = OffsetRange(max(log.start, log.end - _LAST_OFFSETS), log.end)
    with closing(seen_records(reader, tail)) as records:
        for record in records:
            if record.offset >= log.end:
                return
            if any(time is not None and time >= time_ms for _, time in record.keys):
                raise NotComparable(
                    f"the broker of the {reader.side.value} finds no record of the range's time, but the log "
                    "ends with later records: the log cleaner has emptied batches. Compare all records of "
                    "the topic"
                )

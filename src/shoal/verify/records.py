"""How records of both sides are recognized: by the hash of their bodies, and the times that count. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from ..errors import CorruptBatch
from ..records import Record, read_key_value_headers
from .findings import Side
from .log import LogRecord, Unreadable

__all__ = ["Key", "Odd", "Times", "key_and_value", "keys_of"]

#: The hash of a record's body, and a time if it counts: the other side knows the record by them.
Key: TypeAlias = tuple[int, int | None]


class Odd(NamedTuple):
    """
    A record that one side has and the other lacks in this place, without its content.

    Attributes:
        offset: Its offset.
        timestamp: Its create time.
        append_time: That of its batch, if the batch is LogAppendTime; None otherwise.
        body: The hash of key, value and headers; None for records that cannot be read.
        gap: The number of offsets before it that no record, marker or aborted batch has.
        unreadable: The batch that it stands for, if this cannot be read.
        key: The hash of its key; None if it has none.

    """

    offset: int
    timestamp: int
    append_time: int | None
    body: int | None
    gap: int
    unreadable: Unreadable | None
    key: int | None

    @classmethod
    def of(cls, record: LogRecord) -> Odd:
        """Return a record without its content."""
        offset, timestamp, append_time, body, gap, unreadable = record
        key = None if body is None else key_and_value(record)[0]
        return cls(offset, timestamp, append_time, None if body is None else hash(body), gap, unreadable, key)

    @property
    def records(self) -> int:
        """The number of records that it stands for."""
        return 1 if self.unreadable is None else self.unreadable.records

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + self.records


def key_and_value(record: LogRecord) -> tuple[int | None, bytes | None]:
    """Return the hash of a record's key, None without one, and its value."""
    with suppress(CorruptBatch):  # no key shows what the cleaner did
        key, value, _ = read_key_value_headers(Record(record.offset, record.timestamp, record.body or b""))
        return (None if key is None else hash(key)), value
    return None, b""


def keys_of(record: LogRecord, side: Side) -> tuple[Key, ...]:
    """Return the keys of a record: a copy has its create time, its append time, or one of its own."""
    if record.body is None:
        return ()
    body = hash(record.body)
    if side is Side.DESTINATION:
        return ((body, record.timestamp if record.append_time is None else None),)
    if record.append_time is None or record.append_time == record.timestamp:
        return (body, record.timestamp), (body, None)
    return (body, record.timestamp), (body, record.append_time), (body, None)


class Times:
    """
    The timestamps that count: a destination may write its own, and a copy may have append times.

    Attributes:
        are_compared: Whether any counts.
        are_of_append: Whether the copy has the append times of the source's batches.

    """

    def __init__(self) -> None:
        self.are_compared = True
        self.are_of_append = False

    def see(self, source: Sequence[LogRecord], destination: Sequence[LogRecord]) -> None:
        """Learn from records in which both sides differ."""
        if any(each.append_time is not None for each in destination[:1]):
            self.are_compared = False
        if not self.are_of_append:
            appended = {
                (each.body, each.append_time)
                for each in source
                if each.append_time is not None and each.append_time != each.timestamp
            }
            self.are_of_append = any((each.body, each.timestamp) in appended for each in destination)

    def same(self, ours: LogRecord, theirs: LogRecord) -> bool:
        """Whether a record of the source and one of the destination are the same."""
        return (
            ours.body == theirs.body
            and ours.body is not None
            and (
                ours.timestamp == theirs.timestamp
                or not self.are_compared
                or theirs.append_time is not None
                or (ours.append_time is not None and ours.append_time == theirs.timestamp)
            )
        )

    def source_key(self, record: LogRecord | Odd) -> int | None:
        """Return the key of a record of the source: that of its copy, if they are the same."""
        is_appended = self.are_of_append and record.append_time is not None
        return self._key(record.body, record.append_time if is_appended else record.timestamp)

    def copy_key(self, record: LogRecord | Odd) -> int | None:
        """Return the key of a record of the destination; None if it cannot be read."""
        return self._key(record.body, record.timestamp)

    def _key(self, body: bytes | int | None, timestamp: int | None) -> int | None:
        if body is None:
            return None
        digest = hash(body) if isinstance(body, bytes) else body
        return hash((digest, timestamp)) if self.are_compared else digest

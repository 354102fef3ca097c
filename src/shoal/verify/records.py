"""How records of both sides are recognized: by the hash of their bodies and a time. No I/O."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple, TypeAlias

from ..records.record import Malformed, read_sized
from .findings import Side
from .log import LogRecord, Unreadable

__all__ = ["Key", "Odd", "are_same", "key_and_value", "keys_of"]

#: The hash of a record's body plus its time, or the complement of the hash if no time counts: the other side
#: knows a record by it.
Key: TypeAlias = int


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
        digest, key = (hash(record.body), key_and_value(record)[0]) if record.body else (None, None)
        offset, timestamp, _ = record
        return cls(offset, timestamp, record.append_time, digest, record.gap, record.unreadable, key)

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
    with suppress(Malformed, IndexError):  # no key shows what the cleaner did
        key, position = read_sized(record.body, 0)
        return (None if key is None else hash(key)), read_sized(record.body, position)[0]
    return None, b""


def keys_of(record: LogRecord | Odd, side: Side) -> tuple[Key, ...]:
    """
    Return the keys of a record; none if it cannot be read.

    A record of the destination has one, and one of the source a key for each copy of it that is right: a copy
    has its create time, its append time, or a time of the destination's own.
    """
    body, append_time = record.body, record.append_time
    if record.unreadable is not None:
        return ()
    digest = body if isinstance(body, int) else hash(body)
    if side is Side.DESTINATION:
        return (digest + record.timestamp,) if append_time is None else (~digest,)
    if append_time is None or append_time == record.timestamp:
        return digest + record.timestamp, ~digest
    return digest + record.timestamp, digest + append_time, ~digest


def are_same(ours: LogRecord, theirs: LogRecord) -> bool:
    """Whether a record of the destination is a right copy of one of the source."""
    return (
        ours.unreadable is None
        and ours.body == theirs.body
        and (theirs.append_time is not None or theirs.timestamp in (ours.timestamp, ours.append_time))
    )

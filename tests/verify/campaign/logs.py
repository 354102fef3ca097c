"""Logs of embedded brokers as records, decoded by aiokafka, and written again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shoal.records import BatchHeader, Codec
from shoal_broker import Broker
from shoal_broker.storage.log import Log
from tests.world import batches
from tests.world.batches import Content, encode
from tests.world.contents import batches_of, content_of_batch

__all__ = ["Piece", "Placed", "Stored", "lay", "replaced", "stored_batches", "stored_records"]


class Placed(NamedTuple):
    """
    A record, and its place.

    Attributes:
        offset: Its offset.
        item: The record.

    """

    offset: int
    item: Content


class Stored(NamedTuple):
    """A batch of a log, and its records."""

    header: BatchHeader
    view: memoryview
    records: list[Placed]


@dataclass
class Piece:
    """
    A batch of a copy.

    Attributes:
        codec: Its codec, if it is encoded again.
        records: The offset of the source record that each record copies (None for none), and the record.
        batch: Its bytes, as long as no record of it is changed.
        is_transaction: Whether it is in a transaction of its own: a marker follows.

    """

    codec: Codec
    records: list[tuple[int | None, Content]]
    batch: bytes | None = None
    is_transaction: bool = False
    offsets: list[int] = field(default_factory=list)


def stored_batches(log: Log, *, as_appended: bool = False) -> list[Stored]:
    """
    Return all batches of a log that are no markers, with their records from the log's start on.

    With ``as_appended``, records of a LogAppendTime batch have its append time, as consumers see them.
    """
    found = []
    for batch in batches_of(log):
        if batch.header.is_control:
            continue
        records = [
            Placed(offset, content)
            for offset, content in (content_of_batch(batch.view) if batch.header.records_count else ())
            if offset >= log.log_start_offset
        ]
        if as_appended and batch.header.is_log_append_time:
            time = batch.header.max_timestamp
            records = [Placed(offset, item._replace(timestamp=time)) for offset, item in records]
        found.append(Stored(batch.header, batch.view, records))
    return found


def stored_records(log: Log, without: Collection[int] = (), *, as_appended: bool = False) -> list[Placed]:
    """Return all records of a log, without those at some offsets."""
    found = stored_batches(log, as_appended=as_appended)
    return [each for batch in found for each in batch.records if each.offset not in without]


def replaced(broker: Broker, topic: str, found: Iterable[bytes | bytearray | memoryview], end: int) -> Log:
    """Replace a log by another one with the same start, and with these batches, which have their offsets."""
    before = broker.log(topic)
    after = Log(before.name, before.config)
    for batch in found:
        after.store(memoryview(batch))
    after.end_at(end)
    after.delete_records(before.log_start_offset)
    broker.topics.topic(topic).logs[0] = after
    return after


def lay(
    pieces: Sequence[Piece], begin: int, *, append_time: int | None = None
) -> tuple[list[bytearray], int]:
    """
    Encode a copy from an offset on; note each record's offset; return the batches and the end.

    With ``append_time``, the destination writes its own times, from this one on.
    """
    found = []
    offset = begin
    for number, piece in enumerate(pieces):
        if not piece.records:
            continue
        if piece.batch is not None:
            batch = bytearray(piece.batch)
            batch[:8] = offset.to_bytes(8)
        else:
            flags = batches.TRANSACTIONAL if piece.is_transaction else 0
            own_time = None if append_time is None else append_time + offset
            items = [item for _, item in piece.records]
            batch = encode(items, piece.codec, base_offset=offset, flags=flags, append_time=own_time)
            if piece.is_transaction:
                batch = batches.patched(batch, 43, (number + 100).to_bytes(8) + bytes(6))
        found.append(batch)
        piece.offsets = list(range(offset, offset + len(piece.records)))
        offset += len(piece.records)
        if piece.is_transaction:
            found.append(batches.marker(1, number + 100, base_offset=offset))
            offset += 1
    return found, offset

"""The records of a log without their bytes, to look for them in another log."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, suppress

from ..records import Record
from .decoded import Decoded
from .digest import Digest
from .errors import DamagedLog, NotDecodable
from .log_head import MOST_HEAD_RECORDS, Neighbourhood, SeenRecord
from .reading import LogReader
from .report import OffsetRange, Side

__all__ = ["seen_records"]


def seen_records(
    reader: LogReader, log: OffsetRange, before: Neighbourhood | None = None
) -> Generator[SeenRecord]:
    """
    Yield the records of a part of a log, up to the first offset that cannot be read.

    The comparison reports batches that cannot be read.

    Args:
        reader: Reads the log.
        before: The neighbourhood of the records before these, if they were seen; it changes.

    """
    before = Neighbourhood() if before is None else before
    gap = 0
    with suppress(DamagedLog), closing(reader.digests(*log, crop_at=log.start)) as batches:
        for batch in batches:
            gap += batch.gap_before
            at = batch.base_offset
            try:
                decoded = _decode(reader, batch)
            except NotDecodable:
                for offset in range(
                    batch.base_offset, batch.base_offset + min(batch.records, MOST_HEAD_RECORDS)
                ):
                    yield SeenRecord(offset, (), before.contexts(None), gap)
                    gap = 0
                continue
            for record in decoded.records:
                gap += record.offset - at
                yield _seen(record, decoded.append_time, reader.side, before, gap)
                gap, at = 0, record.offset + 1
            gap += max(0, batch.next_offset - at)


def _decode(reader: LogReader, batch: Digest) -> Decoded:
    if batch.damage:
        raise NotDecodable(batch.damage)
    return reader.decode(batch)


def _seen(record: Record, append_time: int | None, side: Side, before: Neighbourhood, gap: int) -> SeenRecord:
    """Summarise a record; ``append_time`` is that of its batch."""
    body = hash(bytes(record.body))
    times: tuple[int | None, ...] = (record.timestamp,)
    if side is Side.SOURCE:
        # A copy has the create time, or the append time, or one of its own.
        times = (record.timestamp, append_time, None) if append_time is not None else (record.timestamp, None)
    elif append_time is not None:
        times = (None,)
    return SeenRecord(record.offset, tuple((body, time) for time in times), before.contexts(body), gap)

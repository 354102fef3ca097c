"""
The records of embedded brokers' logs, as a client decodes them.

aiokafka decodes them, from the bytes in the log: neither the compared records nor their decoding are shoal's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from aiokafka.record import MemoryRecords

from shoal.records import Codec, RecordBatch, split, verify_crc
from shoal_broker.storage.log import Log
from tests.world import batches
from tests.world.batches import Content

__all__ = ["batches_of", "compacted", "content_of", "content_of_batch", "places_in"]


def content_of_batch(batch: bytes | bytearray | memoryview) -> list[tuple[int, Content]]:
    """Return a batch's records with their offsets; one of magic 0 has no time, which is -1."""
    if batch[16] < 2:
        return _content_of_old_batch(batch)
    # If the bit is cleared, a LogAppendTime batch shows its records' own times.
    attributes = int.from_bytes(batch[21:23]) & ~batches.LOG_APPEND_TIME
    decoder = MemoryRecords(bytes(batches.patched(bytes(batch), 21, attributes.to_bytes(2))))
    decoded = decoder.next_batch()
    assert decoded is not None
    return [
        (record.offset, Content(record.timestamp, record.key, record.value, tuple(record.headers or ())))
        for record in decoded
    ]


def _content_of_old_batch(batch: bytes | bytearray | memoryview) -> list[tuple[int, Content]]:
    decoded = MemoryRecords(bytes(batch)).next_batch()
    assert decoded is not None
    return [
        (each.offset, Content(-1 if each.timestamp is None else each.timestamp, each.key, each.value, ()))
        for each in decoded
    ]


def batches_of(log: Log) -> list[RecordBatch]:
    """Return all batches of a log, as they are stored."""
    found: list[RecordBatch] = []
    offset = log.log_start_offset
    while True:
        read = log.read(offset, 2**31, committed=False, at_least_one_batch=True)
        assert isinstance(read.record_set, memoryview), "the log is in memory"
        found += split(read.record_set)
        if not read.record_set:
            return found
        offset = found[-1].header.next_offset


def places_in(log: Log) -> list[tuple[int, Content]]:
    """Return all records of a log, each with its offset."""
    start = log.log_start_offset  # perhaps inside of the first batch
    there = (place for batch in batches_of(log) for place in content_of_batch(batch.view))
    return [(offset, content) for offset, content in there if offset >= start]


def content_of(log: Log, *, is_compacted: bool = False, former: Collection[int] = ()) -> list[Content]:
    """Return all records of a destination's log.

    Checks that its batches have right CRCs and counts, and that its offsets have no gap, unless it is
    compacted.

    Args:
        former: The producers whose batches are left out behind those of newer producers.

    """
    records: list[Content] = []
    newest = -1
    start = expected = log.log_start_offset
    least_end = log.log_end_offset  # more may arrive during the read
    for batch in batches_of(log):
        verify_crc(batch)
        begin = max(start, batch.header.base_offset)  # records of the first batch may be deleted
        assert is_compacted or begin == expected
        expected = batch.header.next_offset
        decoded = content_of_batch(batch.view)
        assert len(decoded) == batch.header.records_count
        newest = max(newest, batch.header.producer_id)
        if batch.header.producer_id == newest or batch.header.producer_id not in former:
            records += [content for offset, content in decoded if offset >= start]
    assert is_compacted or expected >= least_end
    return records


def compacted(batch: RecordBatch, keep: Callable[[int], bool], *, has_horizon: bool = False) -> bytearray:
    """
    Return the rest of a batch after compaction: some of its records.

    Its range of offsets, its leader epoch and its producer stay.

    With ``has_horizon`` the cleaner has noted when the tombstones in it will go.
    """
    header = batch.header
    placed = content_of_batch(batch.view) if header.records_count else []
    left = [(offset, content) for offset, content in placed if keep(offset)]
    times = [content.timestamp for _, content in left] or [header.base_timestamp]
    flags = header.attributes & (batches.TRANSACTIONAL | batches.LOG_APPEND_TIME)
    if has_horizon and any(content.value is None for _, content in left):
        times, flags = [1_900_000_000_000, *times], flags | batches.DELETE_HORIZON
    records = [
        batches.Record(
            each.value, each.key, each.headers, offset - header.base_offset, each.timestamp - times[0]
        )
        for offset, each in left
    ]
    return batches.raw_batch(
        batches.payload(records, Codec(header.codec_id)) if records else b"",
        base_offset=header.base_offset,
        # The cleaner does not compress an emptied batch.
        attributes=(header.codec_id if records else 0) | flags,
        last_offset_delta=header.last_offset_delta,
        leader_epoch=header.leader_epoch,
        base_timestamp=times[0],
        max_timestamp=header.max_timestamp
        if header.is_log_append_time or not left
        else max(content.timestamp for _, content in left),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        records_count=len(records),
    )

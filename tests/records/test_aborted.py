"""Aborted transactions, against a model that knows each batch's transaction."""

from __future__ import annotations

import pytest

from shoal.errors import CorruptBatch
from shoal.records import AbortedTransactions, Codec, Decision, RecordBatch, Scan
from shoal.records.aborted import Marker, read_marker
from tests.world.batches import CONTROL, TRANSACTIONAL, Record, batch, payload, raw_batch, view

ABORT, COMMIT = Marker.ABORT, Marker.COMMIT


def data(producer_id: int, base_offset: int, count: int = 1) -> bytearray:
    return batch(count, base_offset=base_offset, flags=TRANSACTIONAL, producer_id=producer_id)


def kept(log: list[bytearray], aborted: list[tuple[int, int]]) -> list[int]:
    """Base offsets of the batches that a mirror would copy."""
    record_set = memoryview(bytearray().join(log))
    return [
        found.header.base_offset
        for decision, found in Scan[RecordBatch](record_set, 0, AbortedTransactions(aborted))
        if decision is Decision.COPY
    ]


def test_marker_emptied_by_compaction_ends_no_transaction() -> None:
    """As in ``CompletedFetch.containsAbortMarker``."""
    emptied = raw_batch(base_offset=1, attributes=TRANSACTIONAL | CONTROL, producer_id=1, records_count=0)
    assert kept([data(1, 0), emptied, data(1, 2)], [(1, 0)]) == []


def test_marker_of_an_unrelated_producer_is_not_decoded() -> None:
    broken = raw_batch(b"", base_offset=1, attributes=TRANSACTIONAL | CONTROL, producer_id=1)
    transactions = AbortedTransactions([(2, 0)])
    transactions.see_marker(view(broken))
    with pytest.raises(CorruptBatch):
        AbortedTransactions([(1, 0)]).see_marker(view(broken))


# Control records.


def test_marker_type_is_read_from_literal_bytes() -> None:
    """An abort, as Kafka's ``MemoryRecords.writeEndTransactionalMarker`` writes it."""
    record = bytes.fromhex("20 00 00 00 08 00000000 0c 000000000001 00")
    assert read_marker(view(raw_batch(record, attributes=TRANSACTIONAL | CONTROL))) == ABORT


def test_control_record_with_a_time_delta_of_several_bytes_is_read() -> None:
    record = Record(b"", key=b"\0\0\0\1", timestamp_delta=-(2**62))
    assert read_marker(view(raw_batch(payload([record]), attributes=CONTROL))) == COMMIT


def control(records: bytes, codec: Codec = Codec.NONE) -> RecordBatch:
    return view(raw_batch(records, attributes=CONTROL | codec, base_offset=33))


@pytest.mark.parametrize(
    "broken",
    [
        control(b""),
        control(b"\xff" * 60),
        control(payload([Record(b"abcdef", key=None)])),
        control(payload([Record(b"abcdef", key=b"\0\0\0")])),
        control(payload([Record(key=b"\0\0\0\0")], Codec.GZIP), Codec.GZIP),
    ],
)
def test_control_batch_without_readable_marker_is_corrupt(broken: RecordBatch) -> None:
    with pytest.raises(CorruptBatch) as caught:
        read_marker(broken)
    assert caught.value.position == 33

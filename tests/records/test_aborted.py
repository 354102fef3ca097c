"""Aborted transactions, against a model that knows each batch's transaction."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import CorruptBatch
from shoal.records import AbortedTransactions, Codec, Decision, RecordBatch, Scan
from shoal.records.aborted import Marker, read_marker
from tests.world.batches import CONTROL, TRANSACTIONAL, Record, batch, marker, payload, raw_batch, view

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


# The model: a log in which every batch knows the transaction that it is part of.


@dataclass
class Transaction:
    producer_id: int
    is_aborted: bool = False
    offsets: list[int] = field(default_factory=list)
    marker_offset: int = -1


@dataclass
class Log:
    """A partition with several producers, and a broker's answer about it."""

    batches: list[tuple[int, bytearray, Transaction | None]] = field(default_factory=list)
    finished: list[Transaction] = field(default_factory=list)
    end: int = 0

    def append(self, written: bytearray, transaction: Transaction | None, count: int = 1) -> None:
        self.batches.append((self.end, written, transaction))
        self.end += count

    def aborted_from(self, fetch_offset: int, end: int) -> list[tuple[int, int]]:
        """As ``LocalLog.addAbortedTransactions``: ended at the offset or later, and began before the end."""
        return [
            (each.producer_id, each.offsets[0])
            for each in self.finished
            if each.is_aborted
            and each.offsets
            and each.marker_offset >= fetch_offset
            and each.offsets[0] < end
        ]


def write_log(draw: random.Random) -> Log:
    log = Log()
    running: dict[int, Transaction] = {}
    for _ in range(draw.randint(1, 40)):
        producer_id = draw.randint(1, 4)
        action = draw.choice(["data", "data", "data", "abort", "commit", "plain"])
        if action == "data":
            transaction = running.setdefault(producer_id, Transaction(producer_id))
            count = draw.randint(1, 3)
            transaction.offsets.append(log.end)
            log.append(data(producer_id, log.end, count), transaction, count)
        elif action == "plain":
            log.append(batch(1, base_offset=log.end, producer_id=draw.choice([-1, producer_id])), None)
        else:
            end_transaction(log, running.pop(producer_id, Transaction(producer_id)), action == "abort")
    for transaction in running.values():
        end_transaction(log, transaction, draw.random() < 0.5)
    return log


def end_transaction(log: Log, transaction: Transaction, is_aborted: bool) -> None:
    """Write a marker; also to a partition that the transaction never wrote to."""
    transaction.is_aborted = is_aborted
    transaction.marker_offset = log.end
    log.finished.append(transaction)
    kind = ABORT if is_aborted else COMMIT
    log.append(marker(kind, transaction.producer_id, base_offset=log.end), None)


@given(st.randoms(use_true_random=False))
def test_exactly_the_batches_of_aborted_transactions_are_dropped(draw: random.Random) -> None:
    log = write_log(draw)
    first = draw.randrange(len(log.batches))
    last = draw.randrange(first, len(log.batches))
    fetched = log.batches[first : last + 1]
    # A fetch may begin within a batch and gets all of it.
    begins = [*(offset for offset, _, _ in log.batches), log.end]
    fetch_offset = draw.randrange(begins[first], begins[first + 1])
    end = begins[last + 1]
    aborted = log.aborted_from(fetch_offset, end)
    draw.shuffle(aborted)
    expected = [
        offset
        for offset, written, transaction in fetched
        if not view(written).header.is_control and (transaction is None or not transaction.is_aborted)
    ]
    assert kept([written for _, written, _ in fetched], aborted) == expected


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

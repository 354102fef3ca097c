"""Lots: landed and counted in part, as if each batch were an object of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from shoal.client.config import ClientConfig, IsolationLevel
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.task import moving_map
from shoal.mirroring.task.partition import PartitionCopy
from shoal.protocol.fetch import FetchedPartition
from shoal.records import Decision, Fingerprint, RecordBatch, fingerprint, split
from tests.batches import LOG_APPEND_TIME, TRANSACTIONAL, batch

NOW_MS = int(time.time() * 1000)

#: Of the attributes; no version of Kafka has it.
UNKNOWN_FLAG = 0x80

#: Source offsets 100, 103, 104, 108 and 110; the destination begins at 40.
COUNTS = (3, 1, 4, 2, 5)


def record_set(*counts: int) -> bytearray:
    built, offset = bytearray(), 100
    for number, count in enumerate(counts):
        built += batch(count, base_offset=offset, base_timestamp=NOW_MS + number, leader_epoch=number)
        offset += count
    return built


def aligned(**options: Any) -> PartitionCopy:
    source, destination = (
        ClientConfig.from_properties(name, {"bootstrap.servers": "127.0.0.1:1"})[0]
        for name in ("source", "destination")
    )
    settings = CopySettings(source, destination, "group", rules="rules", **options)
    copy = PartitionCopy(CopyRange("topic", 0, "topic", 100, 1000), settings)
    copy.begin_alignment(0, 0)
    copy.align(MirrorPosition(100, 40, ProducerIdentity(9, 1, 0), (100, 40), None, None, None, 0, "rules"))
    return copy


def take(copy: PartitionCopy, fetched: bytes | bytearray, aborted: Sequence[tuple[int, int]] = ()) -> None:
    copy.take(
        FetchedPartition("topic", 0, 0, 1000, 1000, 0, list(aborted), memoryview(bytearray(fetched))),
        IsolationLevel.READ_COMMITTED,
    )


@pytest.fixture
def copy() -> PartitionCopy:
    copy = aligned()
    take(copy, record_set(*COUNTS))
    return copy


def test_plain_batches_are_one_lot(copy: PartitionCopy) -> None:
    (lot,) = copy.outbound.queue
    assert (lot.batches_count, lot.records_count) == (5, 15)
    assert (lot.source_start, lot.source_end, lot.destination_offset) == (100, 115, 40)
    assert copy.intake.fetch_offset == 115


def test_other_batches_are_lots_of_one() -> None:
    copy = aligned()
    appended = batch(2, base_offset=104, base_timestamp=NOW_MS, flags=UNKNOWN_FLAG)
    behind = batch(1, base_offset=107, base_timestamp=NOW_MS)
    take(copy, record_set(3, 1) + appended + behind)
    assert [(lot.batches_count, lot.source_start, lot.source_end) for lot in copy.outbound.queue] == [
        (2, 100, 104),
        (1, 104, 106),
        (1, 107, 108),
    ]
    assert [lot.destination_offset for lot in copy.outbound.queue] == [40, 44, 46]


@pytest.mark.parametrize(
    ("flags", "aborted", "ends"),
    [
        (LOG_APPEND_TIME, [], [105]),
        (TRANSACTIONAL, [], [105]),
        (TRANSACTIONAL, [(8, 103)], [103, 104, 105]),
        (TRANSACTIONAL, [(8, 90)], [101, 102, 103, 104, 105]),
        (0, [(8, 90)], [105]),
    ],
    ids=["append times", "committed", "behind it an aborted one", "among an aborted one", "plain among it"],
)
def test_batches_of_which_nothing_was_aborted_are_one_lot(
    flags: int, aborted: list[tuple[int, int]], ends: list[int]
) -> None:
    copy = aligned()
    fetched = b"".join(
        batch(1, base_offset=offset, base_timestamp=NOW_MS, flags=flags, producer_id=7)
        for offset in range(100, 105)
    )
    take(copy, fetched, aborted)
    assert [lot.source_end for lot in copy.outbound.queue] == ends


def test_batch_of_a_lot_has_its_own_offsets_and_bytes(copy: PartitionCopy) -> None:
    fetched = list(split(memoryview(record_set(*COUNTS))))
    found = copy.outbound.first(len(COUNTS))
    assert [each.source_start for each in found] == [100, 103, 104, 108, 110]
    assert [each.source_end for each in found] == [103, 104, 108, 110, 115]
    assert [each.destination_offset for each in found] == [40, 43, 44, 48, 50]
    assert [each.leader_epoch for each in found] == [0, 1, 2, 3, 4]
    assert [fingerprint(*split(each.view)) for each in found] == [fingerprint(each) for each in fetched]


@pytest.mark.parametrize("acknowledged", range(1, 6))
def test_lost_track_leaves_position_and_counts_behind_the_last_acknowledged_batch(
    copy: PartitionCopy, acknowledged: int
) -> None:
    fetched = list(split(memoryview(record_set(*COUNTS))))[acknowledged - 1]
    for _ in range(acknowledged):
        copy.land(1)
    copy.lose_track()
    records = sum(COUNTS[:acknowledged])
    assert copy.position is not None
    assert (copy.position.source_offset, copy.position.destination_offset) == (100 + records, 40 + records)
    assert copy.position.last_batch == fingerprint(fetched).crc
    assert copy.position.source_leader_epoch == acknowledged - 1
    assert (copy.counters.records, copy.counters.decisions[Decision.COPY]) == (records, acknowledged)
    assert copy.newest_ms == fetched.header.max_timestamp
    assert not copy.outbound.queue


def test_position_is_made_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(batch: RecordBatch) -> Fingerprint:
        made.append(batch.header.last_offset_delta + 1)
        return fingerprint(batch)

    monkeypatch.setattr(moving_map, "fingerprint", counted)
    copy = aligned()
    fetched = list(split(memoryview(record_set(*COUNTS))))
    for each in fetched:
        take(copy, bytes(each.view))
        copy.land(1)
        copy.settle(7)
    assert copy.next_offset == 115
    assert made == []
    position = copy.position
    assert position is not None
    assert (position.source_offset, position.destination_offset) == (115, 55)
    assert (position.destination_leader_epoch, position.source_leader_epoch) == (7, 4)
    assert position.last_batch == fingerprint(fetched[-1]).crc
    assert copy.position is position
    assert made == [COUNTS[-1]]


def test_first_batches_begin_behind_those_that_have_landed(copy: PartitionCopy) -> None:
    copy.land(2)
    assert [each.source_start for each in copy.outbound.first(2)] == [104, 108]
    assert copy.outbound.first(0) == []


def test_displaced_lot_counts_each_batch_at_its_actual_offset(copy: PartitionCopy) -> None:
    copy.land(1)
    copy.outbound.displace(7)
    assert copy.landed_offset == 50
    copy.land(4)
    copy.settle(0)
    assert copy.position is not None
    assert (copy.position.source_offset, copy.position.destination_offset) == (115, 62)
    assert copy.counters.records == 15
    assert copy.counters.runs == [[100, 103, 40], [103, 115, 50]]

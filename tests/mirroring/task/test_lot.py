"""Lots: sent, acknowledged and counted in part, as if each batch were an object of its own."""

from __future__ import annotations

import time

import pytest

from shoal.client.config import ClientConfig, IsolationLevel
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.task import moving_map
from shoal.mirroring.task.lot import batches_of
from shoal.mirroring.task.partition import PartitionCopy
from shoal.protocol.fetch import FetchedPartition
from shoal.records import Decision, Fingerprint, RecordBatch, fingerprint, split
from tests.batches import LOG_APPEND_TIME, batch

NOW_MS = int(time.time() * 1000)

#: Source offsets 100, 103, 104, 108 and 110; the destination begins at 40.
COUNTS = (3, 1, 4, 2, 5)


def record_set(*counts: int) -> bytearray:
    built, offset = bytearray(), 100
    for number, count in enumerate(counts):
        built += batch(count, base_offset=offset, base_timestamp=NOW_MS + number, leader_epoch=number)
        offset += count
    return built


def aligned() -> PartitionCopy:
    source, destination = (
        ClientConfig.from_properties(name, {"bootstrap.servers": "127.0.0.1:1"})[0]
        for name in ("source", "destination")
    )
    copy = PartitionCopy(
        CopyRange("topic", 0, "topic", 100, 1000), CopySettings(source, destination, "group", rules="rules")
    )
    copy.align(MirrorPosition(100, 40, ProducerIdentity(9, 1, 0), (100, 40), None, None, None, 0, "rules"))
    return copy


def take(copy: PartitionCopy, fetched: bytes | bytearray) -> None:
    copy.take(
        FetchedPartition("topic", 0, 0, 1000, 1000, 0, [], memoryview(bytearray(fetched))),
        IsolationLevel.READ_UNCOMMITTED,
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
    appended = batch(2, base_offset=104, base_timestamp=NOW_MS, flags=LOG_APPEND_TIME)
    behind = batch(1, base_offset=107, base_timestamp=NOW_MS)
    take(copy, record_set(3, 1) + appended + behind)
    assert [(lot.batches_count, lot.source_start, lot.source_end) for lot in copy.outbound.queue] == [
        (2, 100, 104),
        (1, 104, 106),
        (1, 107, 108),
    ]
    assert [lot.destination_offset for lot in copy.outbound.queue] == [40, 44, 46]


def test_batch_of_a_lot_has_its_own_offsets_and_bytes(copy: PartitionCopy) -> None:
    fetched = list(split(memoryview(record_set(*COUNTS))))
    for _ in COUNTS:
        copy.outbound.next_to_send(multi_batch=False)
    found = [each for pieces in copy.outbound.in_flight for each in batches_of(pieces)]
    assert [each.source_start for each in found] == [100, 103, 104, 108, 110]
    assert [each.source_end for each in found] == [103, 104, 108, 110, 115]
    assert [each.destination_offset for each in found] == [40, 43, 44, 48, 50]
    assert [each.source_leader_epoch for each in found] == [0, 1, 2, 3, 4]
    assert [fingerprint(each.batch) for each in found] == [fingerprint(each) for each in fetched]


@pytest.mark.parametrize("acknowledged", range(1, 6))
def test_lost_track_leaves_position_and_counts_behind_the_last_acknowledged_batch(
    copy: PartitionCopy, acknowledged: int
) -> None:
    fetched = list(split(memoryview(record_set(*COUNTS))))[acknowledged - 1]
    for _ in range(min(5, acknowledged + 2)):
        copy.outbound.next_to_send(multi_batch=False)
    for _ in range(acknowledged):
        copy.acknowledge()
    copy.lose_track()
    records = sum(COUNTS[:acknowledged])
    assert copy.position is not None
    assert (copy.position.source_offset, copy.position.destination_offset) == (100 + records, 40 + records)
    assert copy.position.last_batch == fingerprint(fetched).crc
    assert copy.position.source_leader_epoch == acknowledged - 1
    assert (copy.counters.records, copy.counters.decisions[Decision.COPY]) == (records, acknowledged)
    assert copy.newest_ms == fetched.header.max_timestamp
    assert not copy.outbound.queue
    assert not copy.outbound.in_flight


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
        copy.outbound.next_to_send(multi_batch=False)
        copy.acknowledge()
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


def test_displaced_lot_counts_each_batch_at_its_actual_offset(copy: PartitionCopy) -> None:
    for _ in range(3):
        copy.outbound.next_to_send(multi_batch=False)
    copy.acknowledge()
    copy.displace(7)
    assert copy.outbound.landing_offset == 50
    for _ in range(2):
        copy.acknowledge()
        copy.outbound.next_to_send(multi_batch=False)
    copy.acknowledge()
    copy.acknowledge()
    copy.settle(0)
    assert copy.position is not None
    assert (copy.position.source_offset, copy.position.destination_offset) == (115, 62)
    assert copy.counters.records == 15
    assert copy.counters.runs == [[100, 103, 40], [103, 115, 50]]


def test_request_of_several_batches_takes_as_many_as_have_room(copy: PartitionCopy) -> None:
    (lot,) = copy.outbound.queue
    sizes = [entry[0] for entry in lot.entries]
    copy.outbound.together_bytes = sizes[0] + sizes[1]
    taken = []
    while copy.outbound.queue:
        views = copy.outbound.next_to_send(multi_batch=True)
        taken.append(sum(map(len, views)))
    assert taken[0] == sizes[0] + sizes[1]
    assert sum(taken) == sum(sizes)
    assert all(each <= copy.outbound.together_bytes or each in sizes for each in taken)


def test_old_batch_in_a_young_lot_is_in_flight_alone() -> None:
    copy = aligned()
    old = batch(1, base_offset=101, base_timestamp=5)
    young = (batch(1, base_offset=offset, base_timestamp=NOW_MS) for offset in (100, 102, 103))
    first, *rest = young
    take(copy, first + old + b"".join(rest))
    outbound = copy.outbound
    may_send = []
    while outbound.queue:
        may_send.append(outbound.may_send(1000))
        if outbound.in_flight and not may_send[-1]:
            copy.acknowledge()
        else:
            outbound.next_to_send(multi_batch=False)
    # The first goes alone; the old one behind it, since nothing old is in flight; the others wait for both.
    assert may_send == [True, False, True, False, True, False, True]

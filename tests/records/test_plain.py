"""Walks over plain batches, on the native path and in Python."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.native import NATIVE
from shoal.protocol.fetch import decode_fetch_response
from shoal.records import (
    ENTRY,
    AbortedTransactions,
    Codec,
    Decision,
    decide,
    split,
    stamp,
    stamp_plain,
    verify_crc,
)
from shoal.records.plain import stamp_plain_in_python
from tests.native_path import PATHS
from tests.strategies import batches
from tests.vectors import old_vectors, vectors
from tests.world.batches import (
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    batch,
    payload,
    raw_batch,
)

IDENTITY: dict[str, Any] = {"producer_id": 4_000_000_000, "producer_epoch": 7, "base_sequence": 2**31 - 3}
NO_END = 2**63 - 1


@pytest.fixture(params=PATHS, autouse=True)
def _path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = NATIVE.stamp_plain if NATIVE and request.param else stamp_plain_in_python
    monkeypatch.setattr(sys.modules[__name__], "stamp_plain", walk)


def run_of(*built: bytes | bytearray) -> memoryview:
    return memoryview(bytearray().join(built))


def plain(*counts: int, first_offset: int = 5) -> list[bytearray]:
    built = []
    for number, count in enumerate(counts):
        codec = list(Codec)[number % 5]
        built.append(
            batch(count, codec=codec, base_offset=first_offset, base_timestamp=1000 - number, leader_epoch=4)
        )
        first_offset += count
    return built


def test_plain_batches_are_stamped_as_one_by_one() -> None:
    built = plain(2, 3, 1, 4, 1, 7)
    one_by_one, together = run_of(b"odd", *built), run_of(b"odd", *built)
    fetched = [each.header for each in split(one_by_one[3:])]
    sequence = IDENTITY["base_sequence"]
    for each in split(one_by_one[3:]):
        stamp(each, IDENTITY["producer_id"], IDENTITY["producer_epoch"], sequence)
        sequence = (sequence + each.header.records_count) % 2**31
    end, records_count, entries = stamped(together, 5, at=3)
    assert together == one_by_one
    assert (end, records_count) == (len(together), 18)
    assert list(ENTRY.iter_unpack(entries)) == [
        (each.size, each.records_count, each.max_timestamp, each.leader_epoch) for each in fetched
    ]


@pytest.mark.parametrize("flags", [TRANSACTIONAL, LOG_APPEND_TIME, TRANSACTIONAL | LOG_APPEND_TIME])
def test_transactions_and_append_times_are_stamped_as_one_by_one_if_the_caller_says_so(flags: int) -> None:
    # Without a flag; with flags, and a largest timestamp behind and before the first record's.
    times_ms = {"base_timestamp": 1000, "max_timestamp": 800}
    built = [
        batch(1, base_offset=5, base_timestamp=900),
        batch(4, base_offset=6, codec=Codec.LZ4, flags=flags, base_timestamp=1000),
        raw_batch(payload([Record()], Codec.NONE), base_offset=10, attributes=flags, **times_ms),
    ]
    one_by_one, together = run_of(*built), run_of(*built)
    sequence = IDENTITY["base_sequence"]
    for each in split(one_by_one):
        stamp(each, IDENTITY["producer_id"], IDENTITY["producer_epoch"], sequence)
        sequence = (sequence + each.header.records_count) % 2**31
    for allowed in (flags & TRANSACTIONAL, flags & LOG_APPEND_TIME):
        if allowed != flags:
            _, count, _ = stamped(run_of(*built), 5, flags=allowed)
            assert count == 1, "the walk ends before a flag that the caller has not decided about"
    _, _, entries = stamped(together, 5, flags=flags)
    assert together == one_by_one
    for each in split(together):
        verify_crc(each)
        assert not each.header.attributes & ~7
    is_append_time = bool(flags & LOG_APPEND_TIME)
    times = [entry[2] for entry in ENTRY.iter_unpack(entries)]
    assert times == [900, 1000 if is_append_time else 1003, 800]


def stamped(
    record_set: memoryview, first_offset: int, *, at: int = 0, flags: int = 0
) -> tuple[int, int, bytes]:
    """Stamp plain batches, and those with these flags."""
    return stamp_plain(
        record_set,
        at,
        first_offset=first_offset,
        end_offset=NO_END,
        transactional=bool(flags & TRANSACTIONAL),
        append_time=bool(flags & LOG_APPEND_TIME),
        **IDENTITY,
    )


def recorded() -> list[memoryview]:
    """Return the record sets that real brokers sent."""
    return [
        partition.record_set
        for vector in (*vectors(), *old_vectors())
        if vector.api == "Fetch" and vector.direction == "response"
        for partition in decode_fetch_response(
            memoryview(vector.frame), vector.version, vector.names
        ).partitions
        if len(partition.record_set)
    ]


def count_decisions(record_set: bytes | bytearray | memoryview) -> int:
    """
    Walk over a record set as the copy loop does, and decide about each batch that a plain walk stamped.

    Every producer has an aborted transaction from its first batch on: no list of a broker covers more.

    """
    fetched, walked = memoryview(bytes(record_set)), memoryview(bytearray(record_set))
    producers = [(each.header.producer_id, each.header.base_offset) for each in split(fetched)]
    decided = position = 0
    offset = next((each.header.base_offset for each in split(fetched)), 0)
    while (first := next(split(fetched[position:]), None)) is not None:
        end, _, _ = stamped(walked, offset, at=position)
        for each in split(fetched[position:end]):
            for aborted in (None, AbortedTransactions(producers)):
                for keep_append_time in (False, True):
                    decision = decide(each.header, offset, aborted, keep_append_time=keep_append_time)
                    assert decision is Decision.COPY, each.header
            offset = each.header.next_offset
            decided += 1
        if end > position:
            position = end
        else:
            offset, position = first.header.next_offset, position + len(first.view)
    return decided


def test_decide_copies_each_plain_batch_of_a_real_broker() -> None:
    assert sum(count_decisions(each) for each in recorded()) > 20


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(batches(), st.sampled_from(plain(1, 3, 2, 4, 1))), max_size=5))
def test_decide_copies_each_plain_batch_of_any_record_set(fetched: list[bytearray]) -> None:
    count_decisions(b"".join(fetched))

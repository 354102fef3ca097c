"""A stamp changes a header and nothing else, and never blesses a damaged payload."""

from __future__ import annotations

import pytest
from aiokafka.record.util import calc_crc32c
from hypothesis import assume, given
from hypothesis import strategies as st

from shoal.errors import CorruptBatch
from shoal.records import stamp, verify_crc
from tests.strategies import INT16, INT64, batches
from tests.world.batches import DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, batch, raw_batch, view

IDENTITIES = st.tuples(INT64, INT16, st.integers(0, 2**31 - 1))

#: Base offset; leader epoch; CRC and attributes; producer id, epoch and sequence.
MAY_CHANGE = {*range(8), *range(12, 16), *range(17, 23), *range(43, 57)}


def test_stamp_writes_literal_bytes() -> None:
    fetched = bytearray.fromhex(
        "00000000000003e8 00000057 00000005 02 ef91c613 0014 00000001 00000174876e8000 00000174876e8001"
        "000000000000007b 0004 00000005 00000002"
        "28b52ffd207aed0000b818000000026b02760202680278d60100020201c80176000100400a9a"
    )
    crc = stamp(view(fetched), producer_id=4_000_000_000, producer_epoch=7, base_sequence=1000)
    assert fetched == bytes.fromhex(
        "0000000000000000 00000057 ffffffff 02 800ec349 0004 00000001 00000174876e8000 00000174876e8001"
        "00000000ee6b2800 0007 000003e8 00000002"
        "28b52ffd207aed0000b818000000026b02760202680278d60100020201c80176000100400a9a"
    )
    assert crc == 0x800EC349


@given(batches(), IDENTITIES)
def test_stamp_sets_client_fields_and_keeps_the_rest(
    fetched: bytearray, identity: tuple[int, int, int]
) -> None:
    before = bytes(fetched)
    stamp(view(fetched), *identity)
    assert {at for at in range(len(before)) if before[at] != fetched[at]} <= MAY_CHANGE
    old, new = view(before).header, view(fetched).header
    assert new == old._replace(
        base_offset=0,
        leader_epoch=-1,
        crc=new.crc,
        attributes=old.attributes & ~(LOG_APPEND_TIME | TRANSACTIONAL | DELETE_HORIZON),
        producer_id=identity[0],
        producer_epoch=identity[1],
        base_sequence=identity[2],
    )


@pytest.mark.parametrize("size", [0, 65_535, 65_536, 65_537, 200_000, 1_000_000])
def test_corrected_crc_is_right_for_payloads_of_any_size(size: int) -> None:
    fetched = raw_batch(bytes(range(256)) * (size // 256) + b"x" * (size % 256), attributes=0x18)
    assert stamp(view(fetched), 1, 2, 3) == calc_crc32c(bytes(fetched[21:]))


@given(batches(min_payload=1), IDENTITIES, st.data())
def test_payload_bit_flipped_before_a_stamp_is_detected_after_it(
    fetched: bytearray, identity: tuple[int, int, int], data: st.DataObject
) -> None:
    fetched[data.draw(st.integers(61, len(fetched) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    stamp(view(fetched), *identity)
    with pytest.raises(CorruptBatch):
        verify_crc(view(fetched))


@given(batches(), IDENTITIES, st.data())
def test_kept_header_bit_flipped_before_a_stamp_is_detected_after_it(
    fetched: bytearray, identity: tuple[int, int, int], data: st.DataObject
) -> None:
    header = bytearray(fetched[:61])
    at = data.draw(st.sampled_from([*range(17, 21), *range(23, 43), *range(57, 61)]))
    header[at] ^= 1 << data.draw(st.integers(0, 7))
    fetched[:61] = header
    try:
        damaged = view(fetched)
    except CorruptBatch:
        assume(False)
    stamp(damaged, *identity)
    with pytest.raises(CorruptBatch):
        verify_crc(view(fetched))


def test_stamp_stays_within_its_batch() -> None:
    first, second, third = batch(1), batch(1, base_offset=1), batch(1, base_offset=2)
    buffer = first + second + third
    middle = memoryview(buffer)[len(first) : len(first) + len(second)]
    stamp(view(second)._replace(view=middle), 1, 2, 3)
    assert buffer[: len(first)] == first
    assert buffer[-len(third) :] == third

"""A stamp changes a header and nothing else, and never blesses a damaged payload."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shoal.errors import CorruptBatch
from shoal.records import stamp, verify_crc
from tests.strategies import INT16, INT64, batches
from tests.world.batches import DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, view

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

"""Small batches are joined natively as the decoding path joins them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.records import (
    Codec,
    Joined,
    RecordBatch,
    join_plain,
    read_records,
    split,
    stamp,
    verify_crc,
    write_batch,
)
from tests.native_path import needs_native
from tests.world.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, batch

FIRST = 100
ANY_SIZE = 1 << 20

pytestmark = needs_native

#: The values of each batch, and its base timestamp.
SETS = st.lists(
    st.tuples(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(-(2**60), 2**60)),
    min_size=1,
    max_size=8,
)


def joined(record_set: bytes | bytearray, **limits: int) -> Joined:
    found = join_plain(
        memoryview(bytearray(record_set)),
        0,
        first_offset=FIRST,
        end_offset=limits.get("end_offset", 2**62),
        transactional=bool(limits.get("transactional", False)),
        below_bytes=limits.get("below_bytes", ANY_SIZE),
        most_bytes=limits.get("most_bytes", ANY_SIZE),
    )
    assert found is not None
    return found


def laid_out(batches: Sequence[tuple[Sequence[bytes], int]]) -> list[bytearray]:
    starts = accumulate((len(values) for values, _ in batches), initial=FIRST)
    return [
        batch(values, base_offset=start, base_timestamp=timestamp, leader_epoch=3)
        for (values, timestamp), start in zip(batches, starts, strict=False)
    ]


def decoded(record_set: bytes | bytearray, codec: Codec = Codec.NONE) -> RecordBatch:
    """Join all batches by the reference."""
    found = split(memoryview(bytearray(record_set)))
    return write_batch([record for each in found for record in read_records(each, ANY_SIZE)], codec)


@given(SETS, st.sampled_from(Codec))
def test_joined_batch_equals_that_of_the_decoded_records(
    batches: list[tuple[list[bytes], int]], codec: Codec
) -> None:
    record_set = b"".join(laid_out(batches))
    found = joined(record_set)
    built, expected = found.to_batch(codec), decoded(record_set, codec)
    assert (found.end, found.batches_count, found.leader_epoch) == (len(record_set), len(batches), 3)
    assert bytes(built.view) == bytes(expected.view)
    stamp(built, 9, 1, 5)
    verify_crc(built)


@pytest.mark.parametrize(
    "other",
    [
        batch(1, base_offset=103),
        batch(3, base_offset=102, holes=[1]),
        batch(1, base_offset=102, leader_epoch=4),
        batch(1, base_offset=102, codec=Codec.LZ4),
        batch(1, base_offset=102, flags=LOG_APPEND_TIME),
        batch(1, base_offset=102, flags=TRANSACTIONAL, producer_id=7),
        batch(1, base_offset=102, flags=TRANSACTIONAL | CONTROL, producer_id=7),
        batch([bytes(2000)], base_offset=102),
        batch(2, base_offset=102)[:-1],
    ],
    ids=["gap", "holes", "epoch", "codec", "append time", "transactional", "marker", "large", "cut short"],
)
def test_other_batch_ends_the_joined_ones(other: bytearray) -> None:
    plain = batch(1, base_offset=100) + batch(1, base_offset=101)
    found = joined(plain + other, below_bytes=1000)
    assert (found.end, found.batches_count, found.records_count) == (len(plain), 2, 2)


def test_committed_transactional_batches_are_joined_if_nothing_of_them_was_aborted() -> None:
    record_set = b"".join(
        batch(1, base_offset=offset, flags=TRANSACTIONAL, producer_id=7) for offset in (100, 101)
    )
    assert joined(record_set).batches_count == 0
    assert joined(record_set, transactional=1).batches_count == 2


@pytest.mark.parametrize("at", range(12, 90))
def test_batch_with_a_flipped_bit_is_not_joined(at: int) -> None:
    """Its checksum is wrong; the bytes before byte 12 and the epoch are not under it."""
    plain, other = batch(1, base_offset=100), batch(2, base_offset=101)
    other[at] ^= 0x10
    found = joined(plain + other)
    assert found.batches_count == 1
    assert bytes(found.to_batch(Codec.NONE).view) == bytes(decoded(plain).view)


def test_joining_ends_at_its_limits() -> None:
    one = batch([bytes(100)], base_offset=100)
    record_set = b"".join(batch([bytes(100)], base_offset=100 + number) for number in range(10))
    body = len(read_records(next(split(memoryview(one))), ANY_SIZE)[0].body)
    assert joined(record_set, below_bytes=3 * len(one)).batches_count == 3
    assert joined(record_set, below_bytes=len(one)).batches_count == 0
    assert joined(record_set, most_bytes=3 * body - 1).batches_count == 2
    assert joined(record_set, end_offset=104).batches_count == 4


def test_position_behind_the_record_set_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\b1\b.*\b0 bytes"):
        join_plain(
            memoryview(bytearray()),
            1,
            first_offset=0,
            end_offset=1,
            transactional=False,
            below_bytes=1,
            most_bytes=1,
        )

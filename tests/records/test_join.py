"""Small batches are joined natively as the decoding path joins them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.records import (
    ENTRY,
    Codec,
    Joined,
    RecordBatch,
    compressed,
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
LAST_SEQUENCE = 2**31 - 1

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
        producer_id=9,
        producer_epoch=1,
        base_sequence=LAST_SEQUENCE,
        transactional=bool(limits.get("transactional", False)),
        append_time=bool(limits.get("append_time", False)),
        below_bytes=limits.get("below_bytes", ANY_SIZE),
        to=memoryview(bytearray(limits.get("most_bytes", ANY_SIZE))),
    )
    assert found is not None
    return found


def counts(found: Joined) -> list[int]:
    """Return the number of records of each joined batch."""
    return [records for _, records, _, _ in ENTRY.iter_unpack(found.entries)]


def laid_out(batches: Sequence[tuple[Sequence[bytes], int]], codec: Codec = Codec.NONE) -> list[bytearray]:
    starts = accumulate((len(values) for values, _ in batches), initial=FIRST)
    return [
        batch(values, base_offset=start, base_timestamp=timestamp, leader_epoch=3, codec=codec)
        for (values, timestamp), start in zip(batches, starts, strict=False)
    ]


def decoded(record_set: bytes | bytearray, codec: Codec = Codec.NONE) -> RecordBatch:
    """Join all batches by the reference."""
    found = split(memoryview(bytearray(record_set)))
    return write_batch([record for each in found for record in read_records(each, ANY_SIZE)], codec)


@given(SETS, st.sampled_from(Codec), st.sampled_from(Codec))
def test_joined_batch_equals_that_of_the_decoded_records(
    batches: list[tuple[list[bytes], int]], own: Codec, codec: Codec
) -> None:
    more = [*batches, ([b"one more"], batches[-1][1])]
    record_set = b"".join(laid_out(more, own))
    found = joined(record_set)
    assert found.codec is own
    expected = decoded(record_set)
    newest_ms, records_count = expected.header.max_timestamp, expected.header.records_count
    stamp(expected, 9, 1, LAST_SEQUENCE)
    assert bytes(found.batches) == bytes(expected.view)
    assert (found.end, found.records_count) == (len(record_set), records_count)
    assert found.entries == ENTRY.pack(len(found.batches), records_count, newest_ms, 3)
    built = compressed(next(split(memoryview(found.batches))), codec)
    assert bytes(built.view) == bytes(decoded(record_set, codec).view)


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
    enough = joined(plain + other, below_bytes=len(plain))
    assert (enough.end, enough.records_count, counts(enough)) == (len(plain), 2, [2])
    # Those before it may be joined with others behind it, unless nothing whole is behind it.
    few = joined(plain + other, below_bytes=1000)
    assert counts(few) == ([2] if len(other) < batch_size(other) else [])


def batch_size(batch: bytearray) -> int:
    return int.from_bytes(batch[8:12]) + 12


def test_committed_transactional_batches_are_joined_if_nothing_of_them_was_aborted() -> None:
    record_set = b"".join(
        batch(1, base_offset=offset, flags=TRANSACTIONAL, producer_id=7) for offset in (100, 101)
    )
    assert counts(joined(record_set)) == []
    assert counts(joined(record_set, transactional=1)) == [2]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_batches_with_append_times_are_joined_with_their_create_times(codec: Codec) -> None:
    both = [batch(2, base_offset=each, flags=LOG_APPEND_TIME, codec=codec) for each in (100, 102)]
    assert counts(joined(b"".join(both))) == []
    (written,) = split(memoryview(joined(b"".join(both), append_time=1).batches))
    assert not written.header.is_log_append_time
    assert read_records(written, ANY_SIZE) == read_records(decoded(b"".join(both)), ANY_SIZE)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
@pytest.mark.parametrize("at", range(12, 90))
def test_batch_with_a_flipped_bit_is_not_joined(codec: Codec, at: int) -> None:
    """Its checksum is wrong; the bytes before byte 12 and the epoch are not under it."""
    plain = batch(2, base_offset=100, codec=codec) + batch(1, base_offset=102, codec=codec)
    other = batch(2, base_offset=103, codec=codec)
    assert counts(joined(plain + other)) == [5]
    other[at] ^= 0x10
    assert counts(joined(plain + other)) == []
    assert counts(joined(plain + other, below_bytes=len(plain))) == [3]


@pytest.mark.parametrize("codec", Codec)
def test_joined_batches_follow_one_another_up_to_their_limits(codec: Codec) -> None:
    alike = [batch([bytes(100)], base_offset=100 + number, codec=codec) for number in range(10)]
    one, record_set = alike[0], b"".join(alike)
    thrice = joined(record_set, below_bytes=3 * len(one))
    assert (counts(thrice), thrice.end) == ([3, 3, 3], 9 * len(one))
    for written, sequence in zip(split(memoryview(thrice.batches)), (LAST_SEQUENCE, 2, 5), strict=True):
        verify_crc(written)
        assert (written.header.producer_id, written.header.producer_epoch) == (9, 1)
        assert (written.header.base_offset, written.header.base_sequence) == (0, sequence)
    assert counts(joined(record_set, below_bytes=4 * len(one))) == [4, 4, 2]
    assert counts(joined(record_set, below_bytes=len(one))) == []
    assert counts(joined(record_set, end_offset=104)) == []
    assert counts(joined(record_set[: 4 * len(one)], end_offset=104)) == [4]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_no_more_is_joined_at_a_time_than_may_be_written(codec: Codec) -> None:
    """Times far away from that of the first record take more bytes than the bodies of empty records."""
    batches = laid_out([([b""] * 500, number * 2**50) for number in range(8)], codec)
    record_set, two = b"".join(batches), 2 * len(batches[0])
    (size, *_), *_ = ENTRY.iter_unpack(joined(record_set, below_bytes=two).entries)
    for most_bytes, expected in ((size - 1, []), (size, [1000]), (3 * size - 1, [1000, 1000])):
        found = joined(record_set, below_bytes=two, most_bytes=most_bytes)
        assert counts(found) == expected
        assert len(found.batches) <= most_bytes


def test_position_behind_the_record_set_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\b1\b.*\b0 bytes"):
        join_plain(
            memoryview(bytearray()),
            1,
            first_offset=0,
            end_offset=1,
            producer_id=0,
            producer_epoch=0,
            base_sequence=0,
            transactional=False,
            append_time=False,
            below_bytes=1,
            to=memoryview(bytearray(1)),
        )

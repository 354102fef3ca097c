"""Splitting record sets and reading headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import CorruptBatch
from shoal.records import BatchHeader, Codec, split
from tests.snapshots import Texts
from tests.strategies import record_sets
from tests.world.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, batch, message, raw_batch, view

# One record of a transaction, compressed with zstd, as aiokafka 0.14 wrote it;
# offset and leader epoch as a broker would have set them.
LITERAL = bytes.fromhex(
    "00000000000003e8"  # base_offset 1000
    "00000057"  # batch_length 87
    "00000005"  # leader_epoch
    "02"  # magic
    "ef91c613"  # crc
    "0014"  # attributes: zstd, transactional
    "00000001"  # last_offset_delta
    "00000174876e8000"  # base_timestamp
    "00000174876e8001"  # max_timestamp
    "000000000000007b"  # producer_id 123
    "0004"  # producer_epoch
    "00000005"  # base_sequence
    "00000002"  # records_count
    "28b52ffd207aed0000b818000000026b02760202680278d60100020201c80176000100400a9a"
)
LITERAL_HEADER = BatchHeader(
    base_offset=1000,
    batch_length=87,
    leader_epoch=5,
    magic=2,
    crc=0xEF91C613,
    attributes=0x14,
    last_offset_delta=1,
    base_timestamp=1_600_000_000_000,
    max_timestamp=1_600_000_000_001,
    producer_id=123,
    producer_epoch=4,
    base_sequence=5,
    records_count=2,
)


def test_header_is_read_from_literal_bytes() -> None:
    found = view(LITERAL)
    assert found.header == LITERAL_HEADER
    assert found.view == LITERAL
    assert found.payload == LITERAL[61:]


def test_batch_builder_of_the_tests_writes_the_literal_bytes() -> None:
    fields = LITERAL_HEADER._asdict()
    assert raw_batch(LITERAL[61:], **fields) == LITERAL
    del fields["crc"], fields["batch_length"]
    assert raw_batch(LITERAL[61:], **fields) == LITERAL


@pytest.mark.parametrize(
    ("attributes", "codec_id", "log_append_time", "transactional", "control"),
    [
        (0, Codec.NONE, False, False, False),
        (Codec.ZSTD | LOG_APPEND_TIME, Codec.ZSTD, True, False, False),
        (Codec.LZ4 | TRANSACTIONAL, Codec.LZ4, False, True, False),
        (TRANSACTIONAL | CONTROL, Codec.NONE, False, True, True),
        (7, 7, False, False, False),
        (-1, 7, True, True, True),
        (-0x80, Codec.NONE, False, False, False),
    ],
)
def test_header_has_attributes(
    attributes: int, codec_id: int, log_append_time: bool, transactional: bool, control: bool
) -> None:
    header = view(raw_batch(attributes=attributes)).header
    assert header.codec_id == codec_id
    assert header.is_log_append_time is log_append_time
    assert header.is_transactional is transactional
    assert header.is_control is control


@pytest.mark.parametrize(
    ("count", "holes", "expected"), [(1, (), False), (3, (), False), (3, (1,), True), (3, (0, 1, 2), True)]
)
def test_batch_with_fewer_records_than_offsets_has_holes(
    count: int, holes: tuple[int, ...], expected: bool
) -> None:
    assert view(batch(count, holes=holes)).header.has_holes is expected


@pytest.mark.parametrize(
    "data",
    [
        raw_batch(magic=3),
        raw_batch(magic=-1),
        raw_batch(batch_length=48),
        raw_batch(batch_length=-1),
        raw_batch(batch_length=-(2**31)),
        raw_batch(base_offset=-1),
        # The offset after it would be none of 64 bits, and is fetched from next.
        raw_batch(base_offset=2**63 - 1),
        raw_batch(base_offset=2**63 - 2**31),
        message(0, offset=2**63 - 1),
        raw_batch(records_count=2),
        raw_batch(records_count=-1),
        raw_batch(last_offset_delta=-1, records_count=1),
        raw_batch(last_offset_delta=-1, records_count=0),
        message(1, offset=-1),
        message(0)[:8] + b"\0\0\0\x0d" + message(0)[12:],
        message(1)[:8] + b"\xff\xff\xff\xff" + message(1)[12:],
    ],
)
def test_malformed_batch_is_corrupt_with_its_position(data: bytearray, texts: Texts) -> None:
    before = batch(1)
    found = split(memoryview(before + data))
    assert next(found).view == before
    with pytest.raises(CorruptBatch) as caught:
        next(found)
    texts(str(caught.value))
    assert caught.value.position == len(before)


def test_codecs_have_kafkas_numbers() -> None:
    assert {codec.name: codec.value for codec in Codec} == {
        "NONE": 0,
        "GZIP": 1,
        "SNAPPY": 2,
        "LZ4": 3,
        "ZSTD": 4,
    }


@given(record_sets())
def test_split_and_join_is_identity(record_set: bytearray) -> None:
    found = list(split(memoryview(record_set)))
    assert b"".join(each.view for each in found) == record_set
    assert all(each.header == view(bytes(each.view)).header for each in found)


@given(record_sets(), st.data())
def test_cut_record_set_gives_the_batches_before_the_cut(record_set: bytearray, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(record_set)))
    whole = list(split(memoryview(record_set)))
    found = list(split(memoryview(record_set)[:cut]))
    assert found == whole[: len(found)]
    missing = whole[len(found) : len(found) + 1]
    assert sum(each.header.size for each in found + missing) > cut or not missing

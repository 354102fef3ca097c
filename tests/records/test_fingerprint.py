"""Fields that distinguish two batches, and fields that must not."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.native import NATIVE
from shoal.records import PACKED_FINGERPRINT, Codec, fingerprint, fingerprint_plain, split, stamp
from shoal.records.fingerprint import fingerprint_plain_in_python
from tests.native_path import PATHS
from tests.strategies import INT16, INT64, batches
from tests.world.batches import (
    LOG_APPEND_TIME,
    batch,
    patched,
    raw_batch,
    view,
)


def of(data: bytes | bytearray) -> bytes:
    return fingerprint(view(data))


@given(batches(), INT64, INT16, st.integers(0, 2**31 - 1))
def test_fingerprint_is_the_same_after_a_stamp(
    fetched: bytearray, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    before = of(bytes(fetched))
    found = view(fetched)
    stamp(found, producer_id, producer_epoch, base_sequence)
    assert of(fetched) == before
    assert fingerprint(found) == before, "taken from the view that was stamped"


@given(batches(), INT64, st.booleans())
def test_fingerprint_ignores_log_append_time(
    fetched: bytearray, max_timestamp: int, log_append_time: bool
) -> None:
    """``DefaultRecordBatch.setMaxTimestamp`` rewrites the attributes without those unknown to it."""
    attributes = view(fetched).header.attributes & 0x77 | (LOG_APPEND_TIME if log_append_time else 0)
    rewritten = patched(fetched, 21, attributes.to_bytes(2))
    rewritten = patched(rewritten, 35, max_timestamp.to_bytes(8, signed=True))
    assert of(rewritten) == of(fetched)


@pytest.mark.parametrize(
    "other",
    [
        batch(3, base_timestamp=1_600_000_000_001),
        batch(4),
        batch(3, holes=[1]),
        batch([b"value 0", b"value 1", b"value 3"]),
        batch(3, codec=Codec.GZIP),
        patched(batch(3), 21, b"\0\x02"),  # another codec, the same payload
        patched(batch(3), 21, b"\0\x20"),  # a control batch
        patched(batch(3), 23, b"\0\0\0\3"),  # last_offset_delta
        patched(batch(3), 27, (1_600_000_000_001).to_bytes(8)),
        patched(batch(3), 57, b"\0\0\0\2"),  # records_count
    ],
)
def test_fingerprint_changes_with_codec_count_timestamp_or_value(other: bytearray) -> None:
    assert of(other) != of(batch(3))


def test_fingerprint_has_a_literal_value() -> None:
    found = of(batch(2, base_offset=7, producer_id=3, producer_epoch=1, base_sequence=9))
    assert PACKED_FINGERPRINT.unpack(found) == (0x7FBF6B0F, 99, 2, Codec.NONE, 1_600_000_000_000)


@pytest.mark.parametrize("size", [0, 65_536, 300_000])
def test_fingerprint_is_the_crc_with_variable_fields_zeroed(size: int) -> None:
    content = b"x" * size
    fetched = raw_batch(
        content, attributes=0x7FDA, producer_id=5, producer_epoch=6, base_sequence=7, records_count=1
    )
    normal = raw_batch(content, attributes=0x02, max_timestamp=0)
    expected = view(normal).header.crc, 61 + size, 1, Codec.SNAPPY, 1_600_000_000_000
    assert PACKED_FINGERPRINT.unpack(of(fetched)) == expected


# Runs of plain batches


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = NATIVE.fingerprint_plain if NATIVE and request.param else fingerprint_plain_in_python
    monkeypatch.setattr(sys.modules[__name__], "fingerprint_plain", walk)


def plain(record_set: bytes | bytearray, position: int = 0, **options: int) -> bytes:
    """Return the rows from a position on; the first batch there begins at offset 100 by default."""
    chosen = {"first_offset": 100, "end_offset": 10**6, "transactional": True, **options}
    return fingerprint_plain(memoryview(record_set), position, **chosen)  # type: ignore[arg-type]


def run(*found: bytearray) -> bytearray:
    """Lay batches out from offset 100 on, without gaps."""
    laid, offset = bytearray(), 100
    for each in found:
        each[0:8] = offset.to_bytes(8)
        offset += int.from_bytes(each[23:27]) + 1
        laid += each
    return laid


@pytest.mark.usefixtures("path")
def test_fingerprint_plain_packs_the_fingerprint_of_each_batch() -> None:
    found = run(*(batch(count, codec=codec) for count, codec in zip((1, 3, 2, 9, 4), Codec, strict=True)))
    assert plain(found) == b"".join(map(fingerprint, split(memoryview(found))))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("records_count", [30, 400, 40_000])
def test_fingerprint_plain_of_a_batch_of_any_size_is_its_fingerprint(records_count: int) -> None:
    found = run(batch(records_count, codec=Codec.NONE))
    assert plain(found) == of(found)


@pytest.mark.usefixtures("path")
def test_fingerprint_plain_has_literal_rows() -> None:
    found = run(batch(2, producer_id=3, producer_epoch=1, base_sequence=9))
    assert plain(found) == bytes.fromhex("0f6bbf7f 63000000 02000000 00000000 00806e8774010000")

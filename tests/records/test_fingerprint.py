"""Fields that distinguish two batches, and fields that must not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.records import Codec, Fingerprint, fingerprint, stamp
from tests.batches import LOG_APPEND_TIME, batch, patched, raw_batch, view
from tests.strategies import INT16, INT32, INT64, batches


def of(data: bytes | bytearray) -> Fingerprint:
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


@given(batches(), st.integers(0, 2**62), INT32)
def test_fingerprint_ignores_offset_and_leader_epoch(
    fetched: bytearray, base_offset: int, leader_epoch: int
) -> None:
    before = of(fetched)
    fetched[0:8] = base_offset.to_bytes(8)
    fetched[12:16] = leader_epoch.to_bytes(4, signed=True)
    assert of(fetched) == before


@given(batches(), INT64, st.booleans())
def test_fingerprint_ignores_log_append_time(
    fetched: bytearray, max_timestamp: int, log_append_time: bool
) -> None:
    """``DefaultRecordBatch.setMaxTimestamp`` rewrites the attributes without those unknown to it."""
    attributes = view(fetched).header.attributes & 0x77 | (LOG_APPEND_TIME if log_append_time else 0)
    rewritten = patched(fetched, 21, attributes.to_bytes(2))
    rewritten = patched(rewritten, 35, max_timestamp.to_bytes(8, signed=True))
    assert of(rewritten) == of(fetched)


@given(batches(min_payload=1), st.data())
def test_fingerprint_changes_with_any_payload_bit(fetched: bytearray, data: st.DataObject) -> None:
    at = data.draw(st.integers(61, len(fetched) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    assert of(patched(fetched, at, bytes([fetched[at] ^ bit]))) != of(fetched)


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
    """Fingerprints are committed with positions: after a change, no mirror could be resumed."""
    assert of(batch(2, base_offset=7, producer_id=3, producer_epoch=1, base_sequence=9)) == Fingerprint(
        crc=0x7FBF6B0F, size=99, records_count=2, base_timestamp=1_600_000_000_000
    )


@pytest.mark.parametrize("size", [0, 65_536, 300_000])
def test_fingerprint_is_the_crc_with_variable_fields_zeroed(size: int) -> None:
    content = b"x" * size
    fetched = raw_batch(
        content, attributes=0x7FDA, producer_id=5, producer_epoch=6, base_sequence=7, records_count=1
    )
    normal = raw_batch(content, attributes=0x02, max_timestamp=0)
    assert of(fetched) == Fingerprint(view(normal).header.crc, 61 + size, 1, 1_600_000_000_000)

"""CRC-32C, its correction, and the check of a batch against its own."""

from __future__ import annotations

import pytest

from shoal.errors import CorruptBatch
from shoal.records import Codec, crc32c, verify_crc
from shoal.records.checksum import crc_of_difference
from tests.world.batches import batch, marker, message, view


def test_crc32c_equals_the_published_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


@pytest.mark.parametrize("following", [0, 1, 61, 65_535, 65_536, 65_537, 3 * 65_536, 1_000_003])
@pytest.mark.parametrize(
    ("old", "new"), [(b"\0", b"\1"), (b"old value", b"new value"), (b"", b""), (b"a", b"a")]
)
def test_corrected_crc_equals_a_recomputed_one(old: bytes, new: bytes, following: int) -> None:
    head, tail = b"before", bytes(range(256)) * (following // 256) + b"x" * (following % 256)
    difference = crc_of_difference(crc32c(old), crc32c(new), len(tail))
    assert crc32c(head + old + tail) ^ difference == crc32c(head + new + tail)


WHOLE = [
    batch(3),
    batch(3, codec=Codec.ZSTD, base_offset=9, leader_epoch=4),
    marker(1, 5),
    message(0),
    message(1, offset=8),
]


@pytest.mark.parametrize("whole", WHOLE)
def test_verify_crc_detects_any_flipped_bit(whole: bytearray) -> None:
    magic = whole[16]
    covered_from = 21 if magic == 2 else 17  # the magic itself decides how the rest is read
    for position in range(covered_from, len(whole)):
        flipped = bytearray(whole)
        found = view(flipped)
        flipped[position] ^= 0x10
        with pytest.raises(CorruptBatch, match=r"CRC.*0x[0-9a-f]{8}.*0x[0-9a-f]{8}"):
            verify_crc(found)


def test_verify_crc_error_has_the_offset_of_the_batch() -> None:
    damaged = batch(1, base_offset=42)
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch) as caught:
        verify_crc(view(damaged))
    assert caught.value.position == 42

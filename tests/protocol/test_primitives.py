"""Kafka's wire types: literal bytes both ways, and bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ProtocolError
from shoal.protocol.primitives import (
    INT16,
    INT32,
    INT64,
    expect_end,
    read_array_length,
    read_nullable_string,
    read_record_set,
    read_string,
    read_unsigned_varint,
    skip_tagged_fields,
    unpack,
    write_array_length,
    write_string,
    write_unsigned_varint,
)

Reader = Callable[[memoryview, int], tuple[Any, int]]

VARINTS = [
    (0, b"\x00"),
    (1, b"\x01"),
    (127, b"\x7f"),
    (128, b"\x80\x01"),
    (300, b"\xac\x02"),
    (16_383, b"\xff\x7f"),
    (16_384, b"\x80\x80\x01"),
    (2**31 - 1, b"\xff\xff\xff\xff\x07"),
    (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
]

STRINGS = [
    ("", False, b"\x00\x00"),
    ("", True, b"\x01"),
    ("abc", False, b"\x00\x03abc"),
    ("abc", True, b"\x04abc"),
    ("é", False, b"\x00\x02\xc3\xa9"),
    ("x" * 127, True, b"\x80\x01" + b"x" * 127),
    ("x" * 32_767, False, b"\x7f\xff" + b"x" * 32_767),
]

ARRAY_LENGTHS = [(0, False, b"\0\0\0\0"), (3, False, b"\0\0\0\3"), (0, True, b"\1"), (3, True, b"\4")]


def check(read: Reader, encoded: bytes, value: Any) -> None:
    """Read it whole, in the middle of other bytes, and cut short at every byte."""
    assert read(memoryview(encoded), 0) == (value, len(encoded))
    assert read(memoryview(b"??" + encoded + b"trailing"), 2) == (value, 2 + len(encoded))
    for cut in [*range(min(len(encoded), 200)), len(encoded) - 1]:
        with pytest.raises(ProtocolError):
            read(memoryview(encoded[:cut]), 0)


@pytest.mark.parametrize(("value", "encoded"), VARINTS)
def test_unsigned_varint_has_literal_bytes(value: int, encoded: bytes) -> None:
    assert write_unsigned_varint(value) == encoded
    check(read_unsigned_varint, encoded, value)


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varint_written_and_read_is_equal(value: int) -> None:
    encoded = write_unsigned_varint(value)
    assert read_unsigned_varint(memoryview(encoded), 0) == (value, len(encoded))


def test_varint_longer_than_five_bytes_is_refused() -> None:
    assert read_unsigned_varint(memoryview(b"\x80\x80\x80\x80\x00"), 0) == (0, 5)
    with pytest.raises(ProtocolError, match=r"5.*bytes.*5"):
        read_unsigned_varint(memoryview(b"\x80" * 1_000_000), 0)


@pytest.mark.parametrize(("value", "compact", "encoded"), STRINGS)
def test_string_has_kafka_s_literal_bytes(value: str, compact: bool, encoded: bytes) -> None:
    assert write_string(value, compact) == encoded
    check(lambda buffer, position: read_string(buffer, position, compact), encoded, value)
    check(lambda buffer, position: read_nullable_string(buffer, position, compact), encoded, value)


@given(st.text(max_size=50), st.booleans())
def test_string_written_and_read_is_equal(value: str, compact: bool) -> None:
    encoded = write_string(value, compact)
    assert read_string(memoryview(encoded), 0, compact) == (value, len(encoded))


@pytest.mark.parametrize(("compact", "encoded"), [(False, b"\xff\xff"), (True, b"\x00")])
def test_null_string_is_read_only_as_nullable(compact: bool, encoded: bytes) -> None:
    check(lambda buffer, position: read_nullable_string(buffer, position, compact), encoded, None)
    with pytest.raises(ProtocolError, match=r"instead.*string"):
        read_string(memoryview(encoded), 0, compact)


@pytest.mark.parametrize(
    ("compact", "encoded", "reason"),
    [
        (False, b"\xff\xfe", "a length of -2"),
        (False, b"\x00\x04abc", "a length of 4 at 2, with 3 bytes left"),
        (True, b"\x05abc", "a length of 4 at 1, with 3 bytes left"),
        (True, b"\xff\xff\xff\xff\x0fabc", "a length of 4294967294"),
        (False, b"\x00\x02\xc3\x28", "no UTF-8"),
        (True, b"\x02\xff", "no UTF-8"),
    ],
)
def test_malformed_string_is_refused(compact: bool, encoded: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        read_nullable_string(memoryview(encoded), 0, compact)


@pytest.mark.parametrize(
    ("content", "compact", "encoded"),
    [
        (b"", False, b"\0\0\0\0"),
        (b"batch", False, b"\0\0\0\5batch"),
        (b"", True, b"\1"),
        (b"batch", True, b"\6batch"),
        (b"", False, b"\xff\xff\xff\xff"),
        (b"", True, b"\0"),
    ],
)
def test_null_record_set_is_read_as_empty(content: bytes, compact: bool, encoded: bytes) -> None:
    check(lambda buffer, position: read_record_set(buffer, position, compact), encoded, content)


def test_record_set_is_a_view_of_the_frame() -> None:
    frame = bytearray(b"\6batch")
    found, _ = read_record_set(memoryview(frame), 0, True)
    frame[1:2] = b"B"
    assert bytes(found) == b"Batch"


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xfe", b"\0\0\0\6batch", b"\x7f\xff\xff\xff"])
def test_record_set_longer_than_the_frame_is_refused(encoded: bytes) -> None:
    with pytest.raises(ProtocolError, match="a length of"):
        read_record_set(memoryview(encoded), 0, False)


@pytest.mark.parametrize(("length", "compact", "encoded"), ARRAY_LENGTHS)
def test_array_length_has_literal_bytes_and_is_refused_if_cut(
    length: int, compact: bool, encoded: bytes
) -> None:
    assert write_array_length(length, compact) == encoded
    elements = encoded + b"?" * length
    assert read_array_length(memoryview(elements), 0, compact) == (length, len(encoded))
    for cut in range(len(elements)):
        with pytest.raises(ProtocolError):
            read_array_length(memoryview(elements[:cut]), 0, compact)


@pytest.mark.parametrize(("compact", "encoded"), [(False, b"\xff\xff\xff\xff"), (True, b"\x00")])
def test_null_array_is_written_as_minus_one_and_read_as_empty(compact: bool, encoded: bytes) -> None:
    assert write_array_length(-1, compact) == encoded
    assert read_array_length(memoryview(encoded), 0, compact) == (0, len(encoded))


@pytest.mark.parametrize(
    ("compact", "encoded"), [(False, b"\x7f\xff\xff\xff"), (False, b"\xff\xff\xff\xfe"), (True, b"\xff\x7f")]
)
def test_array_with_more_elements_than_bytes_left_is_refused(compact: bool, encoded: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"a length of .*bytes left"):
        read_array_length(memoryview(encoded + b"?" * 100), 0, compact)


@pytest.mark.parametrize("encoded", [b"\0", b"\1\0\0", b"\1\5\3abc", b"\2\0\1a\xff\xff\xff\xff\x0f\2bc"])
def test_tagged_fields_are_skipped(encoded: bytes) -> None:
    check(lambda buffer, position: (None, skip_tagged_fields(buffer, position)), encoded, None)


@pytest.mark.parametrize("encoded", [b"\1\0\2a", b"\xff\xff\xff\xff\x0f\0\0", b"\1\0\xff\xff\xff\xff\x0fa"])
def test_tagged_fields_longer_than_the_frame_are_refused(encoded: bytes) -> None:
    with pytest.raises(ProtocolError):
        skip_tagged_fields(memoryview(encoded), 0)


@pytest.mark.parametrize(
    ("layout", "encoded", "value"),
    [
        (INT16, b"\xff\xfe", -2),
        (INT32, b"\x80\0\0\0", -(2**31)),
        (INT64, b"\0\0\0\0\0\0\1\0", 256),
    ],
)
def test_fixed_sizes_are_big_endian_and_signed(layout: Any, encoded: bytes, value: int) -> None:
    def read(buffer: memoryview, position: int) -> tuple[int, int]:
        (found,) = unpack(layout, buffer, position)
        return found, position + layout.size

    assert layout.pack(value) == encoded
    check(read, encoded, value)


def test_position_behind_the_frame_is_refused() -> None:
    with pytest.raises(ProtocolError, match="ends at 2"):
        unpack(INT16, memoryview(b"ab"), 7)
    with pytest.raises(ProtocolError):
        read_unsigned_varint(memoryview(b"ab"), 7)


def test_message_shorter_or_longer_than_its_frame_is_refused() -> None:
    expect_end(memoryview(b"abc"), 3)
    for position in (2, 4):
        with pytest.raises(ProtocolError, match=rf"message.*3.*{position}"):
            expect_end(memoryview(b"abc"), position)

"""Wire types of malformed bytes. ``test_by_hand`` compares whole messages with other libraries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ProtocolError
from shoal.protocol.primitives import (
    INT16,
    expect_end,
    read_array_length,
    read_nullable_string,
    read_record_set,
    read_string,
    read_unsigned_varint,
    skip_tagged_fields,
    unpack,
    write_unsigned_varint,
)

Reader = Callable[[memoryview, int], tuple[Any, int]]

MALFORMED: list[tuple[Reader, bytes, str]] = [
    (read_unsigned_varint, b"\x80" * 1_000_000, r"5.*bytes.*5"),
    (partial(read_string, compact=False), b"\xff\xff", "instead.*string"),
    (partial(read_string, compact=True), b"\0", "instead.*string"),
    (partial(read_nullable_string, compact=False), b"\xff\xfe", "a length of -2"),
    (partial(read_nullable_string, compact=False), b"\0\4abc", "a length of 4 at 2, with 3 bytes left"),
    (partial(read_nullable_string, compact=True), b"\5abc", "a length of 4 at 1, with 3 bytes left"),
    (partial(read_nullable_string, compact=True), b"\xff\xff\xff\xff\x0fabc", "a length of 4294967294"),
    (partial(read_nullable_string, compact=False), b"\0\2\xc3\x28", "no UTF-8"),
    (partial(read_record_set, compact=False), b"\xff\xff\xff\xfe", "a length of"),
    (partial(read_record_set, compact=False), b"\0\0\0\6batch", "a length of"),
    (
        partial(read_array_length, compact=False),
        b"\x7f\xff\xff\xff" + b"?" * 100,
        r"a length of .*bytes left",
    ),
    (partial(read_array_length, compact=True), b"\xff\x7f" + b"?" * 100, r"a length of .*bytes left"),
    (lambda buffer, at: (None, skip_tagged_fields(buffer, at)), b"\1\0\2a", "a tagged field of 2 bytes"),
    (lambda buffer, at: (None, skip_tagged_fields(buffer, at)), b"\xff\xff\xff\xff\x0f\0\0", "ends at"),
    (lambda buffer, at: (unpack(INT16, buffer, at), at + 2), b"a", "ends at 1"),
]


@pytest.mark.parametrize(("read", "encoded", "reason"), MALFORMED)
def test_malformed_bytes_are_refused(read: Reader, encoded: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        read(memoryview(encoded), 0)


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varint_written_and_read_is_equal(value: int) -> None:
    encoded = write_unsigned_varint(value)
    assert read_unsigned_varint(memoryview(encoded + b"?"), 0) == (value, len(encoded))


def test_message_shorter_or_longer_than_its_frame_is_refused() -> None:
    expect_end(memoryview(b"abc"), 3)
    for position in (2, 4):
        with pytest.raises(ProtocolError, match=rf"message.*3.*{position}"):
            expect_end(memoryview(b"abc"), position)

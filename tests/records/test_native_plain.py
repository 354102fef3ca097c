"""The native walks do to any bytes what Python's do, which are the reference."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.native import NATIVE
from shoal.records.fingerprint import fingerprint_plain_in_python
from shoal.records.plain import stamp_plain_in_python
from tests.native_path import needs_native
from tests.strategies import INT16, INT64, batches
from tests.world.batches import batch

pytestmark = needs_native

END = 2**63 - 1


def compare(
    record_set: bytes | bytearray, first_offset: int, end_offset: int, identity: tuple[int, int, int]
) -> None:
    """Walk by both, and compare results and bytes."""
    assert NATIVE is not None
    for transactional in (False, True):
        by_python, by_native = (
            walk(
                memoryview(record_set),
                0,
                first_offset=first_offset,
                end_offset=end_offset,
                transactional=transactional,
            )
            for walk in (fingerprint_plain_in_python, NATIVE.fingerprint_plain)
        )
        assert by_native == by_python
    names = ("producer_id", "producer_epoch", "base_sequence")
    arguments = dict(zip(names, identity, strict=True), first_offset=first_offset, end_offset=end_offset)
    for transactional, append_time in itertools.product((False, True), repeat=2):
        reference, stamped = bytearray(record_set), bytearray(record_set)
        expected, found = (
            walk(memoryview(fetched), 0, transactional=transactional, append_time=append_time, **arguments)
            for walk, fetched in ((stamp_plain_in_python, reference), (NATIVE.stamp_plain, stamped))
        )
        assert found == expected
        assert stamped == reference


@given(st.lists(batches(), max_size=4), INT64, st.tuples(INT64, INT16, st.integers(0, 2**31 - 1)))
def test_any_record_set_is_walked_as_by_python(
    fetched: list[bytearray], end_offset: int, identity: tuple[int, int, int]
) -> None:
    record_set = b"".join(fetched)
    first_offset = struct.unpack_from(">q", record_set)[0] if record_set else 0
    compare(record_set, first_offset, end_offset, identity)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=6), st.integers(0, 400), st.integers(0, 255))
def test_damaged_plain_batches_are_walked_as_by_python(counts: list[int], at: int, value: int) -> None:
    record_set = bytearray()
    offset = 100
    for count in counts:
        record_set += batch(count, base_offset=offset)
        offset += count
    compare(record_set, 100, END, (9, 1, 2**31 - 2))
    record_set[at % len(record_set)] = value
    compare(record_set, 100, END, (9, 1, 2**31 - 2))


@pytest.mark.parametrize(
    ("record_set", "position", "problem"),
    [
        (memoryview(bytearray(4)), 5, "position 5 is behind 4 bytes"),
        (memoryview(b"1234"), 0, "writable"),
        (memoryview(bytearray(8))[::2], 0, "contiguous"),
    ],
)
def test_memory_that_cannot_be_walked_is_refused(record_set: memoryview, position: int, problem: str) -> None:
    assert NATIVE is not None
    with pytest.raises(ValueError, match=problem):
        NATIVE.stamp_plain(
            record_set,
            position,
            first_offset=0,
            end_offset=1,
            producer_id=1,
            producer_epoch=1,
            base_sequence=0,
            transactional=False,
            append_time=False,
        )

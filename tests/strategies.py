"""Hypothesis strategies for the tests: batches, record sets, and damage to them."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.fuzz.damage import mutated
from tests.world.batches import raw_batch

__all__ = ["INT16", "INT32", "INT64", "batches", "damaged", "record_sets"]

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def batches(draw: st.DrawFn, min_payload: int = 0) -> bytearray:
    """Draw a batch of magic 2 with a right CRC; its payload cannot be decoded."""
    last_offset_delta = draw(st.integers(0, 2**31 - 1))
    return raw_batch(
        draw(st.binary(min_size=min_payload, max_size=200)),
        base_offset=draw(st.integers(0, 2**62)),
        leader_epoch=draw(INT32),
        attributes=draw(INT16),
        last_offset_delta=last_offset_delta,
        base_timestamp=draw(INT64),
        max_timestamp=draw(INT64),
        producer_id=draw(INT64),
        producer_epoch=draw(INT16),
        base_sequence=draw(INT32),
        records_count=draw(st.integers(0, min(last_offset_delta + 1, 2**31 - 1))),
    )


def record_sets() -> st.SearchStrategy[bytearray]:
    """Draw batches back to back."""
    return st.lists(batches(), max_size=5).map(lambda drawn: bytearray().join(drawn))


def damaged(whole: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Draw well-formed bytes with damage (``tests.fuzz.damage``)."""
    return whole.flatmap(mutated)

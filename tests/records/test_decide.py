"""One decision per batch, in the order that `records/decide.py` asks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.records import AbortedTransactions, Decision, decide
from tests.strategies import batches
from tests.world.batches import CONTROL, TRANSACTIONAL, batch, marker, message, view

ABORTED_PRODUCER = 7


def decision(data: bytearray, start_offset: int = 0, aborted: bool = True) -> Decision:
    transactions = AbortedTransactions([(ABORTED_PRODUCER, 0)]) if aborted else None
    return decide(view(data).header, start_offset, transactions)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (marker(0, 1), Decision.DROP_CONTROL),
        (marker(1, ABORTED_PRODUCER), Decision.DROP_CONTROL),
        (batch(2, holes=[0, 1], flags=CONTROL), Decision.DROP_CONTROL),
        (batch(2, flags=TRANSACTIONAL, producer_id=ABORTED_PRODUCER), Decision.DROP_ABORTED),
        (batch(2, flags=TRANSACTIONAL, producer_id=ABORTED_PRODUCER, holes=[0]), Decision.DROP_ABORTED),
        (batch(2, producer_id=ABORTED_PRODUCER), Decision.COPY),
        (batch(2, flags=TRANSACTIONAL, producer_id=1), Decision.COPY),
        (batch(2, holes=[0, 1]), Decision.DROP_EMPTY),
        (batch(2, holes=[1]), Decision.REBUILD_HOLES),
        (message(0), Decision.REBUILD_MAGIC),
        (message(1, attributes=1), Decision.REBUILD_MAGIC),
    ],
)
def test_incomplete_batch_is_dropped_or_rebuilt(data: bytearray, expected: Decision) -> None:
    assert decision(data) is expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (marker(0, ABORTED_PRODUCER, base_offset=10), Decision.DROP_CONTROL),
        (batch(3, base_offset=10, flags=TRANSACTIONAL, producer_id=ABORTED_PRODUCER), Decision.DROP_ABORTED),
        (batch(3, base_offset=10, holes=[0, 1, 2]), Decision.DROP_EMPTY),
        (message(1, offset=10), Decision.REBUILD_MAGIC),
    ],
)
def test_dropped_or_old_batch_is_not_cropped(data: bytearray, expected: Decision) -> None:
    assert decision(data, 11) is expected


@given(batches(), st.integers(0, 2**62))
def test_decide_returns_a_decision_for_every_header_and_copies_only_valid_batches(
    data: bytearray, start_offset: int
) -> None:
    header = view(data).header
    made = decide(header, start_offset, AbortedTransactions([(header.producer_id, 0)]))
    copied = (
        not header.is_control
        and not header.is_transactional
        and header.records_count == header.last_offset_delta + 1
        and header.base_offset >= start_offset
    )
    assert (made is Decision.COPY) == copied

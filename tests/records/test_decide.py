"""One decision per batch, in the order that `records/decide.py` asks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.records import AbortedTransactions, Decision, decide
from tests.strategies import batches
from tests.world.batches import view

ABORTED_PRODUCER = 7


def decision(data: bytearray, start_offset: int = 0, aborted: bool = True) -> Decision:
    transactions = AbortedTransactions([(ABORTED_PRODUCER, 0)]) if aborted else None
    return decide(view(data).header, start_offset, transactions)


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

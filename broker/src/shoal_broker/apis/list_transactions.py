"""ListTransactions (API key 66), v0 to v1: by state and producer, from v1 by age."""

from __future__ import annotations

from typing import Any

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..call import Call
from ..clock import now_ms
from ..coordination.transactions import Transaction, TransactionState
from ..state import BrokerState
from .answering import answer_errors, error_in

__all__ = ["handle"]

_Response = response_class(ApiKey.LIST_TRANSACTIONS)
_State = _Response.TransactionState

_AGE_FROM = 1

_NAMES = {state.value for state in TransactionState}


@answer_errors(error_in(_Response, unknown_state_filters=[], transaction_states=[]))
def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """List the transactional ids, by default all of them."""
    states, producers = set(request.state_filters), set(request.producer_id_filters)
    age_ms = request.duration_filter if call.version >= _AGE_FROM else -1
    oldest_ms = now_ms() - age_ms if age_ms >= 0 else None

    def is_wanted(transaction: Transaction) -> bool:
        return (
            (not states or transaction.state.value in states)
            and (not producers or transaction.producer_id in producers)
            and (oldest_ms is None or 0 <= transaction.started_at_ms <= oldest_ms)
        )

    return _Response(
        unknown_state_filters=sorted(states - _NAMES),
        transaction_states=state.transactions.read_all(
            lambda transaction: _listed(transaction) if is_wanted(transaction) else None
        ),
    )


def _listed(transaction: Transaction) -> Any:
    return _State(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.value,
    )

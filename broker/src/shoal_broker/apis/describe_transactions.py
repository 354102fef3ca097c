"""DescribeTransactions (API key 65), v0: the state of transactional ids, and their partitions."""

from __future__ import annotations

from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..coordination.transactions import Transaction
from ..state import BrokerState
from .answering import answer_errors

__all__ = ["handle"]

_Response = response_class(ApiKey.DESCRIBE_TRANSACTIONS)
_State = _Response.TransactionState
_Topic = _State.TopicData


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Describe transactional ids."""
    return _Response(transaction_states=[_answer(state, call, each) for each in request.transactional_ids])


def _refused(error: ApiError, call: Call, transactional_id: str) -> Any:
    return _State(
        error_code=error.code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


@answer_errors(_refused)
def _answer(state: BrokerState, call: Call, transactional_id: str) -> Any:
    found = state.transactions.read_all(
        lambda each: _described(each) if each.transactional_id == transactional_id else None
    )
    if not found:
        raise ApiError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {transactional_id!r}"
        )
    return found[0]


def _described(transaction: Transaction) -> Any:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(partition)
    return _State(
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=round(transaction.timeout_s * 1000),
        transaction_start_time_ms=transaction.started_at_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[_Topic(topic=topic, partitions=partitions) for topic, partitions in by_topic.items()],
    )

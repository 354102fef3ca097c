"""
TxnOffsetCommit (API key 28), v0 to v4.

From v3 on a producer may name the group's member and generation. A stale one is fenced as in OffsetCommit
(KIP-447).
"""

from __future__ import annotations

from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..call import Call
from ..state import BrokerState
from .answering import answer_errors, error_code
from .offset_commit import Offsets, checked_offsets, response_topics

__all__ = ["handle"]

_Response = response_class(ApiKey.TXN_OFFSET_COMMIT)
_Topic = _Response.TxnOffsetCommitResponseTopic
_Partition = _Topic.TxnOffsetCommitResponsePartition


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Commit a group's offsets as part of a transaction."""
    offsets, errors = checked_offsets(state, call, request)
    errors |= dict.fromkeys(offsets, _commit(state, call, request, offsets))
    return _Response(topics=response_topics(_Topic, _Partition, request, errors))


@answer_errors(error_code, effects=["after"])
def _commit(state: BrokerState, call: Call, request: Any, offsets: Offsets) -> ErrorCode:
    state.transactions.check_group(
        request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
    )
    state.groups.check_transactional_commit(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    state.groups.commit(request.group_id, offsets, request.producer_id)
    return ErrorCode.NONE

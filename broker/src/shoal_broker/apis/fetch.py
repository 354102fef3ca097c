"""
Fetch (API key 1), v4 to v13: read from partitions, waiting for data if need be.

- Batches are sent as they are stored, from the one that holds the fetch
  offset on; the last one of a partition may be cut.
- The first partition with data gives one batch at least, whatever the limits
  (KIP-74). The others give nothing if their first batch does not fit.
- ``read_committed`` stops at the last stable offset and names the aborted
  transactions.
- In a fetch session (``fetch_sessions``) an answer has only what is new.
- v13 lists topics by id: one that no topic has is UNKNOWN_TOPIC_ID. A session
  remembers the name; if a topic created since has it, that is INCONSISTENT_TOPIC_ID.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.fetch import FetchedPartition, FetchResponse
from shoal.protocol.topic_ids import TOPIC_IDS_FROM
from shoal.records import Codec

from ..api_error import ApiError
from ..call import Call
from ..coordination.fetch_sessions import Wanted
from ..state import BrokerState
from ..storage.log import Log
from ..topics import Topic
from .answering import answer_errors

__all__ = ["handle"]

_READ_COMMITTED = 1
_NO_RECORDS = memoryview(b"")

#: Kafka's default of ``fetch.max.bytes``.
_MOST_BYTES = 57_671_680

#: From this version on clients read zstd.
_ZSTD_FROM = 10

#: A Fetch does not wait for partitions that do not exist.
_NOT_THERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def handle(state: BrokerState, call: Call, request: Any) -> FetchResponse:
    """Read from partitions, and wait for data if there is too little."""
    try:
        names = state.topics.names if call.version >= TOPIC_IDS_FROM else None
        context = state.fetch_sessions.begin(request, names)
    except ApiError as error:
        return FetchResponse(0, error.code, 0, [])
    wanted = [(each, state.topics.get(each.topic)) for each in context.wanted]
    committed = request.isolation_level == _READ_COMMITTED
    max_bytes = min(request.max_bytes, _MOST_BYTES)
    partitions: list[FetchedPartition] = []

    def satisfied() -> bool:
        partitions.clear()
        partitions.extend(_read_all(state, call, wanted, max_bytes, committed))
        return _is_enough(partitions, request.min_bytes)

    logs = [log for each, topic in wanted if (log := _log(each, topic)) is not None]
    timeout_s = max(request.max_wait_ms, 0) / 1000 if logs else 0
    state.purgatory.wait_for(satisfied, logs, timeout_s, call.has_hung_up)
    return context.answer(partitions)


def _log(wanted: Wanted, topic: Topic | None) -> Log | None:
    exists = topic is not None and 0 <= wanted.partition < len(topic.logs)
    return topic.logs[wanted.partition] if topic is not None and exists else None


def _is_enough(partitions: list[FetchedPartition], min_bytes: int) -> bool:
    """Return whether a Fetch need not wait: it has enough, or an error of a partition that exists."""
    size = sum(len(fetched.record_set) for fetched in partitions)
    return size >= min_bytes or any(
        fetched.error_code and fetched.error_code not in _NOT_THERE for fetched in partitions
    )


def _read_all(
    state: BrokerState,
    call: Call,
    wanted: Sequence[tuple[Wanted, Topic | None]],
    max_bytes: int,
    committed: bool,
) -> Iterator[FetchedPartition]:
    left = max_bytes
    nothing_yet = True
    for each, topic in wanted:
        fetched = _read(
            state,
            call,
            each,
            topic,
            max_bytes=min(each.max_bytes, left),
            committed=committed,
            is_first=nothing_yet,
        )
        size = len(fetched.record_set)
        left = max(left - size, 0)
        nothing_yet = nothing_yet and size == 0
        yield fetched


def _refused(error: ApiError, call: Call, wanted: Wanted, *_: object, **options: object) -> FetchedPartition:
    return FetchedPartition(
        wanted.topic, wanted.partition, error.code, -1, -1, -1, (), _NO_RECORDS, topic_id=wanted.topic_id
    )


@answer_errors(_refused, place=lambda wanted, *_: (wanted.topic, wanted.partition))
def _read(
    state: BrokerState,
    call: Call,
    wanted: Wanted,
    topic: Topic | None,
    *,
    max_bytes: int,
    committed: bool,
    is_first: bool,
) -> FetchedPartition:
    log = _wanted_log(state, wanted, topic)
    state.leaders.check(state.node_id, wanted.topic, wanted.partition)
    log.check_leader_epoch(wanted.leader_epoch)
    if call.version < _ZSTD_FROM and log.config.codec is Codec.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "this version cannot carry ZStandard (KIP-110)"
        )
    read = log.read(wanted.fetch_offset, max_bytes, committed=committed, at_least_one_batch=is_first)
    return FetchedPartition(
        wanted.topic,
        wanted.partition,
        ErrorCode.NONE,
        read.high_watermark,
        read.last_stable_offset,
        read.log_start_offset,
        read.aborted_transactions,
        read.record_set,
        topic_id=wanted.topic_id,
    )


def _wanted_log(state: BrokerState, wanted: Wanted, topic: Topic | None) -> Log:
    """
    Return the log of a partition, unless another topic has the name since the request came.

    Args:
        topic: The topic that had the name then; it may be deleted while a Fetch waits.

    Raises:
        ApiError: With UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION or INCONSISTENT_TOPIC_ID.

    """
    if not wanted.topic:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {wanted.topic_id}")
    log = _log(wanted, topic)
    if topic is None or log is None or state.topics.get(wanted.topic) is not topic:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
    if wanted.topic_id not in (None, topic.topic_id):
        raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{wanted.topic} has another id")
    return log

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

from collections.abc import Sequence
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.fetch import FetchedPartition, FetchResponse
from shoal.protocol.topic_ids import TOPIC_IDS_FROM

from ..api_error import ApiError
from ..call import Call
from ..coordination.fetch_sessions import Wanted
from ..state import BrokerState
from ..storage.log import Log, ReadInfo
from ..topics import Topic

__all__ = ["fetch"]

_READ_COMMITTED = 1

#: Kafka's default of ``fetch.max.bytes``.
_MOST_BYTES = 57_671_680

_NOTHING = ReadInfo(-1, -1, -1, (), memoryview(b""))

#: A Fetch does not wait for partitions that do not exist.
_NOT_THERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def fetch(state: BrokerState, call: Call, request: Any) -> FetchResponse:
    """Read from partitions, and wait for data if there is too little."""
    try:
        names = state.topics.names if call.version >= TOPIC_IDS_FROM else None
        context = state.fetch_sessions.begin(request, names)
    except ApiError as error:
        return FetchResponse(0, error.code, 0, [])
    wanted = [(each, state.topics.get(each.topic)) for each in context.wanted]
    reading = _Reading(state, call, wanted, request)
    logs = [log for each, topic in wanted if topic and (log := topic.log(each.partition)) is not None]
    timeout_s = max(request.max_wait_ms, 0) / 1000 if logs else 0
    state.purgatory.wait_for(reading.is_enough, logs, timeout_s, call.has_hung_up)
    return state.fetch_sessions.answer(context, reading.partitions)


class _Reading:
    """Reads the partitions of a request, again and again until they have enough."""

    def __init__(
        self, state: BrokerState, call: Call, wanted: Sequence[tuple[Wanted, Topic | None]], request: Any
    ) -> None:
        self.partitions: list[FetchedPartition] = []
        self._state = state
        self._call = call
        self._wanted = wanted
        self._committed = request.isolation_level == _READ_COMMITTED
        self._min_bytes = request.min_bytes
        self._max_bytes = min(request.max_bytes, _MOST_BYTES)

    def is_enough(self) -> bool:
        """Read, and return whether the bytes are enough, or a partition that exists has an error."""
        self.partitions = []
        size = 0
        for wanted, topic in self._wanted:
            fetched = self._answer(wanted, topic, self._max_bytes - size)
            size += len(fetched.record_set)
            self.partitions.append(fetched)
        return size >= self._min_bytes or any(
            fetched.error_code and fetched.error_code not in _NOT_THERE for fetched in self.partitions
        )

    def _answer(self, wanted: Wanted, topic: Topic | None, left: int) -> FetchedPartition:
        place = (wanted.topic, wanted.partition)
        code, read = ErrorCode.NONE, _NOTHING
        try:
            with self._call.faults_at(*place):
                read = self._read(wanted, topic, left)
        except ApiError as error:
            code = error.code
        return FetchedPartition(
            *place,
            code,
            read.high_watermark,
            read.last_stable_offset,
            read.log_start_offset,
            read.aborted_transactions,
            read.record_set,
            topic_id=wanted.topic_id,
        )

    def _read(self, wanted: Wanted, topic: Topic | None, left: int) -> ReadInfo:
        log = _wanted_log(self._state, wanted, topic)
        self._state.leaders.check(self._state.node_id, wanted.topic, wanted.partition)
        log.epochs.check(wanted.leader_epoch)
        return log.read(
            wanted.fetch_offset,
            min(wanted.max_bytes, max(left, 0)),
            committed=self._committed,
            at_least_one_batch=left == self._max_bytes,
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
    log = topic.log(wanted.partition) if topic is not None else None
    if topic is None or log is None or state.topics.get(wanted.topic) is not topic:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
    if wanted.topic_id not in (None, topic.topic_id):
        raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{wanted.topic} has another id")
    return log

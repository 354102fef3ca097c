"""
Fetch (API key 1), v4 to v12: read from partitions, waiting for data if need be.

- Batches are sent as they are stored, from the one that holds the fetch
  offset on; the last one of a partition may be cut.
- The first partition with data gives one batch at least, whatever the limits
  (KIP-74). The others give nothing where their first batch does not fit.
- ``read_committed`` stops at the last stable offset and names the aborted
  transactions.
- Fetch sessions are refused: the session id is always 0, as of a broker whose
  cache is full (KIP-227), and a request for a session that cannot be is
  answered FETCH_SESSION_ID_NOT_FOUND.

Record sets go to the socket as views of the log; nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import ErrorCode
from ...protocol.fetch import FetchedPartition, FetchResponse
from ..call import Call
from ..log import Log
from ..refusal import Refused

if TYPE_CHECKING:
    from ..broker import Broker

__all__ = ["handle"]

_READ_COMMITTED = 1
_NO_RECORDS = memoryview(b"")


@dataclass(frozen=True, slots=True)
class _Wanted:
    topic: str
    partition: int
    fetch_offset: int
    max_bytes: int
    leader_epoch: int
    log: Log | None


def handle(broker: Broker, call: Call, request: Any) -> FetchResponse:
    if request.session_id > 0:
        return FetchResponse(0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [])
    wanted = list(_wanted(broker, request))
    committed = request.isolation_level == _READ_COMMITTED
    max_bytes = min(request.max_bytes, int(broker.config["fetch.max.bytes"]))
    partitions: list[FetchedPartition] = []

    def satisfied() -> bool:
        partitions[:] = _read_all(call, wanted, max_bytes, committed)
        return _is_enough(partitions, request.min_bytes)

    logs = [each.log for each in wanted if each.log is not None]
    broker.purgatory.wait_for(satisfied, logs, max(request.max_wait_ms, 0) / 1000 if logs else 0)
    return FetchResponse(0, ErrorCode.NONE, 0, partitions)


def _is_enough(partitions: list[FetchedPartition], min_bytes: int) -> bool:
    """Whether there is nothing to wait for: enough to read, or an error of a log that is there."""
    size = sum(len(fetched.record_set) for fetched in partitions)
    return size >= min_bytes or any(
        fetched.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for fetched in partitions
    )


def _wanted(broker: Broker, request: Any) -> Iterator[_Wanted]:
    for topic in request.topics:
        known = broker.topics.get(topic.topic)
        for each in topic.partitions:
            exists = known is not None and 0 <= each.partition < len(known.logs)
            yield _Wanted(
                topic.topic,
                each.partition,
                each.fetch_offset,
                each.partition_max_bytes,
                each.current_leader_epoch,
                known.logs[each.partition] if known is not None and exists else None,
            )


def _read_all(
    call: Call, wanted: list[_Wanted], max_bytes: int, committed: bool
) -> Iterator[FetchedPartition]:
    left = max_bytes
    nothing_yet = True
    for each in wanted:
        fetched = _read(call, each, min(each.max_bytes, left), committed, nothing_yet)
        size = len(fetched.record_set)
        left = max(left - size, 0)
        nothing_yet = nothing_yet and size == 0
        yield fetched


def _read(
    call: Call, wanted: _Wanted, max_bytes: int, committed: bool, at_least_one_batch: bool
) -> FetchedPartition:
    try:
        call.check_before(wanted.topic, wanted.partition)
        if wanted.log is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
        wanted.log.check_leader_epoch(wanted.leader_epoch)
        read = wanted.log.read(
            wanted.fetch_offset, max_bytes, committed=committed, at_least_one_batch=at_least_one_batch
        )
    except Refused as refused:
        return FetchedPartition(wanted.topic, wanted.partition, refused.code, -1, -1, -1, (), _NO_RECORDS)
    return FetchedPartition(
        wanted.topic,
        wanted.partition,
        ErrorCode.NONE,
        read.high_watermark,
        read.last_stable_offset,
        read.log_start_offset,
        read.aborted_transactions,
        read.record_set,
    )

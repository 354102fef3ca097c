"""
Fetch (API key 1), v4 to v12: read from partitions, waiting for data if need be.

- Batches are sent as they are stored, from the one that holds the fetch
  offset on; the last one of a partition may be cut.
- The first partition with data gives one batch at least, whatever the limits
  (KIP-74). The others give nothing where their first batch does not fit.
- ``read_committed`` stops at the last stable offset and names the aborted
  transactions.
- In a fetch session (``fetch_sessions``) an answer has only what is new.

Record sets go to the socket as views of the log, or as ranges of its files;
nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from ...errors import ErrorCode
from ...protocol.fetch import FetchedPartition, FetchResponse
from ..call import Call
from ..fetch_sessions import Wanted
from ..log import Log
from ..refusal import Refused

if TYPE_CHECKING:
    from ..broker import Broker

__all__ = ["handle"]

_READ_COMMITTED = 1
_NO_RECORDS = memoryview(b"")


def handle(broker: Broker, call: Call, request: Any) -> FetchResponse:
    try:
        context = broker.fetch_sessions.begin(request)
    except Refused as refused:
        return FetchResponse(0, refused.code, 0, [])
    wanted = [(each, _log(broker, each)) for each in context.wanted]
    committed = request.isolation_level == _READ_COMMITTED
    max_bytes = min(request.max_bytes, int(broker.config["fetch.max.bytes"]))
    partitions: list[FetchedPartition] = []

    def satisfied() -> bool:
        partitions[:] = _read_all(broker, call, wanted, max_bytes, committed)
        return _is_enough(partitions, request.min_bytes)

    logs = [log for _, log in wanted if log is not None]
    broker.purgatory.wait_for(satisfied, logs, max(request.max_wait_ms, 0) / 1000 if logs else 0)
    return context.answer(partitions)


def _log(broker: Broker, wanted: Wanted) -> Log | None:
    known = broker.topics.get(wanted.topic)
    exists = known is not None and 0 <= wanted.partition < len(known.logs)
    return known.logs[wanted.partition] if known is not None and exists else None


def _is_enough(partitions: list[FetchedPartition], min_bytes: int) -> bool:
    """Whether there is nothing to wait for: enough to read, or an error of a log that is there."""
    size = sum(len(fetched.record_set) for fetched in partitions)
    return size >= min_bytes or any(
        fetched.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for fetched in partitions
    )


def _read_all(
    broker: Broker, call: Call, wanted: Sequence[tuple[Wanted, Log | None]], max_bytes: int, committed: bool
) -> Iterator[FetchedPartition]:
    left = max_bytes
    nothing_yet = True
    for each, log in wanted:
        fetched = _read(broker, call, each, log, min(each.max_bytes, left), committed, nothing_yet)
        size = len(fetched.record_set)
        left = max(left - size, 0)
        nothing_yet = nothing_yet and size == 0
        yield fetched


def _read(
    broker: Broker,
    call: Call,
    wanted: Wanted,
    log: Log | None,
    max_bytes: int,
    committed: bool,
    at_least_one_batch: bool,
) -> FetchedPartition:
    try:
        call.check_before(wanted.topic, wanted.partition)
        if log is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
        broker.leaders.check(broker.node_id, wanted.topic, wanted.partition)
        log.check_leader_epoch(wanted.leader_epoch)
        read = log.read(
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
        # The codec takes its length and hands it on; the server knows what to do with a file's.
        cast(memoryview, read.record_set),
    )

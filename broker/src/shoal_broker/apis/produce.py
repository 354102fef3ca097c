"""
Produce (API key 0), v3 to v13: append batches to partitions.

As in ``KafkaApis.handleProduceRequest``:

- one batch for a partition, or INVALID_RECORD (exception: :mod:`..storage.multi_batch`);
- of a partition that is listed twice, the last record set is appended; the
  others are dropped, and the answer is success;
- a transactional batch without a transactional id refuses the whole request;
- acks 0 has no answer, and an error closes the connection.

Version notes: zstd from v7; record errors and messages in the answer from v8;
flexible from v9; from v11 a partition that is not part of the transaction is
TRANSACTION_ABORTABLE and not INVALID_TXN_STATE; v12 adds the partition to the
transaction by itself (KIP-890); v13 lists topics by id, and an id that no topic
has is UNKNOWN_TOPIC_ID (KIP-516).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class
from shoal.protocol.produce import ProduceRequest
from shoal.protocol.topic_ids import NO_TOPIC_ID, TOPIC_IDS_FROM
from shoal.records import BatchHeader, RecordBatch
from shoal.records.batch import ATTRIBUTES_OFFSET, MAGIC_OFFSET, TRANSACTIONAL

from ..api_error import ApiError
from ..call import Call
from ..clock import now_ms
from ..state import BrokerState
from ..storage.log import AppendInfo, Log
from ..storage.multi_batch import admitted_batches, is_asked_for
from ..storage.validate import HeaderChange, check_batch, sole_batch, validate
from .answering import answer_errors

__all__ = ["handle"]

_Response = response_class(ApiKey.PRODUCE)
_Topic = _Response.TopicProduceResponse
_Partition = _Topic.PartitionProduceResponse
_RecordError = _Partition.BatchIndexAndErrorMessage

_ATTRIBUTES_LOW_BYTE = ATTRIBUTES_OFFSET + 1

_ABORTABLE_FROM = 11
_ADDS_PARTITION_FROM = 12

#: The codes that producers get in place of the coordinator's (``AddPartitionsToTxnManager``).
_TO_PRODUCERS = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}


class _ListedPartition(NamedTuple):
    """A partition as the request lists it; the name is empty if no topic has the id."""

    topic: str
    partition: int
    topic_id: uuid.UUID | None


@dataclass(frozen=True, slots=True)
class _Outcome:
    place: _ListedPartition
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error: ApiError | None = None


def handle(state: BrokerState, call: Call, request: ProduceRequest) -> Any:
    """Append batches to partitions."""
    # A dict keeps the last of two entries, like the map in Kafka.
    record_sets = {
        _ListedPartition(entry.topic, entry.partition, entry.topic_id): entry.record_set
        for entry in request.partitions
    }
    if request.transactional_id is None and any(map(_is_transactional, record_sets.values())):
        error = ApiError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch without a transactional id",
        )
        outcomes = [_Outcome(place, error=error) for place in record_sets]
    else:
        outcomes = [
            _append_or_refuse(state, call, place, request, record_set)
            for place, record_set in record_sets.items()
        ]
    return _response(outcomes)


def _is_transactional(record_set: memoryview) -> bool:
    """Look at the first batch alone, as ``RequestUtils.hasTransactionalRecords`` does."""
    return (
        len(record_set) > _ATTRIBUTES_LOW_BYTE
        and record_set[MAGIC_OFFSET] == 2
        and bool(record_set[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL)
    )


def _refused(error: ApiError, call: Call, place: _ListedPartition, *_: object) -> _Outcome:
    return _Outcome(place, error=error)


@answer_errors(_refused, place=lambda place, *_: place[:2])
def _append_or_refuse(
    state: BrokerState, call: Call, place: _ListedPartition, request: ProduceRequest, record_set: memoryview
) -> _Outcome:
    topic, partition, topic_id = place
    if call.version >= TOPIC_IDS_FROM and state.topics.with_id(topic_id or NO_TOPIC_ID) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}")
    log = state.led_log(topic, partition)
    info = _append_batches(state, call, request, topic, partition, record_set)
    return _Outcome(place, info.base_offset, info.log_append_time_ms, log.log_start_offset)


def _check_acks(request: ProduceRequest) -> None:
    if request.acks not in (-1, 0, 1):
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {request.acks}")


def _append_batches(
    state: BrokerState,
    call: Call,
    request: ProduceRequest,
    topic: str,
    partition: int,
    record_set: memoryview,
) -> AppendInfo:
    if request.transactional_id is None and is_asked_for(state.config, call.client_id):
        batches = admitted_batches(record_set, call.version)
        if batches is not None:
            _check_acks(request)
            log = state.topics.log(topic, partition)
            return log.compare_and_append(batches, partial(_validated, log, now_ms()))
    batch = sole_batch(record_set, call.version)
    _check_acks(request)
    return _append(state, call, request, topic, partition, batch)


def _append(
    state: BrokerState, call: Call, request: ProduceRequest, topic: str, partition: int, batch: RecordBatch
) -> AppendInfo:
    log = state.topics.log(topic, partition)
    header, transactional_id = batch.header, request.transactional_id
    if header.is_transactional and not log.has_open_transaction(header.producer_id):
        assert transactional_id is not None, "handle refuses the request without it"
        _check_transaction(state, call, transactional_id, topic, partition, header)
    return log.append(*_validated(log, now_ms(), batch))


def _validated(log: Log, now: int, batch: RecordBatch) -> tuple[RecordBatch, HeaderChange | None]:
    check_batch(batch, log.config)
    return validate(batch, log.config, now)


def _check_transaction(
    state: BrokerState, call: Call, transactional_id: str, topic: str, partition: int, header: BatchHeader
) -> None:
    """Check that the partition is part of the transaction, or add it from v12 on (KIP-890)."""
    producer_id, epoch = header.producer_id, header.producer_epoch
    key = (topic, partition)
    try:
        if call.version >= _ADDS_PARTITION_FROM:
            state.transactions.add_partitions(transactional_id, producer_id, epoch, [key])
        else:
            state.transactions.check_partition(transactional_id, producer_id, epoch, key)
    except ApiError as error:
        code = _TO_PRODUCERS.get(error.code, error.code)
        if code is ErrorCode.TRANSACTION_ABORTABLE and call.version < _ABORTABLE_FROM:
            code = ErrorCode.INVALID_TXN_STATE
        raise ApiError(code, error.message) from error


def _response(outcomes: list[_Outcome]) -> Any:
    by_topic: dict[tuple[str, uuid.UUID], list[Any]] = {}
    for outcome in outcomes:
        key = outcome.place.topic, outcome.place.topic_id or NO_TOPIC_ID
        by_topic.setdefault(key, []).append(_partition_response(outcome))
    return _Response(
        responses=[
            _Topic(name=topic, topic_id=topic_id, partition_responses=partitions)
            for (topic, topic_id), partitions in by_topic.items()
        ],
    )


def _partition_response(outcome: _Outcome) -> Any:
    error = outcome.error
    return _Partition(
        index=outcome.place.partition,
        error_code=ErrorCode.NONE if error is None else error.code,
        base_offset=outcome.base_offset,
        log_append_time_ms=outcome.log_append_time_ms,
        log_start_offset=outcome.log_start_offset,
        record_errors=[
            _RecordError(batch_index=index, batch_index_error_message=message)
            for index, message in (error.record_errors if error else ())
        ],
        error_message=error.message if error else None,
    )

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
from functools import partial
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class
from shoal.protocol.produce import ProducedPartition, ProduceRequest
from shoal.protocol.topic_ids import NO_TOPIC_ID, TOPIC_IDS_FROM
from shoal.records import BatchHeader, RecordBatch
from shoal.records.batch import ATTRIBUTES_OFFSET, MAGIC_OFFSET, TRANSACTIONAL

from ..api_error import ApiError
from ..call import Call
from ..clock import now_ms
from ..state import BrokerState
from ..storage.log import Log
from ..storage.multi_batch import admitted_batches, is_asked_for
from ..storage.validate import check_batch, sole_batch, validate

__all__ = ["produce"]

_Produce = response_class(ApiKey.PRODUCE)
_Topic = _Produce.TopicProduceResponse
_Partition = _Topic.PartitionProduceResponse

_ATTRIBUTES_LOW_BYTE = ATTRIBUTES_OFFSET + 1

_ABORTABLE_FROM = 11
_ADDS_PARTITION_FROM = 12

#: The codes that producers get in place of the coordinator's (``AddPartitionsToTxnManager``).
_TO_PRODUCERS = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}


def produce(state: BrokerState, call: Call, request: ProduceRequest) -> Any:
    """Append batches to partitions."""
    # A dict keeps the last of two entries, like the map in Kafka.
    entries = {(entry.topic, entry.partition, entry.topic_id): entry for entry in request.partitions}
    is_forbidden = request.transactional_id is None and any(map(_is_transactional, entries.values()))
    topics: dict[tuple[str, uuid.UUID], list[Any]] = {}
    for entry in entries.values():
        answer = _Partition(index=entry.partition, base_offset=-1)
        topics.setdefault((entry.topic, entry.topic_id or NO_TOPIC_ID), []).append(answer)
        with call.part(answer), call.faults_at(entry.topic, entry.partition):
            try:
                if is_forbidden:
                    raise ApiError(
                        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                        "a transactional batch without a transactional id",
                    )
                _append(state, call, request, entry, answer)
            except ApiError as error:
                answer.record_errors = [
                    _Partition.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=reason)
                    for index, reason in error.record_errors
                ]
                raise
    return _Produce(
        responses=[
            _Topic(name=topic, topic_id=topic_id, partition_responses=answers)
            for (topic, topic_id), answers in topics.items()
        ],
    )


def _is_transactional(entry: ProducedPartition) -> bool:
    """Look at the first batch alone, as ``RequestUtils.hasTransactionalRecords`` does."""
    record_set = entry.record_set
    return (
        len(record_set) > _ATTRIBUTES_LOW_BYTE
        and record_set[MAGIC_OFFSET] == 2
        and bool(record_set[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL)
    )


def _append(
    state: BrokerState, call: Call, request: ProduceRequest, entry: ProducedPartition, answer: Any
) -> None:
    """Append a partition's batches, and fill in the answer with their place."""
    if call.version >= TOPIC_IDS_FROM:
        state.topics.with_id(entry.topic_id)
    log = state.led_log(entry.topic, entry.partition)
    compared = None
    if request.transactional_id is None and is_asked_for(state.config, call.client_id):
        compared = admitted_batches(entry.record_set, call.version)
    batches = compared or [sole_batch(entry.record_set, call.version)]
    if request.acks not in (-1, 0, 1):
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {request.acks}")
    if compared:
        info = log.compare_and_append(batches, partial(_validated, log, now_ms()))
    else:
        header = batches[0].header
        if header.is_transactional and not log.has_open_transaction(header.producer_id):
            _check_transaction(state, call, request, entry, header)
        info = log.append(_validated(log, now_ms(), batches[0]))
    answer.base_offset = info.base_offset
    answer.log_append_time_ms = info.log_append_time_ms
    answer.log_start_offset = log.log_start_offset


def _validated(log: Log, now: int, batch: RecordBatch) -> RecordBatch:
    check_batch(batch, log.config)
    return validate(batch, log.config, now)


def _check_transaction(
    state: BrokerState, call: Call, request: ProduceRequest, entry: ProducedPartition, header: BatchHeader
) -> None:
    """Check that the partition is part of the transaction, or add it from v12 on (KIP-890)."""
    transactional_id = request.transactional_id
    assert transactional_id is not None, "the request is refused without it"
    producer_id, epoch = header.producer_id, header.producer_epoch
    key = (entry.topic, entry.partition)
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

"""
Produce (API key 0), v3 to v12: append batches to partitions.

As in ``KafkaApis.handleProduceRequest``:

- one batch to a partition, or INVALID_RECORD (:mod:`..multi_batch` has the exception);
- a partition that is listed twice keeps its last record set; the others are
  dropped without a word, and the answer is success;
- a transactional batch without a transactional id refuses the whole request;
- acks 0 has no answer, and an error closes the connection.

Version notes: zstd from v7; record errors and messages in the answer from v8;
flexible from v9; from v11 a partition that is not part of the transaction is
TRANSACTION_ABORTABLE and not INVALID_TXN_STATE; v12 adds the partition to the
transaction by itself (KIP-890). Topic ids, v13, are not spoken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ...protocol.produce import ProduceRequest
from ...records import BatchHeader, RecordBatch
from ..call import Call
from ..clock import now_ms
from ..log import AppendInfo, Log
from ..multi_batch import admitted_batches, is_asked_for
from ..refusal import Refused
from ..validate import HeaderChange, check_batch, sole_batch, validate

if TYPE_CHECKING:
    from ..broker import Broker

__all__ = ["handle"]

_Response = response_class(ApiKey.PRODUCE)
_Topic = _Response.TopicProduceResponse
_Partition = _Topic.PartitionProduceResponse
_RecordError = _Partition.BatchIndexAndErrorMessage

_TRANSACTIONAL_BIT = 0x10
_ATTRIBUTES_LOW_BYTE = 22


_ABORTABLE_FROM = 11
_ADDS_PARTITION_FROM = 12

#: What a producer is told in place of the coordinator's code (``AddPartitionsToTxnManager``).
_TO_PRODUCERS = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}


@dataclass(frozen=True, slots=True)
class _Outcome:
    topic: str
    partition: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    refused: Refused | None = None


def handle(broker: Broker, call: Call, request: ProduceRequest) -> Any:
    # A dict keeps the last of two entries, like the map in Kafka.
    record_sets = {(entry.topic, entry.partition): entry.record_set for entry in request.partitions}
    if request.transactional_id is None and any(map(_is_transactional, record_sets.values())):
        refused = Refused(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch without a transactional id",
        )
        outcomes = [_Outcome(topic, partition, refused=refused) for topic, partition in record_sets]
    else:
        outcomes = [
            _append_or_refuse(broker, call, request, topic, partition, record_set)
            for (topic, partition), record_set in record_sets.items()
        ]
    return _response(call, outcomes)


def _is_transactional(record_set: memoryview) -> bool:
    """Look at the first batch alone, as ``RequestUtils.hasTransactionalRecords`` does."""
    return len(record_set) > _ATTRIBUTES_LOW_BYTE and bool(
        record_set[_ATTRIBUTES_LOW_BYTE] & _TRANSACTIONAL_BIT
    )


def _append_or_refuse(
    broker: Broker, call: Call, request: ProduceRequest, topic: str, partition: int, record_set: memoryview
) -> _Outcome:
    try:
        call.check_before(topic, partition)
        log = broker.led_log(topic, partition)
        batches = _batches(broker, call, request, record_set)
        if request.acks not in (-1, 0, 1):
            raise Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {request.acks}")
        if isinstance(batches, RecordBatch):
            info = _append(broker, call, request, topic, partition, batches)
        else:
            now = now_ms()
            info = log.compare_and_append(batches, lambda batch: _validated(batch, log, now))
        call.check_after(topic, partition)
    except Refused as refused:
        return _Outcome(topic, partition, refused=refused)
    return _Outcome(topic, partition, info.base_offset, info.log_append_time_ms, log.log_start_offset)


def _batches(
    broker: Broker, call: Call, request: ProduceRequest, record_set: memoryview
) -> RecordBatch | Sequence[RecordBatch]:
    """Return the batches to compare and append, or the one to append as stock Kafka does."""
    if request.transactional_id is None and is_asked_for(broker.config, call.client_id):
        batches = admitted_batches(record_set, call.version)
        if batches is not None:
            return batches
    return sole_batch(record_set, call.version)


def _append(
    broker: Broker, call: Call, request: ProduceRequest, topic: str, partition: int, batch: RecordBatch
) -> AppendInfo:
    log = broker.topics.log(topic, partition)
    header, transactional_id = batch.header, request.transactional_id
    if header.is_transactional and not log.has_open_transaction(header.producer_id):
        assert transactional_id is not None, "handle refuses the request without it"
        _check_transaction(broker, call, transactional_id, topic, partition, header)
    return log.append(*_validated(batch, log, now_ms()))


def _validated(batch: RecordBatch, log: Log, now: int) -> tuple[RecordBatch, HeaderChange | None]:
    check_batch(batch, log.config)
    return validate(batch, log.config, now)


def _check_transaction(
    broker: Broker, call: Call, transactional_id: str, topic: str, partition: int, header: BatchHeader
) -> None:
    """Have the coordinator confirm that the partition is part of the transaction, or make it so (KIP-890)."""
    producer_id, epoch = header.producer_id, header.producer_epoch
    key = (topic, partition)
    try:
        if call.version >= _ADDS_PARTITION_FROM:
            broker.transactions.add_partitions(transactional_id, producer_id, epoch, [key])
        else:
            broker.transactions.check_partition(transactional_id, producer_id, epoch, key)
    except Refused as refused:
        code = _TO_PRODUCERS.get(refused.code, refused.code)
        if code is ErrorCode.TRANSACTION_ABORTABLE and call.version < _ABORTABLE_FROM:
            code = ErrorCode.INVALID_TXN_STATE
        raise Refused(code, refused.message) from refused


def _response(call: Call, outcomes: list[_Outcome]) -> Any:
    by_topic: dict[str, list[Any]] = {}
    for outcome in outcomes:
        by_topic.setdefault(outcome.topic, []).append(_partition_response(outcome))
    return _Response(
        version=call.version,
        responses=[
            _Topic(name=topic, partition_responses=partitions) for topic, partitions in by_topic.items()
        ],
    )


def _partition_response(outcome: _Outcome) -> Any:
    refused = outcome.refused
    return _Partition(
        index=outcome.partition,
        error_code=ErrorCode.NONE if refused is None else refused.code,
        base_offset=outcome.base_offset,
        log_append_time_ms=outcome.log_append_time_ms,
        log_start_offset=outcome.log_start_offset,
        record_errors=[
            _RecordError(batch_index=index, batch_index_error_message=message)
            for index, message in (refused.record_errors if refused else ())
        ],
        error_message=refused.message if refused else None,
    )

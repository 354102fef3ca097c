"""
Producers and their transactions.

InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, DescribeProducers, ListTransactions and
DescribeTransactions; the offsets of a transaction are in :mod:`.group_offsets`.
"""

from __future__ import annotations

from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..coordination.transactions import Transaction, TransactionState
from ..state import BrokerState
from ..storage.producers import ProducerSnapshot

__all__ = [
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "describe_producers",
    "describe_transactions",
    "end_txn",
    "init_producer_id",
    "list_transactions",
]

_InitProducerId = response_class(ApiKey.INIT_PRODUCER_ID)
_AddPartitions = response_class(ApiKey.ADD_PARTITIONS_TO_TXN)
_AddPartitionsTopic = _AddPartitions.AddPartitionsToTxnTopicResult
_AddOffsets = response_class(ApiKey.ADD_OFFSETS_TO_TXN)
_EndTxn = response_class(ApiKey.END_TXN)
_DescribeProducers = response_class(ApiKey.DESCRIBE_PRODUCERS)
_DescribeTransactions = response_class(ApiKey.DESCRIBE_TRANSACTIONS)
_ListTransactions = response_class(ApiKey.LIST_TRANSACTIONS)
_Partition = _DescribeProducers.TopicResponse.PartitionResponse

_ADDED_CODE = "partition_error_code"


def init_producer_id(state: BrokerState, call: Call, request: Any) -> Any:
    """Return a new producer id, or a transactional id's producer id with its next epoch."""
    answer = _InitProducerId(producer_id=-1, producer_epoch=-1)
    with call.part(answer), call.faults_at():
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            raise ApiError(ErrorCode.INVALID_REQUEST, "a producer id without an epoch, or the reverse")
        if request.transactional_id is None:
            answer.producer_id, answer.producer_epoch = state.transactions.new_producer_id(), 0
        else:
            answer.producer_id, answer.producer_epoch = state.transactions.init(
                request.transactional_id,
                request.transaction_timeout_ms,
                request.producer_id,
                request.producer_epoch,
            )
    return answer


def add_partitions_to_txn(state: BrokerState, call: Call, request: Any) -> Any:
    """
    Make partitions part of a transaction, before the producer writes to them.

    If one partition does not exist, the others get OPERATION_NOT_ATTEMPTED, and none is added. v4 and later
    are between brokers (KIP-890).

    """
    topics, answers, found = [], [], []
    for topic in request.v3_and_below_topics:
        answer = _AddPartitionsTopic(name=topic.name, results_by_partition=[])
        topics.append(answer)
        for partition in topic.partitions:
            result = _AddPartitionsTopic.AddPartitionsToTxnPartitionResult(partition_index=partition)
            answer.results_by_partition.append(result)
            answers.append(result)
            with call.part(result, _ADDED_CODE), call.faults_at(topic.name, partition):
                state.topics.log(topic.name, partition)
                found.append((topic.name, partition))
    code = ErrorCode.OPERATION_NOT_ATTEMPTED
    if len(found) == len(answers):
        code = _add_partitions(state, call, request, found)
    for result in answers:
        result.partition_error_code = result.partition_error_code or code
    return _AddPartitions(results_by_topic_v3_and_below=topics)


def _add_partitions(
    state: BrokerState, call: Call, request: Any, partitions: list[tuple[str, int]]
) -> ErrorCode:
    try:
        state.transactions.add_partitions(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            partitions,
        )
    except ApiError as error:
        return call.code_of(error)
    return ErrorCode.NONE


def add_offsets_to_txn(state: BrokerState, call: Call, request: Any) -> Any:
    """Make a group's offsets part of a transaction."""
    answer = _AddOffsets()
    with call.part(answer), call.faults_at():
        state.transactions.add_offsets(
            request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
        )
    return answer


def end_txn(state: BrokerState, call: Call, request: Any) -> Any:
    """Commit or abort a transaction. The markers are in the logs before the response is sent."""
    answer = _EndTxn()
    with call.part(answer), call.faults_at():
        state.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            committed=request.committed,
        )
    return answer


def describe_producers(state: BrokerState, call: Call, request: Any) -> Any:
    """Describe the producers that wrote to a partition and have not expired."""
    return _DescribeProducers(
        topics=[
            _DescribeProducers.TopicResponse(
                name=topic.name,
                partitions=[_producers(state, call, topic.name, each) for each in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _producers(state: BrokerState, call: Call, topic: str, partition: int) -> Any:
    answer = _Partition(partition_index=partition, active_producers=[])
    with call.part(answer), call.faults_at(topic, partition):
        answer.active_producers = list(map(_described, state.led_log(topic, partition).producers()))
    return answer


def _described(producer: ProducerSnapshot) -> Any:
    return _Partition.ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_start,
    )


def list_transactions(state: BrokerState, call: Call, request: Any) -> Any:
    """List the transactional ids, of some producers and in some states if the request names them."""
    answer = _ListTransactions(unknown_state_filters=[], transaction_states=[])
    with call.part(answer), call.faults_at():
        known = {each.value for each in TransactionState}
        answer.unknown_state_filters = [each for each in request.state_filters if each not in known]
        answer.transaction_states = [
            _ListTransactions.TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.value,
            )
            for each in state.transactions.all()
            if (not request.state_filters or each.state.value in request.state_filters)
            and (not request.producer_id_filters or each.producer_id in request.producer_id_filters)
        ]
    return answer


def describe_transactions(state: BrokerState, call: Call, request: Any) -> Any:
    """Describe the open transactions of transactional ids."""
    by_id = {each.transactional_id: each for each in state.transactions.all()}
    return _DescribeTransactions(
        transaction_states=[_transaction(call, name, by_id.get(name)) for name in request.transactional_ids]
    )


def _transaction(call: Call, name: str, found: Transaction | None) -> Any:
    answer = _DescribeTransactions.TransactionState(
        transactional_id=name,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=-1,
        producer_id=-1,
        producer_epoch=-1,
        topics=[],
    )
    with call.part(answer), call.faults_at():
        if found is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"no transactional id {name!r}")
        answer.transaction_state = found.state.value
        answer.transaction_timeout_ms = int(found.timeout_s * 1000)
        answer.producer_id, answer.producer_epoch = found.producer_id, found.epoch
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(found.partitions):
            topics.setdefault(topic, []).append(partition)
        entry = _DescribeTransactions.TransactionState.TopicData
        answer.topics = [entry(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    return answer

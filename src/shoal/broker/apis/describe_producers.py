"""DescribeProducers (API key 61), v0: who wrote to a partition, as long as the broker remembers."""

from __future__ import annotations

from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState
from ..storage.log import ProducerSnapshot

__all__ = ["handle"]

_Response = response_class(ApiKey.DESCRIBE_PRODUCERS)
_Topic = _Response.TopicResponse
_Partition = _Topic.PartitionResponse
_Producer = _Partition.ProducerState


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    return _Response(
        version=call.version,
        topics=[
            _Topic(
                name=topic.name,
                partitions=[_answer(state, call, topic.name, each) for each in topic.partition_indexes],
            )
            for topic in request.topics
        ],
    )


def _answer(state: BrokerState, call: Call, topic: str, partition: int) -> Any:
    try:
        call.check_before(topic, partition)
        producers = state.led_log(topic, partition).producers()
    except ApiError as refused:
        return _Partition(
            partition_index=partition,
            error_code=refused.code,
            error_message=refused.message,
            active_producers=[],
        )
    return _Partition(
        partition_index=partition,
        error_code=ErrorCode.NONE,
        error_message=None,
        active_producers=[_described(producer) for producer in producers],
    )


def _described(producer: ProducerSnapshot) -> Any:
    return _Producer(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_start,
    )

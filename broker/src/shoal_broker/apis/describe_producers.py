"""DescribeProducers (API key 61), v0: the producers that wrote to a partition and have not expired."""

from __future__ import annotations

from typing import Any

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState
from ..storage.producers import ProducerSnapshot
from .answering import answer_errors, of_partition

__all__ = ["handle"]

_Response = response_class(ApiKey.DESCRIBE_PRODUCERS)
_Topic = _Response.TopicResponse
_Partition = _Topic.PartitionResponse
_Producer = _Partition.ProducerState


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Describe the producers of partitions."""
    return _Response(
        topics=[
            _Topic(
                name=topic.name,
                partitions=[_answer(state, call, topic.name, each) for each in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _refused(error: ApiError, call: Call, topic: str, partition: int) -> Any:
    return _Partition(
        partition_index=partition, error_code=error.code, error_message=error.message, active_producers=[]
    )


@answer_errors(_refused, place=of_partition)
def _answer(state: BrokerState, call: Call, topic: str, partition: int) -> Any:
    producers = state.led_log(topic, partition).producers()
    return _Partition(
        partition_index=partition, error_message=None, active_producers=list(map(_described, producers))
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

"""
Produce v0 to v2: message sets as batches of magic 2.

The gateway sends ``acks=0`` as ``acks=1``, and does not forward the answer. If the answer is an error, the
gateway closes the client's connection, as a broker does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...error_codes import ErrorCode
from ...errors import NotConvertible
from ...protocol import codec
from ...protocol.apis import ApiKey
from ...protocol.produce import ProduceRequest, decode_produce_request, encode_produce_request
from ...records.down_conversion import ConvertedCounts
from ...records.up_conversion import up_convert
from ...topic_partition import TopicPartition
from ..client_connection import ClientGone
from ..converting import ConvertedApi, turn
from .request import Part, TranslatedRequest, old_code

__all__ = ["translate"]

_MOST_PARTITIONS = 100_000

_Response = codec.response_class(ApiKey.PRODUCE)
_Topic = _Response.TopicProduceResponse
_Partition = _Topic.PartitionProduceResponse


def translate(request: TranslatedRequest, limit_bytes: int) -> Sequence[Part]:
    """
    Produce, and return the answer; none for ``acks=0``.

    Args:
        limit_bytes: The limit for the expansion of a message set.

    """
    header = request.header
    body = request.decode(lambda: decode_produce_request(request.frame, header.api_version, _MOST_PARTITIONS))
    # A partition that is listed twice: the last one counts, as in Kafka.
    entries = {TopicPartition(each.topic, each.partition): each for each in body.partitions}
    batches: dict[str, list[tuple[int, Sequence[memoryview]]]] = {}
    refused: dict[str, list[Any]] = {}
    for key, entry in entries.items():
        found = _up_converted(entry.record_set, limit_bytes, request.upstream.client.network)
        if isinstance(found, memoryview):
            batches.setdefault(key.topic, []).append((key.partition, [found]))
        else:
            answer = _Partition(
                index=key.partition, error_code=old_code(found), base_offset=-1, log_append_time_ms=-1
            )
            refused.setdefault(key.topic, []).append(answer)
    topics = [_Topic(name=name, partition_responses=answers) for name, answers in refused.items()]
    topics += _produce(request, body, batches) if batches else []
    if body.acks == 0:
        if any(each.error_code for topic in topics for each in topic.partition_responses):
            raise ClientGone("an error with acks=0")
        return []
    return [
        codec.encode_response(_Response(version=header.api_version, responses=topics), header.correlation_id)
    ]


def _up_converted(record_set: memoryview, limit_bytes: int, network: str) -> memoryview | int:
    """Convert a message set, or return the error code of an old broker."""
    try:
        with turn(ConvertedApi.PRODUCE, network) as done:
            batch = up_convert(record_set, limit_bytes)
            if batch is None:  # as Kafka answers a set without a whole message
                return ErrorCode.NONE
            count = batch.header.records_count
            done.append(ConvertedCounts(1, count, len(record_set), len(batch.view)))
            return batch.view
    except NotConvertible as error:
        return error.code


def _produce(
    request: TranslatedRequest,
    body: ProduceRequest,
    batches: Mapping[str, Sequence[tuple[int, Sequence[memoryview]]]],
) -> Sequence[Any]:
    """Produce batches, and return the broker's answer by topic, with error codes of old brokers."""
    upstream, header = request.upstream, request.header
    version = upstream.oldest(ApiKey.PRODUCE)
    parts = encode_produce_request(
        batches,
        version=version,
        correlation_id=header.correlation_id,
        client_id=header.client_id or "",
        acks=body.acks or 1,
        timeout_ms=body.timeout_ms,
    )
    upstream.send_parts(parts, ApiKey.PRODUCE, header.correlation_id)
    frame = upstream.receive_whole()
    topics: Sequence[Any] = codec.decode_response(
        ApiKey.PRODUCE, version, frame, upstream.sizes.values
    ).responses
    for topic in topics:
        for each in topic.partition_responses:
            each.error_code = old_code(each.error_code)
    return topics

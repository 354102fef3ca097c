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
from ...protocol.produce import (
    ProducedPartition,
    ProduceOutcome,
    ProduceRequest,
    decode_produce_request,
    decode_produce_response,
    encode_produce_request,
)
from ...records.down_conversion import ConvertedCounts
from ...records.up_conversion import up_convert
from ...topic_partition import TopicPartition
from ..client_connection import ClientGone
from ..converting import ConvertedApi, turn
from .request import Part, TranslatedRequest, old_code

__all__ = ["translate"]

_MOST_PARTITIONS = 100_000


def translate(request: TranslatedRequest, limit_bytes: int) -> Sequence[Part]:
    """
    Produce, and return the answer; none for ``acks=0``.

    Args:
        limit_bytes: The limit for the expansion of a message set.

    """
    body = request.decode(
        lambda: decode_produce_request(request.frame, request.header.api_version, _MOST_PARTITIONS)
    )
    # A partition that is listed twice: the last one counts, as in Kafka.
    entries = {TopicPartition(each.topic, each.partition): each for each in body.partitions}
    outcomes: dict[TopicPartition, ProduceOutcome] = {}
    batches: dict[str, list[tuple[int, Sequence[memoryview]]]] = {}
    for key, entry in entries.items():
        batch = _up_converted(entry, limit_bytes, request.upstream.client.network)
        if isinstance(batch, ProduceOutcome):
            outcomes[key] = batch
        else:
            batches.setdefault(key.topic, []).append((key.partition, [batch]))
    if batches:
        outcomes |= _produce(request, body, batches)
    if body.acks == 0:
        if any(each.error_code for each in outcomes.values()):
            raise ClientGone("an error with acks=0")
        return []
    return [_answer(request, entries, outcomes)]


def _up_converted(entry: ProducedPartition, limit_bytes: int, network: str) -> memoryview | ProduceOutcome:
    """Convert a message set, or refuse it with the error of an old broker."""
    try:
        with turn(ConvertedApi.PRODUCE, network) as done:
            batch = up_convert(entry.record_set, limit_bytes)
            if batch is None:  # as Kafka answers a set without a whole message
                return _outcome(entry, ErrorCode.NONE)
            count = batch.header.records_count
            done.append(ConvertedCounts(1, count, len(entry.record_set), len(batch.view)))
            return batch.view
    except NotConvertible as error:
        return _outcome(entry, error.code)


def _outcome(entry: ProducedPartition, code: int) -> ProduceOutcome:
    return ProduceOutcome(entry.topic, entry.partition, int(code), -1, -1, -1, None)


def _produce(
    request: TranslatedRequest,
    body: ProduceRequest,
    batches: Mapping[str, Sequence[tuple[int, Sequence[memoryview]]]],
) -> dict[TopicPartition, ProduceOutcome]:
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
    produced = decode_produce_response(
        upstream.receive_whole(), version, most_partitions=sum(map(len, batches.values()))
    )
    return {TopicPartition(each.topic, each.partition): each for each in produced}


def _answer(
    request: TranslatedRequest,
    entries: Mapping[TopicPartition, ProducedPartition],
    outcomes: Mapping[TopicPartition, ProduceOutcome],
) -> bytes:
    response = codec.response_class(ApiKey.PRODUCE)
    topics: dict[str, list[Any]] = {}
    for key, entry in entries.items():
        outcome = outcomes.get(key) or _outcome(entry, ErrorCode.UNKNOWN_SERVER_ERROR)
        answer = response.TopicProduceResponse.PartitionProduceResponse(
            index=key.partition,
            error_code=old_code(outcome.error_code),
            base_offset=outcome.base_offset,
            log_append_time_ms=outcome.log_append_time_ms,
        )
        topics.setdefault(key.topic, []).append(answer)
    return codec.encode_response(
        response(
            version=request.header.api_version,
            responses=[
                response.TopicProduceResponse(name=name, partition_responses=partitions)
                for name, partitions in topics.items()
            ],
        ),
        request.header.correlation_id,
    )

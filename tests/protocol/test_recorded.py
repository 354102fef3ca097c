"""Every frame recorded from a real broker, read by our decoders and written again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import pytest

from shoal.errors import CorruptBatch
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    read_correlation_id,
    read_request_header,
)
from shoal.protocol.fetch import FetchedPartition, decode_fetch_response
from shoal.protocol.produce import decode_produce_request
from shoal.records import (
    AbortedTransactions,
    Codec,
    Decision,
    RecordBatch,
    decide,
    fingerprint,
    split,
    stamp,
    verify_crc,
)
from tests.each_case import each_case
from tests.vectors import Vector, removed_vectors, vectors


def recorded(
    *, api: str | None = None, direction: str | None = None, oldest: int = 0
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    chosen = [
        each
        for each in (*vectors(), *removed_vectors())
        if api in (None, each.api) and direction in (None, each.direction) and each.version >= oldest
    ]
    return each_case("vector", chosen, attrgetter("name"))


def decoded(vector: Vector) -> Any:
    frame = memoryview(vector.frame)
    if vector.direction == "request":
        return decode_request(read_request_header(frame), frame)
    return decode_response(ApiKey(vector.api_key), vector.version, frame)


def plain(value: Any) -> Any:
    """Convert a decoded message to the types of the index."""
    if hasattr(value, "unknown_tags"):
        fields = {
            name: getattr(value, name)
            for name, field in value.fields.items()
            if field.for_version_q(value.version)
        }
        return {
            name: {"bytes": len(each)} if name == "records" and each is not None else plain(each)
            for name, each in fields.items()
        }
    if isinstance(value, (list, set)):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


@recorded()
def test_message_is_decoded_as_indexed(vector: Vector) -> None:
    frame = memoryview(vector.frame)
    message = decoded(vector)
    assert plain(message) == vector.fields
    assert message.header.correlation_id == vector.correlation_id
    if vector.direction == "request":
        assert read_request_header(frame) == (
            vector.api_key,
            vector.version,
            vector.correlation_id,
            "recorder",
        )
    else:
        assert read_correlation_id(frame) == vector.correlation_id


@recorded()
def test_message_is_encoded_as_recorded(vector: Vector) -> None:
    message = decoded(vector)
    if vector.direction == "request":
        encoded = encode_request(message, vector.correlation_id, message.header.client_id)
    else:
        encoded = encode_response(message, vector.correlation_id)
    assert encoded == vector.size.to_bytes(4) + vector.frame


def record_sets(vector: Vector) -> dict[str, memoryview]:
    """Return the record sets of a frame by "topic-partition", writable."""
    frame = memoryview(bytearray(vector.frame))
    if vector.api == "Fetch":
        fetched = decode_fetch_response(frame, vector.version, vector.names).partitions
        return {f"{each.topic}-{each.partition}": each.record_set for each in fetched}
    produced = decode_produce_request(frame, vector.version, names=vector.names).partitions
    return {f"{each.topic}-{each.partition}": each.record_set for each in produced}


WITH_BATCHES = each_case(
    "vector", [each for each in vectors() if any(each.batches.values())], attrgetter("name")
)


@WITH_BATCHES
def test_batches_are_split_as_indexed(vector: Vector) -> None:
    sets = record_sets(vector)
    assert sets.keys() == vector.batches.keys()
    for name, expected in vector.batches.items():
        found = [batch.header for batch in split(sets[name])]
        assert [
            {
                "base_offset": header.base_offset,
                "last_offset_delta": header.last_offset_delta,
                "count": header.records_count,
                "size": header.size,
                "leader_epoch": header.leader_epoch,
                "magic": header.magic,
                "crc": header.crc,
                "attributes": header.attributes,
                "codec": Codec(header.codec_id).name.lower(),
                "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
                "is_transactional": header.is_transactional,
                "is_control": header.is_control,
                "base_timestamp": header.base_timestamp,
                "max_timestamp": header.max_timestamp,
                "producer_id": header.producer_id,
                "producer_epoch": header.producer_epoch,
                "base_sequence": header.base_sequence,
            }
            for header in found
        ] == [{key: value for key, value in each.items() if key != "crc_is_valid"} for each in expected]


@WITH_BATCHES
def test_crc_is_valid_as_indexed_before_and_after_a_stamp(vector: Vector) -> None:
    for name, record_set in record_sets(vector).items():
        for batch, expected in zip(split(record_set), vector.batches[name], strict=True):
            for _ in range(2):
                if expected["crc_is_valid"]:
                    verify_crc(batch)
                else:
                    with pytest.raises(CorruptBatch):
                        verify_crc(batch)
                before = fingerprint(batch)
                stamp(batch, 4711, 3, batch.header.base_offset % 2**31)
                (again,) = split(batch.view)
                assert fingerprint(again) == before


COMPLETE = each_case(
    "vector",
    [each for each in vectors() if each.records and each.fields.get("error_code", 0) == 0],
    attrgetter("name"),
)


@COMPLETE
def test_kept_records_are_those_a_read_committed_consumer_reads(vector: Vector) -> None:
    assert vector.records is not None
    for each in decode_fetch_response(memoryview(vector.frame), vector.version, vector.names).partitions:
        consumed = {record["offset"] for record in vector.records[f"{each.topic}-{each.partition}"]}
        for batch, decision in decided(each):
            header = batch.header
            kept = consumed & set(range(header.base_offset, header.next_offset))
            assert len(kept) == (0 if decision.is_drop else header.records_count)
            consumed -= kept
            last = header.next_offset
        # The response ends with its segment.
        assert all(offset >= last for offset in consumed)


def decided(fetched: FetchedPartition) -> Iterator[tuple[RecordBatch, Decision]]:
    aborted = AbortedTransactions(fetched.aborted_transactions)
    for batch in split(fetched.record_set):
        decision = decide(batch.header, batch.header.base_offset, aborted)
        if decision is Decision.DROP_CONTROL:
            aborted.see_marker(batch)
        yield batch, decision


def test_recorded_batches_cause_every_decision_of_modern_brokers() -> None:
    responses = [each for each in vectors() if each.api == "Fetch" and each.direction == "response"]
    decisions = {
        decision
        for vector in responses
        for fetched in decode_fetch_response(
            memoryview(vector.frame), vector.version, vector.names
        ).partitions
        for _, decision in decided(fetched)
    }
    elsewhere = {
        Decision.CROP,
        Decision.REBUILD_MAGIC,
        Decision.REBUILD_APPEND_TIME,
        Decision.JOIN,
        Decision.SKIP_GAP,  # of offsets without a batch
    }
    assert decisions == set(Decision) - elsewhere

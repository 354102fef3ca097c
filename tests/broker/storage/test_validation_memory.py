"""Validation takes little memory for a batch of any expanded size, as docs/broker.md states."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

import pytest

from shoal.error_codes import ErrorCode
from shoal.records import Codec, RecordBatch, read_header
from shoal.records.compression import StreamCompressor
from shoal.records.record import write_varint
from shoal_broker.api_error import ApiError
from shoal_broker.config import BrokerConfig, TopicConfig
from shoal_broker.old_clients.message_sets import validated_message_set
from shoal_broker.storage.validate import validate
from tests.batches import TIMESTAMP, message, raw_batch, wrapper
from tests.peak_memory import peak_bytes

_MIB = 1 << 20
#: The smallest record: its offset delta is that of the first, which recompression puts right.
_SMALLEST = bytes([12, 0, 0, 0, 1, 1, 0])
_STREAMED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def config(codec: Codec | None = None) -> TopicConfig:
    names = {None: "producer", Codec.NONE: "uncompressed", Codec.GZIP: "gzip", Codec.ZSTD: "zstd"}
    return TopicConfig.of({"compression.type": names[codec]}, BrokerConfig({}))


def bomb(codec: Codec, parts: Iterator[bytes], count: int) -> RecordBatch:
    stream = StreamCompressor(codec, 1 << 30)
    for part in parts:
        stream.write(part)
    payload = stream.finish()
    assert payload is not None
    data = raw_batch(
        payload,
        attributes=codec,
        last_offset_delta=count - 1,
        records_count=count,
        base_timestamp=TIMESTAMP,
        max_timestamp=TIMESTAMP,
    )
    return RecordBatch(read_header(memoryview(data)), memoryview(data))


def smallest_records(codec: Codec, count: int) -> RecordBatch:
    return bomb(codec, (_SMALLEST * 1000 for _ in range(count // 1000)), count)


def one_record(codec: Codec, megabytes: int) -> RecordBatch:
    value_bytes = megabytes * _MIB
    head = bytes(3) + write_varint(-1) + write_varint(value_bytes)

    def parts() -> Iterator[bytes]:
        yield write_varint(len(head) + value_bytes + 1) + head
        for _ in range(megabytes):
            yield bytes(_MIB)
        yield b"\0"

    return bomb(codec, parts(), 1)


def refusal(run: Callable[[], object]) -> ErrorCode | None:
    try:
        run()
    except ApiError as refused:
        return refused.code
    return None


@pytest.mark.parametrize(
    ("codec", "target"),
    [(Codec.GZIP, None), (Codec.SNAPPY, None), (Codec.LZ4, Codec.ZSTD), (Codec.ZSTD, Codec.NONE)],
)
def test_validation_of_many_smallest_records_takes_a_few_megabytes(
    codec: Codec, target: Codec | None
) -> None:
    batch = smallest_records(codec, 30_000)
    peak = peak_bytes(lambda: refusal(lambda: validate(batch, config(target), TIMESTAMP)))
    assert peak < 3 * _MIB


@pytest.mark.parametrize("codec", _STREAMED)
@pytest.mark.parametrize("target", [None, Codec.ZSTD, Codec.NONE])
def test_validation_of_a_30_mib_record_takes_a_few_megabytes(codec: Codec, target: Codec | None) -> None:
    batch = one_record(codec, 30)
    outcomes: list[ErrorCode | None] = []
    peak = peak_bytes(lambda: outcomes.append(refusal(lambda: validate(batch, config(target), TIMESTAMP))))
    assert outcomes == [ErrorCode.MESSAGE_TOO_LARGE if target is Codec.NONE else None]
    assert peak < 8 * _MIB


@pytest.mark.parametrize("codec", [*_STREAMED, Codec.ZSTD])
def test_batch_beyond_the_expansion_limit_is_refused(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_broker.storage.validate.MOST_DECOMPRESSED_BYTES", 8 * _MIB)
    batch = one_record(codec, 9)
    assert refusal(lambda: validate(batch, config(), TIMESTAMP)) is ErrorCode.MESSAGE_TOO_LARGE


def test_too_many_compressed_records_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [bytes([12, 0, 0]) + write_varint(number) + bytes([1, 1, 0]) for number in range(60)]
    batch = bomb(Codec.GZIP, iter(records), len(records))
    monkeypatch.setattr("shoal_broker.storage.validate._MOST_COMPRESSED_RECORDS", 60)
    assert refusal(lambda: validate(batch, config(), TIMESTAMP)) is None
    monkeypatch.setattr("shoal_broker.storage.validate._MOST_COMPRESSED_RECORDS", 59)
    assert refusal(lambda: validate(batch, config(), TIMESTAMP)) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("is_wrapped", [True, False])
def test_validation_of_smallest_old_messages_takes_little_more_than_their_bytes(
    magic: int, is_wrapped: bool
) -> None:
    inner = bytes(message(magic, None, key=None)) * 20_000
    record_set = bytes(wrapper(magic, Codec.GZIP, [inner])) if is_wrapped else inner
    peak = peak_bytes(
        lambda: refusal(lambda: validated_message_set(memoryview(record_set), config(), TIMESTAMP))
    )
    assert peak < 2 * len(inner) + 2 * _MIB


def test_wrapper_that_expands_beyond_64_mib_is_refused() -> None:
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    value = b"".join(stream.compress(bytes(_MIB)) for _ in range(65)) + stream.flush()
    content = struct.pack(">bbii", 0, Codec.GZIP, -1, len(value)) + value
    record_set = struct.pack(">qiI", 0, len(content) + 4, zlib.crc32(content)) + content
    code = refusal(lambda: validated_message_set(memoryview(record_set), config(), TIMESTAMP))
    assert code is ErrorCode.MESSAGE_TOO_LARGE

"""Message sets of producers before Kafka 0.11, as batches of magic 2; and such as Kafka refuses."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

from shoal.error_codes import ErrorCode
from shoal.errors import NotConvertible
from shoal.records import Codec, read_key_value_headers, read_records, verify_crc
from shoal.records.up_conversion import up_convert
from tests.peak_memory import peak_bytes
from tests.world.batches import LOG_APPEND_TIME, TIMESTAMP, batch, message, wrapper

LIMIT = 1 << 20
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]

SENT: list[tuple[int, bytes | None, bytes | None]] = [
    (TIMESTAMP, b"key", b"value"),
    (TIMESTAMP + 5, None, b"no key"),
    (TIMESTAMP - 7, b"no value", None),
    (TIMESTAMP, b"", b""),
]


def sent(
    magic: int, offset: int = 0, key: bytes | None = b"k", value: bytes | None = b"v", **options: int
) -> bytes:
    return bytes(message(magic, value, key=key, offset=offset, **options))


def wrapped(magic: int, offset: int, inner: bytes, codec: Codec, **options: int) -> bytes:
    return bytes(wrapper(magic, codec, [inner], offset=offset, **options))


def read(data: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Return offset, timestamp, key and value of each record."""
    batch = up_convert(memoryview(data), LIMIT)
    assert batch is not None
    records = read_records(batch, LIMIT)
    return [(each.offset, each.timestamp, *read_key_value_headers(each)[:2]) for each in records]


def refusal(data: bytes) -> ErrorCode:
    with pytest.raises(NotConvertible) as refused:
        up_convert(memoryview(data), LIMIT)
    return refused.value.code


@pytest.mark.parametrize(
    ("builder", "codec", "magic"),
    [
        (builder, codec, magic)
        for builder in (KafkaPythonBuilder, AiokafkaBuilder)
        for codec in (Codec.NONE, *CODECS)
        for magic in (0, 1)
        # aiokafka writes no lz4 in magic 0.
        if (builder, codec, magic) != (AiokafkaBuilder, Codec.LZ4, 0)
    ],
)
def test_messages_of_another_library_become_one_batch_with_the_same_records(
    builder: Callable[..., object], codec: Codec, magic: int
) -> None:
    built = builder(magic, codec, 1 << 20)
    for offset, (timestamp, key, value) in enumerate(SENT):
        built.append(offset, timestamp=timestamp, key=key, value=value)  # type: ignore[attr-defined]
    batch = up_convert(memoryview(bytes(built.build())), LIMIT)  # type: ignore[attr-defined]
    assert batch is not None
    verify_crc(batch)
    header = batch.header
    assert (header.base_offset, header.last_offset_delta, header.records_count) == (0, 3, 4)
    assert header.codec_id == codec
    assert header.producer_id == header.producer_epoch == header.base_sequence == -1
    assert not header.is_log_append_time
    times = [timestamp if magic else -1 for timestamp, _, _ in SENT]
    assert (header.base_timestamp, header.max_timestamp) == (times[0], max(times))
    found = [
        (record.offset, record.timestamp, *read_key_value_headers(record))
        for record in read_records(batch, LIMIT)
    ]
    assert found == [
        (number, time, key, value, [])
        for number, (time, (_, key, value)) in enumerate(zip(times, SENT, strict=True))
    ]


def test_message_is_read_from_literal_bytes() -> None:
    """Of magic 1: offset 7, 36 bytes; CRC, magic, attributes, timestamp; key and value."""
    covered = b"\1\0" + b"\0\0\0\0\0\0\3\xe8" + b"\0\0\0\1k" + b"\0\0\0\1v"
    crc = zlib.crc32(covered).to_bytes(4)
    literal = b"\0\0\0\0\0\0\0\7" + (len(covered) + 4).to_bytes(4) + crc + covered
    assert read(literal) == [(0, 1000, b"k", b"v")]


def test_message_cut_anywhere_is_ignored() -> None:
    whole = sent(1, 0, b"k", b"v")
    for size in range(len(whole)):
        assert up_convert(memoryview(whole[:size]), LIMIT) is None


@pytest.mark.parametrize("codec", CODECS)
def test_append_time_of_a_wrapper_applies_to_its_messages(codec: Codec) -> None:
    inner = sent(1, 0, b"k", b"v")
    ((_, timestamp, _, _),) = read(wrapped(1, 0, inner, codec, timestamp=77, flags=LOG_APPEND_TIME))
    assert timestamp == 77


@pytest.mark.parametrize("offset", [0, 1, 9, -1])
def test_wrapper_offset_may_be_any(offset: int) -> None:
    inner = sent(1, 0, b"k", b"a") + sent(1, 1, b"k", b"b")
    assert len(read(wrapped(1, offset, inner, Codec.GZIP))) == 2


def damaged_crc(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def with_crc(content: bytes, length: int | None = None) -> bytes:
    """Write a message with any content behind its CRC, and a right one."""
    return bytes(8) + (length or len(content) + 4).to_bytes(4) + zlib.crc32(content).to_bytes(4) + content


PLAIN = [sent(magic, 0, b"k", b"v") for magic in (0, 1)]
WITH_KEY = b"\1\0" + bytes(8)
INNER = bytes(sent(1, 1, b"k", b"v"))

REFUSED = {
    "a wrong CRC": damaged_crc(sent(1, 0, b"k", b"v")),
    "a length that is too short": bytes(8) + b"\0\0\0\x0d" + bytes(20),
    "a negative length": bytes(8) + b"\xff\xff\xff\xff" + bytes(20),
    "a magic that is none": with_crc(b"\3" + bytes(27)),
    "a batch of magic 2": bytes(batch(1)),
    "two wrappers": 2 * wrapped(1, 0, INNER, Codec.GZIP),
    "a message and a wrapper": PLAIN[1] + wrapped(1, 0, INNER, Codec.GZIP),
    "two messages and a wrapper": 2 * PLAIN[1] + wrapped(1, 0, INNER, Codec.GZIP),
    "a wrapper and a message": wrapped(1, 0, INNER, Codec.GZIP) + PLAIN[1],
    "a wrapper of zstd": wrapped(1, 0, INNER, Codec.ZSTD),
    "a wrapper without a value": with_crc(b"\1\1" + bytes(8) + b"\xff" * 8),
    "a wrapper that is no stream": with_crc(b"\1\1" + bytes(8) + b"\xff" * 4 + b"\0\0\0\3abc"),
    "an unknown codec": with_crc(b"\1\5" + bytes(8) + b"\xff" * 8),
    "a wrapper in a wrapper": wrapped(1, 0, wrapped(1, 0, INNER, Codec.GZIP), Codec.GZIP),
    "an empty wrapper": wrapped(1, 0, b"", Codec.GZIP),
    "a message cut short in a wrapper": wrapped(1, 0, INNER[:-1], Codec.GZIP),
    "a huge length in a wrapper": wrapped(1, 0, bytes(8) + b"\x7f\xff\xff\xff" + bytes(20), Codec.GZIP),
    "a wrong CRC in a wrapper": wrapped(1, 0, damaged_crc(sent(1, 0, b"k", b"v")), Codec.GZIP),
    "a short length in a wrapper": wrapped(1, 0, bytes(8) + b"\0\0\0\1" + bytes(20), Codec.GZIP),
    "a message too short for magic 1": with_crc(b"\1\0" + bytes(8)),
    "a key that leads out of its message": with_crc(WITH_KEY + b"\x7f\xff\xff\xff" + bytes(9)),
    "a value that leads out of its message": with_crc(WITH_KEY + b"\0\0\0\0" + b"\0\0\0\2v"),
    "bytes behind a value": with_crc(WITH_KEY + b"\0\0\0\1k" + b"\0\0\0\1v" + b"more"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_malformed_set_is_refused(name: str) -> None:
    assert refusal(REFUSED[name]) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", CODECS)
def test_bomb_is_refused(codec: Codec) -> None:
    inner = sent(1, 0, b"k", bytes(LIMIT))
    assert refusal(wrapped(1, 0, inner, codec)) is ErrorCode.MESSAGE_TOO_LARGE


def test_bomb_of_many_small_messages_is_refused() -> None:
    inner = bytes(sent(0, 0, None, None)) * (LIMIT // 64 + 1)
    assert refusal(wrapped(0, 0, inner, Codec.GZIP)) is ErrorCode.MESSAGE_TOO_LARGE


def test_negative_timestamp_is_refused() -> None:
    assert refusal(sent(1, 0, b"k", b"v", timestamp=-2)) is ErrorCode.INVALID_TIMESTAMP


def test_too_many_messages_in_a_wrapper_are_refused_while_counting() -> None:
    # As many as fit the limit in bytes are more than twice as many as fit it in number.
    bomb = wrapped(0, 0, sent(0, 0, None, None) * (LIMIT // 26), Codec.GZIP)
    assert refusal(bomb) is ErrorCode.MESSAGE_TOO_LARGE
    assert peak_bytes(lambda: refusal(bomb)) < 3 * LIMIT


def test_too_many_messages_outside_of_a_wrapper_are_refused() -> None:
    assert refusal(sent(0, 0, None, None) * (LIMIT // 64 + 1)) is ErrorCode.MESSAGE_TOO_LARGE

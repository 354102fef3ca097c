"""Produce of clients before Kafka 2.1: batches from messages of magic 0 and 1."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.records import Codec, read_key_value_headers, read_records
from shoal_broker import Broker
from tests.batches import (
    LOG_APPEND_TIME,
    TIMESTAMP,
    batch,
    message,
    wrapper,
)
from tests.broker.apis.old_versions.frames import DAY, NOW, OLD_CODECS, PRODUCE, read_all, stored
from tests.broker.conftest import NewTopic
from tests.broker.wire import Wire


def records(found: Any) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.timestamp, *read_key_value_headers(record)[:2])
        for record in read_records(found, 1 << 20)
    ]


def message_set(magic: int, count: int, codec: Codec = Codec.NONE) -> bytes:
    """Write the bytes of a producer of that magic."""
    inner = [
        bytes(
            message(magic, b"value %d" % each, key=b"key %d" % each, offset=each, timestamp=TIMESTAMP + each)
        )
        for each in range(count)
    ]
    if codec is Codec.NONE:
        return b"".join(inner)
    return bytes(wrapper(magic, codec, inner, offset=count - 1, timestamp=TIMESTAMP + count - 1))


@PRODUCE
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, *OLD_CODECS])
def test_message_set_becomes_one_batch(
    wire: Wire, topic: str, version: int, magic: int, codec: Codec
) -> None:
    for base_offset in (0, 3):
        answer = wire.produce(topic, message_set(magic, 3, codec), version=version)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, base_offset)
    found = stored(wire, topic)
    assert [each.header.base_offset for each in found] == [0, 3]
    for each in found:
        assert each.header.magic == 2
        assert each.header.codec_id == codec
        assert each.header.producer_id == -1
        assert not each.header.is_log_append_time
        base = each.header.base_offset
        times = [TIMESTAMP + number if magic else -1 for number in range(3)]
        assert each.header.max_timestamp == times[-1]
        assert records(each) == [
            (base + number, times[number], b"key %d" % number, b"value %d" % number) for number in range(3)
        ]


@pytest.mark.parametrize("magic", [0, 1])
def test_message_set_is_stored_with_the_topic_s_codec(wire: Wire, new_topic: NewTopic, magic: int) -> None:
    for name, codec in (("gzip", Codec.GZIP), ("zstd", Codec.ZSTD), ("uncompressed", Codec.NONE)):
        for sent in (Codec.NONE, Codec.SNAPPY):
            topic = new_topic(compression_type=name)
            answer = wire.produce(topic, message_set(magic, 3, sent), version=2)
            assert answer.error_code == ErrorCode.NONE
            (found,) = stored(wire, topic)
            assert found.header.codec_id == codec
            assert [offset for offset, *_ in records(found)] == [0, 1, 2]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_message_set_of_a_log_append_time_topic_has_the_broker_s_time(
    wire: Wire, new_topic: NewTopic, magic: int, codec: Codec
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    answer = wire.produce(topic, message_set(magic, 2, codec), version=2)
    assert answer.error_code == ErrorCode.NONE
    assert answer.log_append_time_ms > TIMESTAMP
    (found,) = stored(wire, topic)
    assert found.header.is_log_append_time
    assert found.header.max_timestamp == answer.log_append_time_ms


@PRODUCE
@pytest.mark.parametrize("sent", [b"", message_set(1, 1)[:-1], message_set(0, 1)[:16]])
def test_produce_without_whole_message_succeeds_without_offset(
    wire: Wire, topic: str, version: int, sent: bytes
) -> None:
    answer = wire.produce(topic, sent, version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, -1)
    assert wire.end_offset(topic) == 0


@PRODUCE
def test_null_record_set_counts_as_empty(broker: Broker, wire: Wire, topic: str, version: int) -> None:
    """Kafka answers a null record set with nothing at all."""
    answer = wire.produce(topic, None, version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, -1)


@PRODUCE
def test_message_cut_at_the_end_is_dropped(wire: Wire, topic: str, version: int) -> None:
    assert wire.produce(topic, message_set(0, 3)[:-1], version=version).error_code == ErrorCode.NONE
    assert wire.end_offset(topic) == 2


@PRODUCE
def test_batch_of_magic_2_is_accepted_in_old_versions(wire: Wire, topic: str, version: int) -> None:
    """As Kafka 3.9 does, which looks at the magic from v3 on."""
    assert wire.produce(topic, batch(2, codec=Codec.ZSTD), version=version).base_offset == 0
    answer = wire.produce(topic, batch() + batch(), version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert len(stored(wire, topic)) == 1


@pytest.mark.parametrize("magic", [0, 1])
def test_message_set_is_refused_from_version_3_on(wire: Wire, topic: str, magic: int) -> None:
    for version in (3, 8, 11):
        answer = wire.produce(topic, message_set(magic, 2), version=version)
        assert answer.error_code == ErrorCode.INVALID_RECORD


def test_key_byte_is_not_read_as_the_transactional_attribute(wire: Wire, topic: str) -> None:
    """The byte is of the attributes in magic 2, and within the key of magic 0."""
    sent = bytes(message(0, b"value", key=b"\xff" * 20))
    for version in range(3):
        assert wire.produce(topic, sent, version=version).error_code == ErrorCode.NONE


def _wrapped(*inner: bytes | bytearray, **options: int) -> bytes:
    return bytes(wrapper(1, Codec.GZIP, [bytes(each) for each in inner], **options))


def _with_wrong_crc(sent: bytes | bytearray) -> bytes:
    return bytes(sent[:-1]) + bytes([sent[-1] ^ 1])


REFUSED: dict[str, tuple[bytes, dict[str, str], ErrorCode]] = {
    "a wrong CRC": (_with_wrong_crc(message_set(1, 2)), {}, ErrorCode.CORRUPT_MESSAGE),
    "a wrong CRC in a wrapper": (
        _wrapped(message(1), _with_wrong_crc(message(1, offset=1)), offset=1),
        {},
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "a length that is too short": (bytes(8) + b"\0\0\0\x0d" + bytes(20), {}, ErrorCode.CORRUPT_MESSAGE),
    "two magics": (message_set(0, 1) + message_set(1, 1), {}, ErrorCode.INVALID_RECORD),
    "two wrappers": (message_set(1, 2, Codec.GZIP) * 2, {}, ErrorCode.INVALID_RECORD),
    "a wrapper in a wrapper": (_wrapped(_wrapped(message(1))), {}, ErrorCode.INVALID_RECORD),
    "a wrapper of zstd": (bytes(wrapper(1, Codec.ZSTD, [bytes(message(1))])), {}, ErrorCode.INVALID_RECORD),
    "another magic in a wrapper": (_wrapped(message(0)), {}, ErrorCode.INVALID_RECORD),
    "a wrapper with nothing in it": (_wrapped(), {}, ErrorCode.INVALID_RECORD),
    "a wrapper that is no stream": (
        bytes(message(1, b"no gzip", attributes=Codec.GZIP)),
        {},
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    "a codec that is none": (bytes(message(1, attributes=5)), {}, ErrorCode.UNKNOWN_SERVER_ERROR),
    "a message that is too large": (
        message_set(1, 1) + bytes(message(1, b"x" * 1000)),
        {"max_message_bytes": "1000"},
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "messages that are too large together": (
        b"".join(bytes(message(1, b"x" * 100)) for _ in range(10)),
        {"max_message_bytes": "1000"},
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "a time that is to come": (
        bytes(message(1, timestamp=NOW + 3 * DAY)),
        {"message_timestamp_after_max_ms": str(DAY)},
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "a time that is long past": (
        _wrapped(message(1, timestamp=NOW), message(1, timestamp=NOW - 3 * DAY, offset=1), offset=1),
        {"message_timestamp_before_max_ms": str(DAY)},
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "an append time of its own": (
        bytes(message(1, attributes=LOG_APPEND_TIME)),
        {"message_timestamp_type": "LogAppendTime"},
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "an append time of its own for no time": (
        bytes(message(1, attributes=LOG_APPEND_TIME, timestamp=-1)),
        {},
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "a negative time": (bytes(message(1, timestamp=-2)), {}, ErrorCode.UNKNOWN_SERVER_ERROR),
    "no key where one is needed": (
        bytes(message(1, key=b"key") + message(1, offset=1)),
        {"cleanup_policy": "compact"},
        ErrorCode.INVALID_RECORD,
    ),
}


@PRODUCE
@pytest.mark.parametrize("name", REFUSED)
def test_message_set_that_kafka_refuses_is_refused_and_not_written(
    wire: Wire, new_topic: NewTopic, version: int, name: str
) -> None:
    sent, config, code = REFUSED[name]
    topic = new_topic(**config)
    answer = wire.produce(topic, sent, version=version)
    assert (ErrorCode(answer.error_code), answer.base_offset) == (code, -1)
    assert wire.end_offset(topic) == 0


def test_log_append_time_attribute_of_a_producer_is_cleared(wire: Wire, topic: str) -> None:
    """Since Kafka 3.6, as for batches of magic 2."""
    sent = bytes(message(1, attributes=LOG_APPEND_TIME, timestamp=TIMESTAMP))
    assert wire.produce(topic, sent, version=2).error_code == ErrorCode.NONE
    (found,) = stored(wire, topic)
    assert not found.header.is_log_append_time
    assert found.header.max_timestamp == TIMESTAMP


@PRODUCE
@pytest.mark.parametrize("acks", [2, -2])
def test_invalid_acks_are_refused(wire: Wire, topic: str, version: int, acks: int) -> None:
    answer = wire.produce(topic, message_set(0, 1), version=version, acks=acks)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS


@PRODUCE
def test_acks_0_has_no_response_and_an_error_closes_the_connection(
    wire: Wire, topic: str, broker_address: str, version: int
) -> None:
    def send(where: Wire, record_set: bytes) -> None:
        fields = Wire.produce_fields([(topic, 0, record_set)], acks=0)
        where.send(ApiKey.PRODUCE, version, **fields)

    send(wire, message_set(0, 2))
    # The next answer is of the next request.
    assert wire.call(ApiKey.METADATA, 0, topics=[]).brokers
    assert wire.end_offset(topic) == 2
    with Wire(broker_address) as other:
        send(other, _with_wrong_crc(message_set(0, 2)))
        assert other.receive_frame() is None
    assert wire.end_offset(topic) == 2


@PRODUCE
def test_messages_of_old_clients_are_read_by_old_clients(wire: Wire, topic: str, version: int) -> None:
    magic = 1 if version == 2 else 0
    for codec in (Codec.NONE, *OLD_CODECS):
        assert wire.produce(topic, message_set(magic, 3, codec), version=version).error_code == 0
    assert [(key, value) for _, _, key, value in read_all(wire, topic, version, magic)] == [
        (b"key %d" % each, b"value %d" % each) for _ in range(4) for each in range(3)
    ]

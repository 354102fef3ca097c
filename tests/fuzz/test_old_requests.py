"""Requests of the versions that Kafka 4 has removed, as no client sends them.

They go to a gateway before a cluster that has only the versions of Kafka 4. It returns one of Kafka's errors
or disconnects, serves other clients meanwhile, and keeps to its memory limits.
"""

from __future__ import annotations

import contextlib
import logging
import random
import struct
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rig.process import peak_rss_of
from rig.shoal import Shoal, serve_gateway
from shoal.error_codes import ErrorCode
from shoal.errors import CorruptBatch
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal.records.aborted import Marker
from shoal_broker import Broker
from tests import old_messages
from tests.batches import batch, message, raw_batch, wrapper
from tests.broker.wire import Wire, framed
from tests.fuzz.damage import HUGE_NUMBERS, mutated
from tests.fuzz.effort import effort
from tests.hostile.attackers import attack
from tests.hostile.inputs import Input, Kind
from tests.hostile.liar import Lie, changed_fields, damaged_bytes, lying, no_kafka

_MEGABYTE = 1 << 20
#: Of a batch's limit when expanded, a gateway keeps a few copies for a moment.
_MOST_BYTES = 300 * _MEGABYTE

_OLD_VERSIONS = {
    ApiKey.PRODUCE: range(3),
    ApiKey.FETCH: range(4),
    ApiKey.LIST_OFFSETS: range(1),
    ApiKey.METADATA: range(2),
    ApiKey.OFFSET_COMMIT: range(2),
    ApiKey.OFFSET_FETCH: range(1),
}
VERSIONS = [(key, version) for key, versions in _OLD_VERSIONS.items() for version in versions]


@dataclass
class Server:
    """The gateway under test, and the broker behind it."""

    gateway: Shoal
    broker: Broker

    @property
    def address(self) -> str:
        return self.gateway.address

    def peak_bytes(self) -> int:
        return peak_rss_of(self.gateway.process_id)

    def check(self, caplog: pytest.LogCaptureFixture) -> None:
        """Check that no handler raised, which is logged as an error, and that the process still runs."""
        failed = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert not failed, failed[0].exc_text or failed[0].getMessage()
        assert self.gateway.exit_code is None
        log = self.gateway.stdout + self.gateway.stderr
        assert "Traceback" not in log, log[-4000:]
        assert "a request failed" not in log, log[-4000:]


@contextlib.contextmanager
def _broker() -> Iterator[Broker]:
    config = {"offset.metadata.max.bytes": "64"}
    with Broker(config=config) as running:
        # The names that random messages have.
        for name in ("a", "orders"):
            running.create_topic(name, 2)
            running.log(name).append_marker(7, 0, Marker.COMMIT)  # so that the log has records
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with _broker() as broker, serve_gateway(broker.bootstrap) as running:
        yield Server(running, broker)


@pytest.fixture(autouse=True)
def _nothing_fails(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    yield
    assert died == []
    server.check(caplog)
    with Wire(server.address) as wire:
        assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers


def ask(server: Server, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Send a request, read the response if it comes, and check the server's health."""
    host, port = server.address.rsplit(":", 1)
    attack((host, int(port)), iter([Input(0, Kind.GRAMMAR, data)]), 1)
    server.check(caplog)


def request(api: ApiKey, version: int, *fields: Any) -> bytes:
    """Write a request with another codec than the one under test."""
    asked = old_messages.schema(api, version, is_request=True)(*fields)
    return framed(old_messages.encode_request(asked, 1, "fuzz"))


def call(server: Server, api: ApiKey, version: int, *fields: Any) -> Any:
    """Send a request, and read the response with another codec."""
    with Wire(server.address) as wire:
        wire.send_bytes(request(api, version, *fields))
        frame = wire.receive_frame()
    assert frame is not None
    return old_messages.schema(api, version, is_request=False).decode(BytesIO(frame[4:]))


def fetch(server: Server, version: int, topic: str, offset: int = 0, most_bytes: int = _MEGABYTE) -> Any:
    """Return a partition's part of the response: partition, error code, high watermark, messages."""
    limit = (50 * _MEGABYTE,) if version >= 3 else ()
    answer = call(server, ApiKey.FETCH, version, -1, 0, 1, *limit, [(topic, [(0, offset, most_bytes)])])
    return answer.topics[0][1][0]


def produce(server: Server, version: int, topic: str, messages: bytes) -> int:
    """Return the error code."""
    return int(call(server, ApiKey.PRODUCE, version, 1, 1000, [(topic, [(0, messages)])]).topics[0][1][0][1])


def _random_request(api: ApiKey, version: int, seed: int) -> bytes:
    asked = old_messages.random_message(
        old_messages.schema(api, version, is_request=True), random.Random(seed)
    )
    return old_messages.encode_request(asked, 1, "fuzz")


# Produced records

MESSAGE_SETS = [
    bytes(message(magic, key=b"key", offset=0) + message(magic, None, key=b"other", offset=1))
    for magic in (0, 1)
] + [
    bytes(wrapper(magic, codec, [bytes(message(magic, offset=each)) for each in range(3)], offset=2))
    for magic in (0, 1)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
]


@given(st.data())
@effort(75)
def test_damaged_message_sets_are_refused_or_readable(
    server: Server, caplog: pytest.LogCaptureFixture, data: st.DataObject
) -> None:
    topic = _topic(server, "damaged")
    messages = data.draw(mutated(data.draw(st.sampled_from(MESSAGE_SETS))))
    before = server.broker.log(topic).log_end_offset
    error = produce(server, data.draw(st.integers(0, 2)), topic, messages)
    if error:
        assert server.broker.log(topic).log_end_offset == before
    for version in range(4):
        assert fetch(server, version, topic, before)[1] == ErrorCode.NONE
    server.check(caplog)


@given(st.data())
@effort(25)
def test_message_sets_damaged_inside_are_refused_or_readable(
    server: Server, caplog: pytest.LogCaptureFixture, data: st.DataObject
) -> None:
    """The outer checksum is right."""
    topic = _topic(server, "damaged")
    magic = data.draw(st.integers(0, 1))
    inner = b"".join(bytes(message(magic, offset=each)) for each in range(3))
    codec = data.draw(st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]))
    messages = bytes(wrapper(magic, codec, [data.draw(mutated(inner))], offset=2))
    before = server.broker.log(topic).log_end_offset
    produce(server, magic + 1, topic, messages)
    for version in range(4):
        assert fetch(server, version, topic, before)[1] == ErrorCode.NONE
    server.check(caplog)


# Stored records


@pytest.mark.parametrize("version", [0, 3])
def test_fetched_bomb_is_refused(server: Server, version: int) -> None:
    topic = _topic(server, f"bomb-stored-{version}")
    value_bytes = 512 * _MEGABYTE
    length = b"\x80\x80\x80\x80\x04"  # 2^29 as a zigzag varint, about
    bomb = _bomb(length + b"\0\0\0\x01" + length, value_bytes)
    log = server.broker.log(topic)
    log.store(bytes(raw_batch(bomb, attributes=Codec.GZIP)) + bytes(batch(3, base_offset=1)))
    before = server.peak_bytes()
    assert fetch(server, version, topic, most_bytes=8 * _MEGABYTE)[1] != ErrorCode.NONE
    assert server.peak_bytes() - before < _MOST_BYTES
    partition, error, _, messages = fetch(server, version, topic, 1)
    assert (partition, error, len(messages) > 0) == (0, ErrorCode.NONE, True)


@given(st.data())
@effort(37)
def test_damaged_stored_batches_are_answered_with_an_error_or_the_whole_ones(
    server: Server, caplog: pytest.LogCaptureFixture, data: st.DataObject
) -> None:
    topic = _topic(server, "stored")
    log = server.broker.log(topic)
    start = log.log_end_offset
    codec = data.draw(st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]))
    whole = bytes(batch(5, base_offset=start, codec=codec))
    payload = data.draw(mutated(whole[61:]))
    with_right_checksum = raw_batch(
        payload,
        base_offset=start,
        attributes=data.draw(st.sampled_from([codec, codec, 5, 7, 8 | codec])),
        last_offset_delta=4,
        records_count=data.draw(st.sampled_from([5, 5, 5, 0, 6, 2**31 - 1])),
    )
    try:
        log.store(bytes(with_right_checksum) + bytes(batch(2, base_offset=start + 5)))
    except CorruptBatch:
        assume(False)  # a log would refuse it, too
    for version in range(4):
        fetch(server, version, topic, start)
        assert fetch(server, version, topic, start + 5)[1] == ErrorCode.NONE
    server.check(caplog)


# A cluster's responses


@given(
    st.sampled_from(
        [ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.API_VERSIONS]
    ),
    st.sampled_from([damaged_bytes, changed_fields, no_kafka]),
    st.sampled_from(VERSIONS),
    st.integers(0, 2**32),
)
@effort(50)
def test_gateway_survives_wrong_responses_of_a_cluster(
    server: Server,
    caplog: pytest.LogCaptureFixture,
    api: ApiKey,
    lie: Lie,
    asked: tuple[ApiKey, int],
    seed: int,
) -> None:
    with lying(server.broker, [api], [lie], random.Random(seed), most=2):
        ask(server, framed(_random_request(*asked, seed)), caplog)
        topic = _topic(server, "lies")
        ask(server, request(ApiKey.FETCH, 3, -1, 10, 1, _MEGABYTE, [(topic, [(0, 0, _MEGABYTE)])]), caplog)
        ask(server, request(ApiKey.PRODUCE, 2, 1, 1000, [(topic, [(0, MESSAGE_SETS[1])])]), caplog)


def test_announced_sizes_of_a_cluster_are_not_allocated(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    before = server.peak_bytes()
    topic = _topic(server, "lies")

    def claims(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> bytes:
        return b"\x7f\xff\xff\xff" + answer[4:]

    with lying(server.broker, [ApiKey.FETCH], [claims], random.Random(0), most=1):
        ask(server, request(ApiKey.FETCH, 3, -1, 10, 1, _MEGABYTE, [(topic, [(0, 0, _MEGABYTE)])]), caplog)
    for number in HUGE_NUMBERS:

        def claims_inside(
            answer: bytes, api: ApiKey, version: int, draw: random.Random, number: bytes = number
        ) -> bytes:
            at = draw.randrange(8, len(answer))
            changed = answer[:at] + number + answer[at + len(number) :]
            return struct.pack(">i", len(changed) - 4) + changed[4:]

        with lying(server.broker, [ApiKey.FETCH], [claims_inside], random.Random(number), most=1):
            ask(
                server, request(ApiKey.FETCH, 3, -1, 10, 1, _MEGABYTE, [(topic, [(0, 0, _MEGABYTE)])]), caplog
            )
    assert server.peak_bytes() - before < _MOST_BYTES


def _topic(server: Server, name: str) -> str:
    with contextlib.suppress(Exception):
        server.broker.create_topic(name)
    return name


@cache
def _bomb(head: bytes, zeros: int) -> bytes:
    """Compress a few bytes and very many zeros, without holding them in memory."""
    compressor = zlib.compressobj(1, zlib.DEFLATED, 31)
    parts = [compressor.compress(head)]
    block = bytes(_MEGABYTE)
    parts += [compressor.compress(block) for _ in range(zeros // _MEGABYTE)]
    return b"".join([*parts, compressor.flush()])

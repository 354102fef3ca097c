"""
Requests that no client sends, of Kafka's present versions and of those that Kafka 4 has removed.

They go to a gateway before a cluster that has only the versions of Kafka 4. It returns one of Kafka's errors
or disconnects, serves other clients, and keeps to its memory limits.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import threading
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rig.process import peak_rss_of
from rig.shoal import Shoal, serve_gateway
from rig.wait import wait_until
from shoal.client.config import ClientConfig
from shoal.error_codes import ErrorCode
from shoal.errors import CorruptBatch
from shoal.gateway.client_connection import PIECE_BYTES
from shoal.gateway.settings import GatewaySettings
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchedPartition
from shoal.records import Codec
from shoal.records.aborted import Marker
from shoal_broker import Broker
from tests import old_messages
from tests.broker.wire import Wire, framed
from tests.fuzz.damage import mutated
from tests.fuzz.effort import effort, number_of_inputs
from tests.held import Held, held
from tests.hostile.attackers import attack
from tests.hostile.bombs import BOMBS, bomb
from tests.hostile.inputs import TOPICS, Input, Kind, draw_input
from tests.hostile.liar import Lie, changed_fields, damaged_bytes, lying, no_kafka
from tests.hostile.record_sets import hostile_records
from tests.world.batches import batch, message, raw_batch

#: Those that let no client wait.
APIS = (ApiKey.PRODUCE, ApiKey.LIST_OFFSETS, ApiKey.METADATA)

#: A tenth of the hostile requests of a run, the least between two looks, and the clients that send them.
_INPUTS, _AT_ONCE, _CLIENTS = 30, 20, 8

_MEGABYTE = 1 << 20
#: Of a batch's limit when expanded, a gateway keeps a few copies for a moment.
_MOST_BYTES = 300 * _MEGABYTE


@dataclass
class Server:
    """
    The gateway under test, and the broker behind it.

    Attributes:
        rest: The threads and sockets that the gateway has without clients.

    """

    gateway: Shoal
    broker: Broker
    rest: Held

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
        for name in TOPICS:
            running.create_topic(name, 2)
            running.log(name).append_marker(7, 0, Marker.COMMIT)  # so that the log has records
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with _broker() as broker, serve_gateway(broker.bootstrap) as running:
        with Wire(running.address) as wire:
            wire.call(ApiKey.METADATA, 1, topics=[])
        yield Server(running, broker, held(running.process_id))


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


def ask(server: Server, asked: Iterable[Input], caplog: pytest.LogCaptureFixture) -> None:
    """Send requests by many clients, read the responses that come, and check the server's health."""
    host, port = server.address.rsplit(":", 1)
    assert attack((host, int(port)), iter(asked), _CLIENTS).hung == []
    server.check(caplog)


def most_bytes() -> int:
    """Return the memory that options allow: a conversion on each core takes up to three times its batch."""
    limits = GatewaySettings("", 0, ClientConfig("upstream", ()))
    of_each = limits.buffer_bytes + limits.chunk_bytes + 2 * PIECE_BYTES
    converted = 3 * (os.cpu_count() or 1) * limits.largest_batch_bytes
    return _CLIENTS * of_each + limits.bytes_in_flight + converted


def request(api: ApiKey, version: int, *fields: Any) -> Input:
    """Write a request with another codec than the one under test."""
    asked = old_messages.schema(api, version, is_request=True)(*fields)
    return Input(0, Kind.GRAMMAR, framed(old_messages.encode_request(asked, 1, "fuzz")))


def fetch(server: Server, version: int, topic: str, offset: int = 0) -> FetchedPartition:
    with Wire(server.address) as wire:
        return wire.fetch(topic, offset, version=version, partition_max_bytes=8 * _MEGABYTE)


def test_hostile_requests_leave_nothing_behind(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    count, rest, before = 10 * number_of_inputs(_INPUTS), server.rest, server.peak_bytes()
    seed = 0 if count == 10 * _INPUTS else random.randrange(1 << 32)
    print(f"seed {seed}")
    at_once = max(_AT_ONCE, count // 100)  # a search may send a million
    for first in range(0, count, at_once):
        ask(server, (draw_input(seed, number) for number in range(first, first + at_once)), caplog)
        wait_until(lambda: not held(server.gateway.process_id).exceeds(rest), f"{rest} to be left")
        assert server.peak_bytes() - before < most_bytes()


#: Refused at once; the others compress 64 MiB first.
_CLAIMS = ("gigabytes claimed by snappy", "gigabytes claimed by zstd")


@pytest.mark.parametrize(
    "name", [each if each in _CLAIMS else pytest.param(each, marks=pytest.mark.long) for each in BOMBS]
)
def test_bomb_is_answered_or_refused_within_the_memory(
    server: Server, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    before = server.peak_bytes()
    ask(server, [bomb(name)] * _CLIENTS, caplog)
    assert server.peak_bytes() - before < _MOST_BYTES


@given(st.integers(0, 2**32), st.integers(0, 2))
@effort(100)
def test_hostile_message_sets_are_refused_or_readable(
    server: Server, caplog: pytest.LogCaptureFixture, seed: int, version: int
) -> None:
    topic = _topic(server, "damaged")
    before = server.broker.log(topic).log_end_offset
    with Wire(server.address) as wire:
        error = wire.produce(topic, hostile_records(random.Random(seed)), version=version).error_code
    if error:
        assert server.broker.log(topic).log_end_offset == before
    for version in range(4):
        assert fetch(server, version, topic, before).error_code == ErrorCode.NONE
    server.check(caplog)


@pytest.mark.parametrize("version", [0, 3])
def test_fetched_bomb_is_refused(server: Server, version: int) -> None:
    topic = _topic(server, f"bomb-stored-{version}")
    value_bytes = 512 * _MEGABYTE
    length = b"\x80\x80\x80\x80\x04"  # 2^29 as a zigzag varint, about
    bomb = _bomb(length + b"\0\0\0\x01" + length, value_bytes)
    log = server.broker.log(topic)
    log.store(bytes(raw_batch(bomb, attributes=Codec.GZIP)) + bytes(batch(3, base_offset=1)))
    before = server.peak_bytes()
    assert fetch(server, version, topic).error_code != ErrorCode.NONE
    assert server.peak_bytes() - before < _MOST_BYTES
    fetched = fetch(server, version, topic, 1)
    assert (fetched.error_code, len(fetched.record_set) > 0) == (ErrorCode.NONE, True)


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
        assert fetch(server, version, topic, start + 5).error_code == ErrorCode.NONE
    server.check(caplog)


def claim_gigabytes(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> bytes:
    return b"\x7f\xff\xff\xff" + answer[4:]


@given(
    st.sampled_from(
        [ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.API_VERSIONS]
    ),
    st.sampled_from([damaged_bytes, changed_fields, no_kafka, claim_gigabytes]),
    st.integers(0, 2**32),
)
@effort(50)
def test_gateway_survives_wrong_responses_of_a_cluster(
    server: Server, caplog: pytest.LogCaptureFixture, api: ApiKey, lie: Lie, seed: int
) -> None:
    before = server.peak_bytes()
    drawn = (draw_input(seed, number) for number in itertools.count())
    with lying(server.broker, [api], [lie], random.Random(seed), most=2):
        ask(server, [next(each for each in drawn if each.api in APIS)], caplog)
        wanted = [("a", [(0, 0, _MEGABYTE)])]
        ask(server, [request(ApiKey.FETCH, 3, -1, 10, 1, _MEGABYTE, wanted)], caplog)
        written = [("a", [(0, bytes(message(1, key=b"key")))])]
        ask(server, [request(ApiKey.PRODUCE, 2, 1, 1000, written)], caplog)
    # A cluster announces sizes that it does not send.
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

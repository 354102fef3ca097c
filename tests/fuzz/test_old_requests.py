"""
Requests that no client sends, of Kafka's present versions and of those that Kafka 4 has removed.

They go to a gateway before a cluster that has only the versions of Kafka 4. It returns one of Kafka's errors
or disconnects, serves other clients, and keeps to its memory limits.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import random
import threading
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shoal.error_codes import ErrorCode
from shoal.errors import CorruptBatch
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchedPartition
from shoal.records import Codec
from tests import old_messages
from tests.broker.wire import Wire, framed
from tests.fuzz.damage import mutated
from tests.fuzz.effort import effort
from tests.hostile.bombs import BOMBS, bomb
from tests.hostile.gateway import CLIENTS_AT_ONCE, AttackedGateway, attacked_gateway
from tests.hostile.inputs import Input, Kind, draw_input
from tests.hostile.liar import Lie, changed_fields, damaged_bytes, lying, no_kafka
from tests.hostile.record_sets import hostile_records
from tests.world.batches import batch, message, raw_batch

#: Those that let no client wait.
APIS = (ApiKey.PRODUCE, ApiKey.LIST_OFFSETS, ApiKey.METADATA)

_MEGABYTE = 1 << 20
#: Of a batch's limit when expanded, a gateway keeps a few copies for a moment.
_MOST_BYTES = 300 * _MEGABYTE


@pytest.fixture(scope="module")
def server() -> Iterator[AttackedGateway]:
    with attacked_gateway() as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_fails(
    server: AttackedGateway, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    yield
    assert died == []
    check(server, caplog)
    assert server.left() == []


def check(server: AttackedGateway, caplog: pytest.LogCaptureFixture) -> None:
    """Check the gateway, and that no handler of the broker raised: it logs an error."""
    failed = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not failed, failed[0].exc_text or failed[0].getMessage()
    assert server.problems() == []


def request(api: ApiKey, version: int, *fields: Any) -> Input:
    """Write a request with another codec than the one under test."""
    asked = old_messages.schema(api, version, is_request=True)(*fields)
    return Input(0, Kind.GRAMMAR, framed(old_messages.encode_request(asked, 1, "fuzz")))


def fetch(server: AttackedGateway, version: int, topic: str, offset: int = 0) -> FetchedPartition:
    with Wire(server.address) as wire:
        return wire.fetch(topic, offset, version=version, partition_max_bytes=8 * _MEGABYTE)


#: Refused at once; the others compress 64 MiB first.
_CLAIMS = ("gigabytes claimed by snappy", "gigabytes claimed by zstd")


@pytest.mark.parametrize(
    "name", [each if each in _CLAIMS else pytest.param(each, marks=pytest.mark.long) for each in BOMBS]
)
def test_bomb_is_answered_or_refused_within_the_memory(
    server: AttackedGateway, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    before = server.peak_bytes()
    assert server.ask([bomb(name)] * CLIENTS_AT_ONCE) == []
    assert server.peak_bytes() - before < _MOST_BYTES


@given(st.integers(0, 2**32), st.integers(0, 2))
@effort(100)
def test_hostile_message_sets_are_refused_or_readable(
    server: AttackedGateway, caplog: pytest.LogCaptureFixture, seed: int, version: int
) -> None:
    topic = _topic(server, "damaged")
    before = server.broker.log(topic).log_end_offset
    with Wire(server.address) as wire:
        error = wire.produce(topic, hostile_records(random.Random(seed)), version=version).error_code
    if error:
        assert server.broker.log(topic).log_end_offset == before
    for version in range(4):
        assert fetch(server, version, topic, before).error_code == ErrorCode.NONE
    check(server, caplog)


@pytest.mark.parametrize("version", [0, 3])
def test_fetched_bomb_is_refused(server: AttackedGateway, version: int) -> None:
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
    server: AttackedGateway, caplog: pytest.LogCaptureFixture, data: st.DataObject
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
    check(server, caplog)


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
    server: AttackedGateway, caplog: pytest.LogCaptureFixture, api: ApiKey, lie: Lie, seed: int
) -> None:
    before = server.peak_bytes()
    drawn = (draw_input(seed, number) for number in itertools.count())
    with lying(server.broker, [api], [lie], random.Random(seed), most=2):
        assert server.ask([next(each for each in drawn if each.api in APIS)]) == []
        wanted = [("a", [(0, 0, _MEGABYTE)])]
        assert server.ask([request(ApiKey.FETCH, 3, -1, 10, 1, _MEGABYTE, wanted)]) == []
        written = [("a", [(0, bytes(message(1, key=b"key")))])]
        assert server.ask([request(ApiKey.PRODUCE, 2, 1, 1000, written)]) == []
    # A cluster announces sizes that it does not send.
    assert server.peak_bytes() - before < _MOST_BYTES


def _topic(server: AttackedGateway, name: str) -> str:
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

"""Requests that no client sends: the embedded broker answers or disconnects, and serves the others."""

from __future__ import annotations

import contextlib
import logging
import random
import resource
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import decode_request, encode_request, read_request_header
from shoal.records.aborted import Marker
from shoal_broker import Broker
from shoal_broker.apis import APIS
from tests import kio_messages
from tests.batches import TRANSACTIONAL, batch
from tests.broker.wire import Wire, framed
from tests.fuzz.damage import garbage, mutated
from tests.fuzz.effort import effort
from tests.fuzz.liar import CANNOT_BE_WRITTEN, change_fields
from tests.vectors import Vector, vectors

#: If a request asks the broker to wait for any time, the test does not wait for the response.
_PATIENCE_S = 0.5

REQUESTS = [each for each in vectors() if each.direction == "request"]
VERSIONS = [
    (api.key, version)
    for api in APIS.values()
    for version in range(api.oldest, api.newest + 1)
    if kio_messages.request_schema(api.key, version) is not None
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    config = {
        "offset.metadata.max.bytes": "64",
        "shoal.multi.batch.produce": "true",
    }
    with Broker(config=config) as running:
        # The names that kio_messages generates, and those in the recorded frames.
        for name in ("a", "orders", "topic"):
            running.create_topic(name, 2)
            running.log(name).append_marker(7, 0, Marker.COMMIT)  # so that the log has records
        yield running


@pytest.fixture(autouse=True)
def _nothing_fails(
    broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Check that no handler raised (logged), no thread died (reported), and the broker still runs."""
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    yield
    assert [
        record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR
    ] == []
    assert died == []
    with Wire(broker.bootstrap) as wire:
        assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers


def ask(broker: Broker, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Send bytes, read the response for a while, and check the broker's health."""
    connected = socket.create_connection((broker.host, broker.port), timeout=_PATIENCE_S)
    # The broker may disconnect at any moment, or let the client wait.
    with connected as sock, contextlib.suppress(OSError):
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass
    failed = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not failed, failed[0].exc_text or failed[0].getMessage()


@given(st.data())
@effort(75)
def test_damaged_recorded_requests_are_answered_or_refused(
    broker: Broker, caplog: pytest.LogCaptureFixture, data: st.DataObject
) -> None:
    vector = data.draw(st.sampled_from(REQUESTS))
    ask(broker, framed(data.draw(mutated(vector.frame))), caplog)


@given(st.sampled_from(VERSIONS), st.integers(0, 2**32))
@effort(100)
def test_well_formed_senseless_requests_are_answered_or_refused(
    broker: Broker, caplog: pytest.LogCaptureFixture, api: tuple[ApiKey, int], seed: int
) -> None:
    key, version = api
    schema = kio_messages.request_schema(key, version)
    message = kio_messages.random_message(schema, random.Random(seed))
    ask(broker, framed(kio_messages.encode_request(message, 1, "fuzz")), caplog)


@given(st.data())
@effort(25)
def test_damaged_senseless_requests_are_answered_or_refused(
    broker: Broker, caplog: pytest.LogCaptureFixture, data: st.DataObject
) -> None:
    key, version = data.draw(st.sampled_from(VERSIONS))
    draw = random.Random(data.draw(st.integers(0, 2**32)))
    message = kio_messages.random_message(kio_messages.request_schema(key, version), draw)
    frame = kio_messages.encode_request(message, 1, "fuzz")
    ask(broker, framed(data.draw(mutated(frame))), caplog)


@given(st.sampled_from(REQUESTS), st.integers(0, 2**32))
@effort(100)
def test_recorded_requests_with_other_values_are_answered_or_refused(
    broker: Broker, caplog: pytest.LogCaptureFixture, vector: Vector, seed: int
) -> None:
    frame = memoryview(vector.frame)
    message = decode_request(read_request_header(frame), frame)
    change_fields(message, random.Random(seed))
    try:
        data = encode_request(message, 1, "fuzz")
    except CANNOT_BE_WRITTEN:
        return
    ask(broker, data, caplog)


@given(garbage())
@effort(30)
def test_invalid_requests_at_most_close_the_connection(
    broker: Broker, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    ask(broker, data, caplog)
    ask(broker, framed(data), caplog)


def test_announced_frames_that_never_arrive_take_little_memory(broker: Broker) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wires = [Wire(broker.bootstrap) for _ in range(20)]
    for wire in wires:
        wire.send_bytes(struct.pack(">i", 100 * 1024 * 1024))
    for wire in wires:
        wire.close()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


@given(st.sampled_from([0, TRANSACTIONAL]), st.data())
@effort(37)
def test_damaged_batches_are_refused_or_readable(
    broker: Broker, caplog: pytest.LogCaptureFixture, flags: int, data: st.DataObject
) -> None:
    whole = bytes(batch(3, flags=flags, producer_id=5, producer_epoch=0, base_sequence=0))
    record_set = data.draw(mutated(whole))
    with Wire(broker.bootstrap) as wire:
        wire.produce("topic", record_set, transactional_id="id" if flags else None)
        start = wire.list_offset("topic", -2).offset
        assert wire.fetch("topic", start).error_code == 0
        for timestamp in (-3, 0, 1 << 40):
            wire.list_offset("topic", timestamp)
    failed = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not failed, failed[0].exc_text

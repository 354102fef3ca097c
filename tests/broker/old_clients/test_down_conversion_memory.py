"""A response is converted chunk by chunk, so its memory does not grow with its size."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_broker import Broker
from tests.batches import batch
from tests.broker.wire import PATIENCE_S, Wire

_MIB = 1 << 20
_BASE_OFFSET = struct.Struct(">q")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """With its log in files: in memory, a read ends with a segment of 16 MiB."""
    with Broker(config={"shoal.old.versions": "true"}, data=tmp_path) as running:
        yield running


def load(broker: Broker, topic: str, partition: int, stored: bytearray, count: int) -> None:
    """Store a batch again and again, each time behind the last."""
    log = broker.log(topic, partition)
    records = int.from_bytes(stored[57:61])
    for number in range(count):
        _BASE_OFFSET.pack_into(stored, 0, number * records)
        log.store(bytes(stored))


def peak_while_reading(wire: Wire, topic: str, partitions: int) -> tuple[int, int]:
    """Fetch all that there is; return the response's size, and the most bytes that Python had more for it."""
    buffer = memoryview(bytearray(64 * 1024))
    # Under tracemalloc all that Python makes takes its time, on a busy machine a minute.
    wire._socket.settimeout(10 * PATIENCE_S)
    tracemalloc.start()
    try:
        wire.send_fetch(
            [(topic, partition, 0) for partition in range(partitions)],
            version=2,
            partition_max_bytes=64 * _MIB,
            max_wait_ms=PATIENCE_S * 1000,
        )
        size = left = 4 + int.from_bytes(wire._receive(4) or b"")
        left -= 4
        while left:
            received = wire._socket.recv_into(buffer[: min(left, len(buffer))])
            assert received
            left -= received
        return size, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_conversion_of_50_mb_holds_one_chunk_in_memory(broker: Broker) -> None:
    broker.create_topic("topic")
    stored = batch([b"x" * 1000] * 15)
    load(broker, "topic", 0, stored, 50 * _MIB // len(stored))
    with Wire(broker.bootstrap) as wire:
        size, peak = peak_while_reading(wire, "topic", 1)
    assert size > 49 * _MIB
    assert peak < 2 * _MIB


def test_conversion_of_many_partitions_holds_one_first_batch_in_memory(broker: Broker) -> None:
    broker.create_topic("topic", 20)
    stored = batch([b"x" * 1000] * 900)
    for partition in range(20):
        load(broker, "topic", partition, stored, 1)
    with Wire(broker.bootstrap) as wire:
        size, peak = peak_while_reading(wire, "topic", 20)
    assert size > 17 * _MIB
    assert peak < 8 * _MIB

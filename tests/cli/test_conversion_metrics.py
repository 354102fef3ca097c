"""``--metrics`` of ``shoal gateway``: the cost of conversions, as Prometheus reads it."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rig.shoal import serve_gateway
from shoal.error_codes import ErrorCode
from shoal.records import Codec
from shoal_broker import Broker
from tests.broker.wire import Wire
from tests.metrics_fed import parsed
from tests.world.batches import batch, message

PATIENCE_S = 120


@contextmanager
def gateway(upstream: Broker) -> Iterator[tuple[str, str]]:
    """Run a gateway; yield its bootstrap address and the URL of its metrics."""
    with serve_gateway(upstream.bootstrap, "--metrics", "127.0.0.1:0") as process:
        yield process.address, process.wait_for_line(r"metrics at (\S+)")[1]


def conversions(url: str, direction: str) -> dict[str, float]:
    """Return the values of one direction by the part of the name that follows ``shoal_conversion_``."""
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        found = parsed(answer.read())
    return {
        name.removeprefix("shoal_conversion_").removesuffix("_total"): value
        for (name, labels), value in found.items()
        if name.startswith("shoal_conversion_") and labels in ((), (("direction", direction),))
    }


@pytest.fixture
def upstream() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("topic")
        broker.create_topic("zstd")
        yield broker


def test_gateway_counts_conversions_and_refusals(upstream: Broker) -> None:
    with Wire(upstream.bootstrap) as wire:
        wire.produce("topic", batch([b"value"] * 3))
        wire.produce("zstd", batch([b"value"], codec=Codec.ZSTD))
    with gateway(upstream) as (bootstrap, url), Wire(bootstrap) as wire:
        assert wire.fetch("topic", version=2).record_set
        answer = wire.fetch("zstd", version=2)
        assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        found = conversions(url, "fetch")
        assert (found["batches"], found["messages"], found["refused"]) == (1, 3, 1)
        assert found["memory_bytes"] == 0


def test_gateway_counts_conversions_of_produced_messages(upstream: Broker) -> None:
    sent = bytes(message(1, b"one", offset=0) + message(1, b"two", offset=1))
    with gateway(upstream) as (bootstrap, url), Wire(bootstrap) as wire:
        assert wire.produce("topic", sent, version=2).error_code == ErrorCode.NONE
        found = conversions(url, "produce")
    with Wire(upstream.bootstrap) as wire:
        stored = wire.fetch("topic").record_set
    assert found.pop("cpu_seconds") > 0
    assert found == {
        "batches": 1,
        "messages": 2,
        "source_bytes": len(sent),
        "bytes": len(stored),
        "refused": 0,
        "memory_bytes": 0,
    }

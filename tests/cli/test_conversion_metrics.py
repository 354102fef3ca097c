"""``--metrics`` of ``shoal-broker`` and ``shoal gateway``: the cost of conversions, as Prometheus reads
it."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shoal.error_codes import ErrorCode
from shoal.records import Codec
from shoal_broker import Broker
from tests.batches import batch
from tests.broker.wire import Wire
from tests.metrics_fed import parsed

PATIENCE_S = 60


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, str]]:
    """Run a module that listens; yield its bootstrap address and the URL of its metrics."""
    command = [
        sys.executable,
        "-m",
        *arguments,
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        url = re.search(r"metrics at (\S+)", process.stderr.readline())
        assert url
        yield process.stdout.readline().removeprefix("listening on ").strip(), url[1]
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def conversions(url: str, direction: str) -> dict[str, float]:
    """Return the values of one direction by the part of the name that follows ``shoal_conversion_``."""
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        found = parsed(answer.read())
    return {
        name.removeprefix("shoal_conversion_").removesuffix("_total"): value
        for (name, labels), value in found.items()
        if name.startswith("shoal_conversion_") and labels in ((), (("direction", direction),))
    }


def test_broker_counts_conversions_of_fetches_and_produces() -> None:
    settings = ["--config", "shoal.old.versions=true", "--config", "compression.type=gzip"]
    with serving("shoal_broker", *settings) as (bootstrap, url), Wire(bootstrap) as wire:
        wire.create_topic("topic")
        sent = batch([b"value"] * 5)
        assert wire.produce("topic", sent).error_code == ErrorCode.NONE
        stored = bytes(wire.fetch("topic").record_set)
        produced = conversions(url, "produce")
        assert produced.pop("cpu_seconds") > 0
        assert produced == {
            "batches": 1,
            "messages": 5,
            "source_bytes": len(sent),
            "bytes": len(stored),
            "refused": 0,
            "memory_bytes": 0,
        }
        assert conversions(url, "fetch")["batches"] == 0
        assert wire.fetch("topic", version=2).record_set
        fetched = conversions(url, "fetch")
        assert (fetched["batches"], fetched["messages"], fetched["source_bytes"]) == (1, 5, len(stored))
        assert fetched["bytes"] > 0
        assert fetched["refused"] == 0


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
    with (
        serving("shoal", "gateway", "--upstream", upstream.bootstrap) as (bootstrap, url),
        Wire(bootstrap) as wire,
    ):
        assert wire.fetch("topic", version=2).record_set
        answer = wire.fetch("zstd", version=2)
        assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        found = conversions(url, "fetch")
        assert (found["batches"], found["messages"], found["refused"]) == (1, 3, 1)
        assert found["memory_bytes"] == 0

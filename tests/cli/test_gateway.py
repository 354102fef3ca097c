"""``shoal gateway`` as its user runs it: a process, its words and its exit code."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from broker.wire import Wire

from shoal.broker import BrokerCluster
from shoal.exit_codes import EXIT_FAILED, EXIT_USAGE
from shoal.protocol.apis import ApiKey

PATIENCE_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(2) as running:
        yield running


@contextmanager
def gateway(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "shoal", "gateway", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_ends_with_0(cluster: BrokerCluster, number: int) -> None:
    with gateway("--listen", "127.0.0.1:0", "--upstream", cluster.bootstrap) as process:
        assert process.stdout is not None
        bootstrap = process.stdout.readline().removeprefix("listening on ").strip()
        brokers = [process.stdout.readline().split()[-1] for _ in range(2)]
        with Wire(bootstrap) as wire:
            wire.send_fetch([("a topic", 0, 0)], version=0, min_bytes=1, max_wait_ms=60_000)
            with Wire(bootstrap) as other:
                told = other.call(ApiKey.METADATA, 0, topics=[])
            assert [f"{each.host}:{each.port}" for each in told.brokers] == brokers
            process.send_signal(number)
            assert process.wait(PATIENCE_S) == 0


def test_with_json_it_says_where_it_listens(cluster: BrokerCluster) -> None:
    with gateway("--listen", "127.0.0.1:0", "--upstream", cluster.bootstrap, "--json") as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["type"] == "gateway"
        assert set(said["brokers"]) == {"1", "2"}
        with Wire(said["bootstrap"]) as wire:
            assert wire.call(ApiKey.METADATA, 0, topics=[]).brokers
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


def test_a_port_that_is_taken_is_one_sentence_and_exit_code_2(cluster: BrokerCluster) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with gateway("--listen", where, "--upstream", cluster.bootstrap) as process:
            out, err = process.communicate(timeout=PATIENCE_S)
    assert (out, process.returncode) == ("", EXIT_USAGE)
    assert err.startswith(f"shoal: cannot listen on {where}, where clients bootstrap from: ")
    assert err.count("\n") == 1


def test_a_cluster_that_does_not_answer_is_one_sentence_and_exit_code_1() -> None:
    with gateway("--listen", "127.0.0.1:0", "--upstream", "127.0.0.1:1") as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (out, process.returncode) == ("", EXIT_FAILED)
    assert "the upstream cluster at 127.0.0.1:1 does not answer: Connection refused" in err
    assert err.count("\n") == 1

"""``shoal mirror`` with tasks in separate executors: on this machine alone, and on a cluster."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.mirror_command import (
    RECORDS,
    TIMEOUT_S,
    Mirror,
    assert_copied,
    brokers_with_orders,
    copied,
    load,
)
from tests.spark.standalone import standalone_cluster
from tests.two_brokers import TwoBrokers, wait_until

#: Longer than the tests' own waits, on a busy machine.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture
def brokers() -> Iterator[TwoBrokers]:
    with brokers_with_orders() as started:
        yield started


def test_running_mirror_on_separate_executors_ends_with_0(brokers: TwoBrokers, tmp_path: Path) -> None:
    with Mirror(brokers, tmp_path, "--master", "local-cluster[2,1,1024]") as mirror:
        wait_until(lambda: copied(brokers) == RECORDS, TIMEOUT_S)
        assert mirror.executors() == 2
        load(brokers)
        wait_until(lambda: copied(brokers) == 2 * RECORDS, TIMEOUT_S)
        mirror.send_signal(signal.SIGTERM)
        code, err, summary = mirror.result()
    assert (code, err, summary["records"]) == (0, "", 2 * RECORDS)
    assert_copied(brokers, 2 * RECORDS)


def test_mirror_runs_on_a_standalone_cluster(brokers: TwoBrokers, tmp_path: Path) -> None:
    with standalone_cluster(tmp_path) as master:
        with Mirror(brokers, tmp_path, "--master", master, "--once") as mirror:
            code, err, summary = mirror.result()
        executors = list((tmp_path / "work").glob("app-*/*/stderr"))
    assert (code, err, summary["records"]) == (0, "", RECORDS)
    assert_copied(brokers, RECORDS)
    # Not in the driver's own process.
    assert executors

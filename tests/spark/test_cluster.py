"""``shoal mirror`` with tasks in separate executors: on this machine alone, and on a cluster."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.spark.mirror_command import (
    RECORDS,
    TIMEOUT_S,
    Mirror,
    assert_copied,
    brokers_with_orders,
    copied,
    executors_of,
    load,
)
from tests.spark.standalone import standalone_cluster
from tests.world.clusters import TwoBrokers
from tests.world.waiting import wait_until

#: Longer than the tests' own waits, on a busy machine.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture
def brokers() -> Iterator[TwoBrokers]:
    with brokers_with_orders() as started:
        yield started


def test_mirror_on_separate_executors_copies_on_if_one_is_killed(brokers: TwoBrokers, tmp_path: Path) -> None:
    with Mirror(brokers, tmp_path, "--master", "local-cluster[2,1,1024]") as mirror:
        _kill_an_executor(mirror, brokers, lambda: executors_of(mirror.children()))
    assert mirror.exit_code == 0
    assert_copied(brokers, 2 * RECORDS)


def test_mirror_on_a_standalone_cluster_copies_on_if_an_executor_is_killed(
    brokers: TwoBrokers, tmp_path: Path
) -> None:
    # Two executors of one core, in the memory of the worker.
    size = ["--conf", "spark.executor.cores=1", "--conf", "spark.executor.memory=512m"]
    with (
        standalone_cluster(tmp_path) as cluster,
        Mirror(brokers, tmp_path, "--master", cluster.address, *size) as mirror,
    ):
        # Not in the driver's own process, and not started by it.
        _kill_an_executor(mirror, brokers, lambda: executors_of(cluster.processes()))
    assert mirror.exit_code == 0
    assert_copied(brokers, 2 * RECORDS)


def _kill_an_executor(
    mirror: Mirror, brokers: TwoBrokers, executors: Callable[[], list[psutil.Process]]
) -> None:
    """Kill one of two executors while the mirror copies; end the mirror once there is another."""
    wait_until(lambda: copied(brokers) == RECORDS and len(executors()) == 2, TIMEOUT_S)
    killed = executors()[0]
    load(brokers)
    killed.kill()
    wait_until(lambda: copied(brokers) == 2 * RECORDS, TIMEOUT_S)
    wait_until(lambda: len(executors()) == 2 and killed not in executors(), TIMEOUT_S)
    mirror.send_signal(signal.SIGTERM)
    mirror.result()

"""A stuck partition delays no other of its task, and reports name its reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from tests.world.clusters import TwoBrokers
from tests.world.control import Watched, partitions_of
from tests.world.faults import Held
from tests.world.history import History
from tests.world.task import RunningTask
from tests.world.waiting import wait_until


@pytest.fixture
def two_nodes() -> Iterator[TwoBrokers]:
    """The second node of each cluster leads the second partition of each topic."""
    with TwoBrokers.started(nodes=2) as brokers:
        yield brokers


#: A wait for a stalled answer would take so long. A task has to end before.
STALL_S = 600.0


def is_copied(brokers: TwoBrokers, history: History, partition: int) -> bool:
    return len(brokers.copied("topic", partition)) == len(history.committed)


def end(running: RunningTask, control: Watched) -> None:
    control.request_stop()
    running.result()


def test_stalled_destination_leader_delays_only_its_own_partitions(two_nodes: TwoBrokers) -> None:
    brokers = two_nodes.with_timing(stalled_s=0.3)
    well, stuck = brokers.topic("topic", 2)
    second = brokers.destinations.nodes[1]
    control = Watched()
    stall = Held(second, ApiKey.PRODUCE)
    running = brokers.start(brokers.open_ranges(), control)
    stuck.plain(1)
    stall.wait_for_one()
    for _ in range(20):  # while the other leader does not answer
        well.plain(1)
        wait_until(lambda: is_copied(brokers, well, 0))
    assert not brokers.copied("topic", 1)
    address = f"127.0.0.1:{second.port}"
    wait_until(lambda: f"the destination cluster's broker {address} to answer" in control.waited_for)
    stall.release()
    wait_until(lambda: is_copied(brokers, stuck, 1))
    wait_until(lambda: _last_word_of(control, 1) is None)
    end(running, control)
    brokers.assert_exact(stuck, partition=1)


def _last_word_of(control: Watched, partition: int) -> str | None:
    words = [each["waiting_for"] for each in partitions_of(control) if each["partition"] == partition]
    return words[-1] if words else None


def test_stalled_source_leader_delays_only_its_own_partitions(two_nodes: TwoBrokers) -> None:
    brokers = two_nodes.with_timing(stalled_s=0.3)
    well, stuck = brokers.topic("topic", 2)
    second = brokers.sources.nodes[1]
    control = Watched()
    stall = Held(second, ApiKey.FETCH)
    running = brokers.start(brokers.open_ranges(), control)
    stall.wait_for_one()
    stuck.plain(1)
    for _ in range(20):
        well.plain(1)
        wait_until(lambda: is_copied(brokers, well, 0))
    wait_until(lambda: any("source cluster's broker" in reason for reason in list(control.waited_for)))
    stall.release()
    wait_until(lambda: is_copied(brokers, stuck, 1))
    end(running, control)


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
def test_partition_refused_for_long_is_copied_by_a_worker_of_its_own(
    brokers: TwoBrokers, error: ErrorCode
) -> None:
    well, stuck = brokers.topic("topic", 2)
    control = Watched()
    refused = brokers.destination.faults.add(ApiKey.PRODUCE, times=None, error=error, partition=1)
    running = brokers.start(brokers.open_ranges(), control)
    stuck.plain(1)
    assert brokers.destination.faults.wait_for(refused, 2)
    for _ in range(30):
        well.plain(1)
        wait_until(lambda: is_copied(brokers, well, 0))
    assert brokers.destination.faults.wait_for(refused, 5)  # it is tried again and again
    assert not brokers.copied("topic", 1)
    wait_until(lambda: error.name in str(control.waited_for))
    brokers.destination.faults.clear()
    wait_until(lambda: is_copied(brokers, stuck, 1))
    wait_until(lambda: _last_word_of(control, 1) is None)
    end(running, control)
    brokers.assert_exact(well)
    brokers.assert_exact(stuck, partition=1)


def test_slow_alignment_of_a_failed_partition_does_not_delay_the_others(brokers: TwoBrokers) -> None:
    """An alignment requests offsets from the leader, and a slow one costs its own partition time only."""
    well, stuck = brokers.topic("topic", 2)
    control = Watched()
    refused = brokers.destination.faults.add(
        ApiKey.PRODUCE, times=None, error=ErrorCode.NOT_ENOUGH_REPLICAS, partition=1
    )
    running = brokers.start(brokers.open_ranges(), control)
    stuck.plain(1)
    assert brokers.destination.faults.wait_for(refused, 1)
    slow = Held(brokers.destination, ApiKey.OFFSET_FOR_LEADER_EPOCH, partition=1)
    slow.wait_for_one()
    for _ in range(10):
        well.plain(1)
        wait_until(lambda: is_copied(brokers, well, 0))
    slow.release()
    brokers.destination.faults.clear()
    wait_until(lambda: is_copied(brokers, stuck, 1))
    end(running, control)


def test_end_of_a_task_does_not_wait_for_a_stalled_leader(two_nodes: TwoBrokers) -> None:
    brokers = two_nodes.with_timing(end_patience_s=0.3)
    well, stuck = brokers.topic("topic", 2)
    second = brokers.destinations.nodes[1]
    control = Watched()
    stall = second.faults.add(ApiKey.PRODUCE, times=None, delay_s=STALL_S)
    running = brokers.start(brokers.open_ranges(), control)
    stuck.plain(1)
    well.plain(3)
    assert second.faults.wait_for(stall)
    wait_until(lambda: is_copied(brokers, well, 0))
    end(running, control)
    assert brokers.position("topic", 0).source_offset == 3
    assert brokers.position("topic", 1).source_offset == 0  # its outcome is not known


def test_end_of_a_task_does_not_wait_for_a_leader_that_stalls_at_connect(two_nodes: TwoBrokers) -> None:
    # The worker is not left behind, it ends.
    brokers = two_nodes.with_timing(end_patience_s=0.3)
    well, _ = brokers.topic("topic", 2)
    second = brokers.destinations.nodes[1]
    control = Watched()
    stall = Held(second, ApiKey.API_VERSIONS)
    running = brokers.start(brokers.open_ranges(), control)
    well.plain(3)
    stall.wait_for_one()
    wait_until(lambda: is_copied(brokers, well, 0))
    end(running, control)
    stall.release()


def begin_and_stall_commits(
    brokers: TwoBrokers, history: History, control: Watched
) -> tuple[TwoBrokers, RunningTask, Held]:
    """Copy one record. Then the coordinator answers no commit, and one is under way."""
    hasty = brokers.with_timing(commit_interval_s=0.01)
    running = hasty.start(hasty.open_ranges(), control)
    history.plain(1)
    wait_until(lambda: is_copied(brokers, history, 0))
    stall = Held(brokers.source, ApiKey.OFFSET_COMMIT)
    history.plain(1)
    stall.wait_for_one()
    return hasty, running, stall


def test_coordinator_that_does_not_answer_delays_no_copy(brokers: TwoBrokers) -> None:
    (well,) = brokers.topic("topic", 1)
    control = Watched()
    _, running, stall = begin_and_stall_commits(brokers, well, control)
    for _ in range(20):
        well.plain(1)
        wait_until(lambda: is_copied(brokers, well, 0))
    stall.release()
    end(running, control)
    assert brokers.position("topic", 0).source_offset == 22


def test_coordinator_that_does_not_answer_holds_up_only_records_behind_a_new_gap(brokers: TwoBrokers) -> None:
    brokers = brokers.with_timing(plan_patience_s=0.05)
    dense, behind_gap = brokers.topic("topic", 2)
    dense.plain(1)
    behind_gap.plain(1)
    control = Watched()
    running = brokers.start(brokers.open_ranges(), control)
    wait_until(lambda: is_copied(brokers, dense, 0) and is_copied(brokers, behind_gap, 1))
    stall = Held(brokers.source, ApiKey.OFFSET_COMMIT)
    behind_gap.gap(1).plain(1)
    stall.wait_for_one()
    for _ in range(20):
        dense.plain(1)
        wait_until(lambda: is_copied(brokers, dense, 0))
    assert len(brokers.copied("topic", 1)) == 1
    stall.release()
    wait_until(lambda: is_copied(brokers, behind_gap, 1))
    end(running, control)
    brokers.assert_exact(behind_gap, partition=1)


def test_pair_that_is_silent_for_long_gives_its_requests_up(brokers: TwoBrokers) -> None:
    """They may wait for one partition alone; the others continue without it."""
    histories = brokers.topic("topic", 2)
    for history in histories:
        history.plain(2)
    patient = replace(brokers.settings.destination, request_timeout_ms=600_000)
    brokers = brokers.with_settings(destination=patient)
    brokers = brokers.with_timing(stalled_s=0.1, isolate_s=0.3)
    stall = brokers.destination.faults.add(ApiKey.PRODUCE, drop="before", delay_s=600.0, times=1)
    control = Watched()
    running = brokers.start(brokers.open_ranges(), control)
    assert brokers.destination.faults.wait_for(stall)
    for number, history in enumerate(histories):
        wait_until(lambda number=number, history=history: is_copied(brokers, history, number))  # type: ignore[misc]
    assert any("to answer" in each for each in control.waited_for)
    end(running, control)

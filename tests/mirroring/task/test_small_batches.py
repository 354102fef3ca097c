"""A worker finds that requests limit it, and its mirror says so once."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.client.lot import Lot
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.model.copy_options import Rebatch
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.model.reports import SmallBatches, TaskReport
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.task.small_batches import SmallBatchesWatch
from shoal.protocol.apis import ApiKey
from shoal.records import ENTRY
from shoal.topic_partition import TopicPartition
from tests.clocks import Time
from tests.two_brokers import History, TwoBrokers, Watched, wait_until

FOUND = SmallBatches(1_000, 50_000)


def lot(batches: int, size: int = 1_000, together_bytes: int = 0) -> Lot:
    entries = ENTRY.pack(size, 1, 0, 0) * batches
    views = [memoryview(bytes(size * batches))]
    return Lot(TopicPartition("topic", 0), views, entries, 0, together_bytes=together_bytes)


def watched(*lots: Lot, sending_s: float = 8.0) -> SmallBatches | None:
    """Let ten seconds pass with lots that were sent in so much of them."""
    clock = Time()
    watch = SmallBatchesWatch(10.0, clock)
    watch.see(lots, sending_s)
    assert watch.take_finding() is None  # it has not looked for long
    clock.now += 10
    found = watch.take_finding()
    clock.now += 10
    watch.see(lots, sending_s)
    assert (watch.take_finding() is None) == (found is not None)  # once
    return found


def test_worker_that_spends_its_time_with_small_batches_is_limited_by_requests() -> None:
    assert watched(lot(400), lot(100)) == FOUND


@pytest.mark.parametrize(
    ("lots", "sending_s"),
    [
        ([lot(500)], 5.0),
        ([lot(500, together_bytes=1 << 20)], 9.0),
        ([lot(50, size=20_000)], 9.0),
        ([lot(5)] * 100, 9.0),
        ([], 0.0),
    ],
    ids=["waits for the source", "several in a request", "large", "few at a time", "nothing"],
)
def test_worker_with_another_limit_finds_nothing(lots: list[Lot], sending_s: float) -> None:
    clock = Time()
    watch = SmallBatchesWatch(10.0, clock)
    for _ in range(3):
        watch.see(lots, sending_s)
        clock.now += 10
        assert watch.take_finding() is None


def test_mirror_passes_on_the_first_finding_of_its_tasks() -> None:
    told: list[SmallBatches] = []
    schedule = PartitionSchedule({}, Metrics(), on_small_batches=told.append)
    for report in (TaskReport(), TaskReport(small_batches=FOUND), TaskReport(small_batches=FOUND)):
        schedule.apply(TaskReport.from_json_object(report.to_json_object()))
    assert told == [FOUND]


def findings(control: Watched) -> list[Any]:
    return [each["small_batches"] for each in control.reports if each["small_batches"]]


@pytest.mark.parametrize("rebatch", [None, Rebatch(64 * 1024)], ids=["copied", "joined"])
def test_task_reports_that_a_slow_broker_limits_it_by_its_requests(
    brokers: TwoBrokers, history: History, rebatch: Rebatch | None
) -> None:
    brokers = brokers.with_timing(small_batches_s=0.3).with_settings(rebatch=rebatch)
    history.plain(*[1] * 300)
    brokers.destination.faults.add(ApiKey.PRODUCE, times=None, delay_s=0.005)
    control = Watched()
    running = brokers.start([CopyRange("topic", 0, "topic", 0, OPEN_END)], control)
    wait_until(lambda: brokers.copied() == history.committed)
    history.plain(*[1] * 100)
    wait_until(lambda: brokers.copied() == history.committed)
    control.request_stop()
    running.result()
    assert len(findings(control)) == (rebatch is None)
    assert all(0 < average < 200 and rate > 0 for average, rate in findings(control))

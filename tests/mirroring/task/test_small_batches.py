"""A worker finds that requests limit it, and its mirror says so once."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.json_values import read_value, to_json
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.model.copy_options import Rebatch
from shoal.mirroring.model.reports import SmallBatches, TaskReport
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.protocol.apis import ApiKey
from tests.world.clusters import TwoBrokers
from tests.world.control import Watched
from tests.world.history import History
from tests.world.waiting import wait_until

FOUND = SmallBatches(1_000, 50_000)


def test_mirror_passes_on_the_first_finding_of_its_tasks() -> None:
    told: list[SmallBatches] = []
    schedule = PartitionSchedule({}, Metrics(), on_small_batches=told.append)
    for report in (TaskReport(), TaskReport(small_batches=FOUND), TaskReport(small_batches=FOUND)):
        schedule.apply(read_value(TaskReport, to_json(report)))
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
    running = brokers.start(brokers.open_ranges(), control)
    wait_until(lambda: brokers.copied() == history.committed)
    history.plain(*[1] * 100)
    wait_until(lambda: brokers.copied() == history.committed)
    control.request_stop()
    running.result()
    assert len(findings(control)) == (rebatch is None)
    assert all(0 < average < 200 and rate > 0 for average, rate in findings(control))

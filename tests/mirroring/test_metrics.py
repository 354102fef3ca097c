"""One registry for all that is shown: counts only grow, whatever the tasks' reports are made of."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from two_brokers import ABORT, History, TwoBrokers

from shoal.client.metadata import TopicPartition
from shoal.mirroring.control import Uncontrolled
from shoal.mirroring.metrics import Metrics
from shoal.mirroring.progress import PartitionIncident
from shoal.mirroring.runs import AcknowledgedRun

pytestmark = pytest.mark.timeout(30)

FIRST, SECOND = TopicPartition("topic", 0), TopicPartition("topic", 1)


def report(partition: TopicPartition = FIRST, **changes: Any) -> dict[str, Any]:
    of_partition: dict[str, Any] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "source_offset": 5,
        "end_offset": 10,
        "decisions": {"copied": 2},
        "records": 4,
        "bytes_out": 100,
        "retries": 1,
        "runs": [],
        "waiting_for": None,
        "stopped": None,
        "incidents": [],
    }
    return {
        "partitions": [of_partition | changes],
        "bytes_in": 120,
        "cpu_s": 0.5,
        "peak_rss_bytes": 1000,
    }


def test_incidents_are_told_in_the_order_in_which_they_came() -> None:
    metrics = Metrics()
    metrics.apply(report(SECOND, incidents=[["source-retention", "its log begins at 7", 3, True]]))
    metrics.apply(report(incidents=[["foreign-records", "somebody else", 0, False]]))
    metrics.apply(report())
    assert metrics.progress().incidents == (
        PartitionIncident("topic-1", "source-retention", "its log begins at 7", 3, True),
        PartitionIncident("topic-0", "foreign-records", "somebody else", 0, False),
    )


def test_counts_add_up_and_positions_are_the_last_ones() -> None:
    metrics = Metrics()
    metrics.apply(report())
    metrics.apply(report(source_offset=8, end_offset=9))
    metrics.apply(report(SECOND, decisions={"copied": 1, "dropped: control": 3}))
    progress = metrics.progress()
    assert (progress.records, progress.bytes_out, progress.bytes_in, progress.retries) == (12, 300, 360, 3)
    assert progress.batches == 5
    assert progress.decisions == {"copied": 5, "dropped: control": 3}
    assert progress.lag_records == (9 - 8) + (10 - 5)  # an end may move back: a log lost its tail
    assert (metrics.task_cpu_s, metrics.task_peak_rss_bytes) == (1.5, 1000)


def test_what_is_expected_counts_before_a_task_speaks_of_it() -> None:
    metrics = Metrics()
    metrics.expect({FIRST: 3}, {FIRST: 10, SECOND: 7})
    progress = metrics.progress()
    assert (progress.partitions, progress.done, progress.lag_records) == (2, 0, 7)
    metrics.apply(report(source_offset=10))
    assert metrics.progress().done == 1


def test_a_partition_that_was_not_aligned_yet_keeps_its_position() -> None:
    metrics = Metrics()
    metrics.expect({FIRST: 3}, {FIRST: 10})
    metrics.apply(report(source_offset=None))
    assert metrics.progress().lag_records == 7


def test_waiting_ends_and_stopped_stays() -> None:
    metrics = Metrics()
    metrics.apply(report(waiting_for="a leader"))
    assert metrics.progress().waiting == {"topic-0": "a leader"}
    metrics.apply(report(stopped=[5, "because"]))
    metrics.apply(report())
    progress = metrics.progress()
    assert progress.waiting == {}
    assert progress.stopped == {"topic-0": "because"}
    assert progress.lag_records == 0  # nobody works on it
    (stopped,) = metrics.stopped()
    assert str(stopped) == "topic-0 stopped at source offset 5: because"


def test_runs_are_passed_on_outside_the_lock() -> None:
    seen: list[tuple[TopicPartition, AcknowledgedRun]] = []
    done: list[int] = []

    def on_run(partition: TopicPartition, run: AcknowledgedRun) -> None:
        seen.append((partition, run))
        done.append(metrics.progress().done)

    metrics = Metrics(on_run)
    metrics.apply(report(runs=[[0, 5, 100], [7, 9, 105]]))
    assert seen == [(FIRST, AcknowledgedRun(0, 5, 100)), (FIRST, AcknowledgedRun(7, 9, 105))]
    assert done == [0, 0]


def test_reports_of_many_threads_are_all_counted() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(200):
            metrics.apply(report())
            metrics.progress()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.progress().records == 4 * 200 * 4


def test_a_rate_is_that_of_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("shoal.mirroring.metrics.time.monotonic", lambda: now)
    metrics = Metrics()
    for _ in range(20):
        now += 1.0
        metrics.apply(report(records=10, source_offset=0, end_offset=1000))
        metrics.progress()
    assert metrics.progress().records_per_s == pytest.approx(10.0, rel=0.15)
    assert metrics.progress().remaining_s == pytest.approx(100.0, rel=0.15)
    now += 60.0
    assert metrics.progress().records_per_s == pytest.approx(0.0, abs=0.5)


def test_a_lane_s_reports_are_what_the_registry_takes(brokers: TwoBrokers, history: History) -> None:
    history.plain(3, 2).transaction(2, ends=ABORT)
    metrics = Metrics()

    class Reporting(Uncontrolled):
        def report(self, message: dict[str, Any]) -> None:
            metrics.apply(message)

    brokers.run(control=Reporting())
    progress = metrics.progress()
    assert (progress.records, progress.batches, progress.done, progress.partitions) == (5, 2, 1, 1)
    assert progress.lag_records == 0
    assert progress.bytes_out < progress.bytes_in
    assert metrics.copying_s is not None

"""One registry for all that is shown: counts only grow, whatever the tasks' reports are made of."""

from __future__ import annotations

import re
from typing import Any

import pytest

from shoal.mirroring.model.acknowledged import AcknowledgedRun
from shoal.mirroring.model.incidents import Incident, IncidentKind
from shoal.mirroring.model.partition import PartitionStatus
from shoal.mirroring.model.progress import HeldBack
from shoal.mirroring.model.reports import left_out_report
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.timing import Clock
from shoal.topic_partition import TopicPartition
from tests.metrics_fed import FIRST, SECOND, WORKER, report


def test_incidents_are_shown_in_their_order() -> None:
    metrics = Metrics()
    metrics.apply(report(SECOND, incidents=[["source-retention", "its log begins at 7", 3, True]]))
    metrics.apply(report(incidents=[["foreign-records", "somebody else", 0, False]]))
    metrics.apply(report())
    assert metrics.progress().incidents == (
        Incident(IncidentKind.SOURCE_RETENTION, "its log begins at 7", 3, True, "topic-1"),
        Incident(IncidentKind.FOREIGN_RECORDS, "somebody else", partition="topic-0"),
    )


def test_newest_100_incidents_are_shown_and_the_others_counted() -> None:
    metrics = Metrics()
    for number in range(250):
        metrics.apply(report(incidents=[["foreign-records", f"number {number}", 2, number != 0]]))
    progress = metrics.progress()
    assert [each.reason for each in progress.incidents] == [f"number {number}" for number in range(150, 250)]
    assert (progress.incidents_before, progress.lost_before) == (150, 149 * 2)
    assert metrics.state([]).incidents[IncidentKind.FOREIGN_RECORDS.value] == 250


def test_expected_partitions_count_before_the_first_report() -> None:
    metrics = Metrics()
    metrics.expect({FIRST: 3}, {FIRST: 10, SECOND: 7})
    progress = metrics.progress()
    assert (progress.partitions, progress.states["up to date"], progress.lag_records) == (2, 0, 7)
    metrics.apply(report(source_offset=10))
    assert metrics.progress().states["up to date"] == 1


def test_waiting_ends_with_a_report_and_stopped_remains() -> None:
    metrics = Metrics()
    metrics.apply(report(waiting_for="a leader"))
    assert metrics.progress().waiting == {"topic-0": "a leader"}
    metrics.apply(report(stopped=[5, "because"]))
    metrics.apply(report())
    progress = metrics.progress()
    assert progress.waiting == {}
    assert progress.stopped == {"topic-0": "because"}
    assert progress.lag_records == 10 - 5  # the missing records
    (stopped,) = metrics.stopped()
    assert re.search(r"topic-0.*stopped.*5", str(stopped))


class Hand:
    """The registry's time, in the test's hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def metrics(self) -> Metrics:
        """Return a registry whose clocks are this one."""
        return Metrics(clock=Clock(lambda: self.now, lambda: self.now))

    def ms_ago(self, milliseconds: int) -> int:
        return int(self.now * 1000) - milliseconds


@pytest.fixture
def clock() -> Hand:
    return Hand()


def lag_s(metrics: Metrics, clock: Hand, partition: TopicPartition = FIRST) -> float | None:
    lag: float | None = metrics.partitions()[partition].lag_s
    assert lag == metrics.progress().lag_s  # of one partition the largest is its own
    return lag


def test_lag_in_time_is_unknown_until_position_and_end_are(clock: Hand) -> None:
    metrics = clock.metrics()
    assert metrics.progress().lag_s is None
    metrics.apply(report(source_offset=None))
    assert lag_s(metrics, clock) is None
    metrics = clock.metrics()
    metrics.apply(report(end_offset=None))
    assert lag_s(metrics, clock) is None
    metrics.apply(report())
    assert lag_s(metrics, clock) == 0.0


def test_lag_in_time_is_the_age_of_the_newest_mirrored_record(clock: Hand) -> None:
    metrics = clock.metrics()
    metrics.apply(report(newest_ms=clock.ms_ago(7_500)))
    assert lag_s(metrics, clock) == pytest.approx(7.5)
    clock.now += 2
    assert lag_s(metrics, clock) == pytest.approx(9.5)
    metrics.apply(report(source_offset=10, newest_ms=clock.ms_ago(1_000)))
    assert lag_s(metrics, clock) == 0.0


def test_lag_in_time_after_a_pause_begins_with_its_end(clock: Hand) -> None:
    metrics = clock.metrics()
    metrics.apply(report(source_offset=10, newest_ms=clock.ms_ago(10)))
    clock.now += 3_600
    metrics.apply(report(source_offset=10, end_offset=11))
    assert lag_s(metrics, clock) == 0.0
    clock.now += 3
    metrics.apply(report(source_offset=10, end_offset=12))
    assert lag_s(metrics, clock) == pytest.approx(3.0)
    metrics.apply(report(source_offset=11, end_offset=12, newest_ms=clock.ms_ago(500)))
    assert lag_s(metrics, clock) == pytest.approx(0.5)


def test_lag_in_time_without_copied_records_counts_from_the_known_end(clock: Hand) -> None:
    metrics = clock.metrics()
    metrics.expect({FIRST: 0}, {FIRST: 10})
    clock.now += 40
    metrics.apply(report(source_offset=0, waiting_for="a leader"))
    assert lag_s(metrics, clock) == pytest.approx(40.0)


def test_timestamp_from_the_future_does_not_count_for_the_lag(clock: Hand) -> None:
    metrics = clock.metrics()
    metrics.apply(report(newest_ms=clock.ms_ago(5_000)))
    metrics.apply(report(source_offset=6, newest_ms=clock.ms_ago(-3_600_000)))
    assert lag_s(metrics, clock) == pytest.approx(5.0)
    metrics.apply(report(source_offset=7, newest_ms=clock.ms_ago(-20)))  # two clocks are never the same
    assert lag_s(metrics, clock) == 0.0


def test_each_partition_is_in_one_state_and_states_add_up() -> None:
    metrics = Metrics()
    metrics.expect({}, {TopicPartition("topic", 9): 5})
    done: dict[str, Any] = {"source_offset": 10, "end_offset": 10}
    metrics.apply(report(TopicPartition("topic", 2), **done))
    metrics.apply(report(TopicPartition("topic", 3), **done, waiting_for="a leader"))
    metrics.apply(report(TopicPartition("topic", 4), **done, stopped=[10, "because"]))
    metrics.apply(report(TopicPartition("topic", 5), **done, waiting_for="a leader"))
    metrics.apply(report(TopicPartition("topic", 5), **done, stopped=[10, "because"], waiting_for="a leader"))
    metrics.apply(report(TopicPartition("topic", 6)))
    progress = metrics.progress()
    assert progress.states == {"up to date": 1, "behind": 1, "waiting": 1, "stopped": 2, "unknown": 1}
    assert sum(progress.states.values()) == progress.partitions == 6
    assert (len(progress.waiting), len(progress.stopped)) == (1, 2)


@pytest.mark.parametrize(
    ("stopped", "end", "missing"),
    [
        ([800, "recreated", 0], 20, 20),
        ([800, "recreated", 0], 900, 900),
        ([800, "the source lost its tail", 700], 750, 50),
        ([800, "the destination lost its tail", 650], 800, 150),
        ([800, "a damaged batch"], 810, 10),
    ],
)
def test_lag_of_a_stopped_partition_has_missing_records(stopped: list[Any], end: int, missing: int) -> None:
    metrics = Metrics()
    metrics.apply(report(source_offset=800, end_offset=800))
    metrics.apply(report(source_offset=800, end_offset=800, stopped=stopped))
    metrics.expect({}, {FIRST: end})
    assert metrics.progress().lag_records == missing
    assert metrics.progress().lag_s is not None


def test_source_that_ends_before_the_position_counts_as_missing_whole() -> None:
    metrics = Metrics()
    metrics.apply(report(source_offset=800, end_offset=800, waiting_for="the topic to be there again"))
    metrics.expect({}, {FIRST: 20})
    assert metrics.progress().lag_records == 20


def test_partition_without_known_end_is_not_up_to_date() -> None:
    metrics = Metrics()
    metrics.expect({FIRST: 0}, {FIRST: 400})
    metrics.apply(report(source_offset=0, end_offset=None))
    assert metrics.progress().states["behind"] == 1
    metrics.apply(report(SECOND, source_offset=7, end_offset=None))
    metrics.expect({}, {SECOND: 7})
    metrics.apply(report(SECOND, source_offset=9, end_offset=None))
    assert metrics.partitions()[SECOND].lag_records == 0


def test_end_older_than_the_position_is_no_lag() -> None:
    metrics = Metrics()
    metrics.apply(report(source_offset=30, end_offset=30))
    metrics.expect({}, {FIRST: 20})
    assert metrics.progress().lag_records == 0


def test_remaining_time_excludes_stopped_partitions() -> None:
    metrics = Metrics()
    metrics.apply(report(source_offset=0, end_offset=1_000_000, stopped=[0, "because"]))
    metrics.apply(report(SECOND, source_offset=10, end_offset=10, records=1000))
    assert metrics.progress().remaining_s == 0.0


def test_open_transaction_is_shown_with_its_records_and_begin(clock: Hand) -> None:
    metrics = clock.metrics()
    metrics.apply(report(source_offset=10, held_back=0))
    assert (metrics.progress().held_back, metrics.progress().held_back_records) == ({}, 0)
    began = clock.now
    metrics.apply(report(source_offset=10, held_back=3))
    clock.now += 5
    metrics.apply(report(source_offset=10, held_back=8))
    metrics.apply(report(SECOND, source_offset=10, held_back=2))
    progress = metrics.progress()
    assert progress.held_back == {"topic-0": HeldBack(8, began), "topic-1": HeldBack(2, clock.now)}
    assert (progress.held_back_records, progress.lag_records) == (10, 0)
    metrics.apply(report(source_offset=12, end_offset=12, held_back=8))
    assert metrics.progress().held_back["topic-0"].since == clock.now, "another one is the first open one"
    metrics.apply(report(source_offset=20, end_offset=20, held_back=0))
    metrics.forget([SECOND])
    assert (metrics.progress().held_back, metrics.progress().held_back_records) == ({}, 0)


def test_retried_partition_counts_as_stopped_until_it_moves() -> None:
    metrics = Metrics()
    metrics.apply(report(stopped=[5, "too large"]))
    metrics.apply(report())
    assert metrics.progress().stopped, "nothing was tried again"
    metrics.try_again([FIRST])
    metrics.apply(report(source_offset=None))
    metrics.apply(report(source_offset=5, end_offset=10))
    assert metrics.progress().stopped == {"topic-0": "too large"}
    metrics.apply(report(source_offset=6, end_offset=10))
    assert (metrics.progress().stopped, metrics.progress().states["behind"]) == ({}, 1)


def test_stopped_partition_without_records_left_is_healed() -> None:
    metrics = Metrics()
    metrics.apply(report(source_offset=10, stopped=[10, "not authorized"]))
    metrics.try_again([FIRST])
    metrics.apply(report(source_offset=10, waiting_for="a leader"))
    assert metrics.progress().stopped
    metrics.apply(report(source_offset=10))
    assert metrics.progress().states["up to date"] == 1


def test_partition_stopped_again_is_not_retried() -> None:
    metrics = Metrics()
    metrics.apply(report(stopped=[5, "too large"]))
    metrics.try_again([FIRST])
    metrics.apply(report(stopped=[5, "too large"]))
    metrics.apply(report(source_offset=9))
    assert metrics.progress().stopped == {"topic-0": "too large"}


def test_commit_time_is_that_of_its_first_report(clock: Hand) -> None:
    metrics = clock.metrics()
    metrics.apply(report())
    assert metrics.partitions()[FIRST].committed_at is None
    metrics.apply(report(committed_offset=5))
    committed_at = clock.now
    clock.now += 10
    metrics.apply(report(committed_offset=5))
    metrics.apply(report(committed_offset=None))
    assert metrics.partitions()[FIRST].committed_at == committed_at
    metrics.apply(report(committed_offset=6))
    assert metrics.partitions()[FIRST].committed_at == clock.now


def test_counts_of_partitions_are_separate() -> None:
    metrics = Metrics()
    metrics.apply(report(decisions={"copied": 2, "dropped: empty": 1}))
    metrics.apply(report(decisions={"copied": 1, "rebuilt: holes": 1}))
    metrics.apply(report(SECOND))
    row = metrics.partitions()[FIRST]
    first = row.counts
    assert first.decisions == {"copied": 3, "dropped: empty": 1, "rebuilt: holes": 1}
    assert (first.records, first.batches, first.bytes_in, first.bytes_out, first.retries) == (
        8,
        4,
        220,
        200,
        2,
    )
    assert row.process == WORKER
    assert metrics.partitions()[SECOND].counts.batches == 2


def test_counts_of_a_task_replace_its_earlier_ones() -> None:
    metrics = Metrics()
    for records, decisions in ((4, {"copied": 2}), (4, {"copied": 2}), (9, {"copied": 3, "cropped": 1})):
        metrics.apply(report(since=7, records=records, decisions=decisions))
    progress = metrics.progress()
    assert (progress.records, progress.decisions) == (9, {"copied": 3, "cropped": 1})
    assert metrics.partitions()[FIRST].counts.counts() == metrics.progress().counts()


def test_late_report_of_a_former_task_counts_only_its_news() -> None:
    metrics = Metrics()
    metrics.apply(report(since=7, records=4))
    metrics.apply(report(since=8, records=1))
    metrics.apply(report(since=7, records=6))
    metrics.apply(report(since=8, records=3))
    assert metrics.progress().records == 6 + 3


def test_report_of_the_driver_has_no_counts() -> None:
    metrics = Metrics()
    metrics.apply(report(since=7, records=4))
    metrics.apply(left_out_report({FIRST: "no leader"}))
    metrics.apply(report(since=7, records=5))
    assert metrics.progress().records == 5


def test_partition_that_another_mirror_took_is_not_counted_twice() -> None:
    metrics = Metrics()
    metrics.apply(report(since=7, records=4))
    metrics.forget([FIRST])
    assert (metrics.progress().records, metrics.progress().partitions) == (4, 0)
    metrics.apply(report(since=7, records=5))
    metrics.apply(report(since=8, records=2))
    assert metrics.progress().records == 5 + 2


def test_totals_are_the_sums_of_the_partitions() -> None:
    metrics = Metrics()
    metrics.expect({FIRST: 0, SECOND: 2}, {FIRST: 9, SECOND: 2})
    for number in range(6):
        partition = TopicPartition("topic", number % 3)
        metrics.apply(report(partition, source_offset=number, end_offset=9 - number))
    metrics.apply(report(SECOND, stopped=[5, "because"]))
    partitions = metrics.partitions().values()
    progress = metrics.progress()
    assert progress.records == sum(each.counts.records for each in partitions)
    assert progress.batches == sum(each.counts.batches for each in partitions)
    assert progress.bytes_out == sum(each.counts.bytes_out for each in partitions)
    assert progress.retries == sum(each.counts.retries for each in partitions)
    assert progress.lag_records == sum(each.lag_records or 0 for each in partitions)
    for state in PartitionStatus:
        assert progress.states[state.value] == sum(each.state is state for each in partitions)


def test_position_of_a_task_takes_precedence_over_the_driver() -> None:
    metrics = Metrics()
    metrics.apply(report(source_offset=8))
    metrics.expect({FIRST: 3, SECOND: 0}, {FIRST: 12, SECOND: 4})
    assert metrics.partitions()[FIRST].lag_records == 4
    assert metrics.progress().lag_records == 4 + 4


def test_silent_workers_are_omitted(clock: Hand) -> None:
    metrics = clock.metrics()
    metrics.apply(report())
    metrics.apply(report(process={"name": "other:1", "cpu_s": 2.0}))
    metrics.apply(report(process={"rss_bytes": 800}))
    usages = {each.name: (each.cpu_s, each.rss_bytes) for each in metrics.workers()}
    assert usages == {WORKER: (1.0, 800), "other:1": (2.0, 900)}
    clock.now += 40
    metrics.apply(report())
    clock.now += 40
    assert [each.name for each in metrics.workers()] == [WORKER]


def test_runs_are_forwarded_outside_the_lock() -> None:
    seen: list[tuple[TopicPartition, AcknowledgedRun]] = []
    done: list[int] = []

    def on_run(partition: TopicPartition, run: AcknowledgedRun) -> None:
        seen.append((partition, run))
        done.append(metrics.progress().states["up to date"])

    metrics = Metrics(on_run)
    metrics.apply(report(runs=[[0, 5, 100], [7, 9, 105]]))
    assert seen == [(FIRST, AcknowledgedRun(0, 5, 100)), (FIRST, AcknowledgedRun(7, 9, 105))]
    assert done == [0, 0]


def test_rate_covers_the_last_seconds(clock: Hand) -> None:
    metrics = clock.metrics()
    for _ in range(20):
        clock.now += 1.0
        metrics.apply(report(records=10, source_offset=0, end_offset=1000))
        metrics.progress()
    assert metrics.progress().records_per_s == pytest.approx(10.0, rel=0.15)
    assert metrics.progress().remaining_s == pytest.approx(100.0, rel=0.15)
    clock.now += 60.0
    assert metrics.progress().records_per_s == pytest.approx(0.0, abs=0.5)


def test_waiting_commit_shows_its_partition_as_waiting() -> None:
    metrics = Metrics()
    metrics.apply(report(source_offset=10, end_offset=10, commit_waits_for="a coordinator"))
    assert metrics.progress().waiting == {"topic-0": "a coordinator"}
    assert metrics.partitions()[FIRST].state is PartitionStatus.WAITING
    metrics.apply(report())
    assert metrics.progress().waiting == {}

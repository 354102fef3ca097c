"""The metrics for Prometheus: read by its own library, over HTTP, from a registry that a real task feeds."""

from __future__ import annotations

import time
import urllib.request
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shoal.mirroring.control.protocol import process_name
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.monitoring.door import Door
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.monitoring.processes import LocalProcesses
from shoal.mirroring.monitoring.shown import exposition, metrics_routes
from shoal.net.address import Address
from shoal.timing import Clock
from shoal.topic_partition import TopicPartition
from tests.metrics_fed import FIRST, JVM, SECOND, WORKER, busy_metrics, report, samples
from tests.world.clusters import TwoBrokers
from tests.world.control import Watched
from tests.world.history import ABORT, History

LOCAL = Address("127.0.0.1", 0)


def value(metrics: Metrics, name: str, partition: TopicPartition = FIRST, **labels: str) -> float | None:
    labels |= {"topic": partition.topic, "partition": str(partition.partition)}
    return samples(metrics).get((name, tuple(sorted(labels.items()))))


def scrape(address: Address) -> Any:
    return urllib.request.urlopen(f"http://{address}/metrics", timeout=10)


def test_unknown_values_are_not_served() -> None:
    metrics = Metrics()
    metrics.apply(report(source_offset=None))
    assert value(metrics, "shoal_lag_records") is None
    assert value(metrics, "shoal_lag_seconds") is None
    assert value(metrics, "shoal_last_commit_timestamp_seconds") is None
    assert samples(metrics)["shoal_partitions", (("state", "unknown"),)] == 1


def test_stuck_partitions_are_served_by_name_and_counted() -> None:
    third = TopicPartition("topic", 2)
    metrics = busy_metrics()
    metrics.apply(report(third, source_offset=10))
    waiting, stopped = (
        {
            partition: value(metrics, f"shoal_partition_{what}", partition)
            for partition in (FIRST, SECOND, third)
        }
        for what in ("waiting", "stopped")
    )
    assert waiting == {FIRST: 1, SECOND: 0, third: 0}
    assert stopped == {FIRST: 0, SECOND: 1, third: 0}
    states = {
        dict(labels)["state"]: n
        for (name, labels), n in samples(metrics).items()
        if name == "shoal_partitions"
    }
    assert states == {"up to date": 1, "behind": 0, "waiting": 1, "stopped": 1, "unknown": 0}
    metrics.apply(report())
    assert value(metrics, "shoal_partition_waiting") == 0


def test_incidents_of_every_kind_are_served_from_0() -> None:
    metrics = Metrics()
    before = samples(metrics)
    metrics.apply(report(incidents=[["source-retention", "its log begins at 7", 3, True]]))
    after = samples(metrics)
    kinds = {dict(labels)["kind"] for name, labels in before if name == "shoal_incidents_total"}
    assert kinds == {each.value for each in IncidentKind}
    retention = ("shoal_incidents_total", (("kind", "source-retention"),))
    assert (before[retention], after[retention]) == (0, 1)


def test_processes_are_served_by_name_and_role() -> None:
    served = samples(busy_metrics())
    worker = (("process", WORKER), ("role", "worker"))
    driver = (("process", process_name()), ("role", "driver"))
    assert served["shoal_process_cpu_seconds_total", worker] == 1.0
    assert served["shoal_process_resident_memory_bytes", worker] == 900
    assert served["shoal_process_resident_memory_bytes", driver] > 1024 * 1024
    assert served["process_cpu_seconds_total", ()] > 0
    assert served["process_resident_memory_bytes", ()] > 1024 * 1024


def test_exposition_serves_pauses_and_their_time_of_a_jvm_alone() -> None:
    served = samples(busy_metrics())
    jvm = (("process", JVM.name), ("role", "jvm"))
    assert served["shoal_jvm_gc_collections_total", jvm] == 7
    assert served["shoal_jvm_gc_seconds_total", jvm] == 0.25
    # This process may have a JVM of its own by now, for another test.
    assert {labels[1] for name, labels in served if name.startswith("shoal_jvm_gc_")} == {jvm[1]}


def test_time_of_the_last_task_report_is_served_without_planners() -> None:
    name = ("shoal_last_report_timestamp_seconds", ())
    metrics = Metrics()
    metrics.apply(TaskReport())
    assert name not in samples(metrics)
    metrics.apply(replace(report(), partitions=()))
    assert samples(metrics)[name] == pytest.approx(time.time(), abs=10)


def test_metric_names_follow_prometheus_s_conventions() -> None:
    text = exposition(busy_metrics(), LocalProcesses()).decode()
    families = list(text_string_to_metric_families(text))
    names = [each.name for each in families]
    assert len(set(names)) == len(names)
    for family in families:
        assert family.documentation, family.name
        assert family.name.startswith(("shoal_", "process_"))
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name
    units = {each.rpartition("_")[2] for each in names if each.endswith(("seconds", "bytes", "ms", "mb"))}
    assert units == {"seconds", "bytes"}


def test_label_with_any_characters_is_escaped() -> None:
    metrics = Metrics()
    odd = TopicPartition('a "quoted" name\\', 0)
    metrics.apply(report(odd))
    assert value(metrics, "shoal_records_total", odd) == 4


def test_changes_and_growing_lag_are_served_at_the_next_scrape() -> None:
    now = 1_800_000_000.0
    metrics = Metrics(clock=Clock(wall=lambda: now))

    def lines(name: str) -> list[str]:
        return [
            each
            for each in exposition(metrics, LocalProcesses()).decode().splitlines()
            if each.startswith(name + "{")
        ]

    metrics.apply(report(source_offset=10))
    assert lines("shoal_records_total") == ['shoal_records_total{topic="topic",partition="0"} 4']
    metrics.apply(report(source_offset=10))
    assert lines("shoal_records_total") == ['shoal_records_total{topic="topic",partition="0"} 8']
    metrics.apply(report(source_offset=9))
    assert lines("shoal_lag_seconds") == ['shoal_lag_seconds{topic="topic",partition="0"} 0.0']
    now += 3
    assert lines("shoal_lag_seconds") == ['shoal_lag_seconds{topic="topic",partition="0"} 3.0']


def test_metrics_by_topic_are_the_totals_of_its_partitions() -> None:
    metrics = busy_metrics()
    metrics.apply(report(TopicPartition("other", 0), source_offset=10, committed_offset=10))
    served = samples(metrics, by_topic=True)
    topic, other = (("topic", "topic"),), (("topic", "other"),)
    assert served["shoal_records_total", topic] == 8
    assert served["shoal_decisions_total", (("decision", "copied"), *topic)] == 3
    assert served["shoal_lag_records", topic] == 10
    assert served["shoal_partition_stopped", topic] == served["shoal_partition_waiting", topic] == 1
    assert served["shoal_lag_records", other] == served["shoal_lag_seconds", other] == 0
    assert not [labels for _, labels in served if "partition" in dict(labels)]
    by_partition = samples(metrics)
    assert {name for name, _ in served} == {name for name, _ in by_partition}


def test_reports_of_a_task_are_served_over_http(brokers: TwoBrokers, history: History) -> None:
    history.plain(3, 2).transaction(2, ends=ABORT)
    metrics = Metrics()

    class Reporting(Watched):
        def report(self, report: TaskReport) -> None:
            metrics.apply(report)

    door = Door()
    address = door.listen("metrics", LOCAL, metrics_routes(metrics, LocalProcesses()))
    with door:
        assert b"topic=" not in scrape(address).read()
        brokers.run(control=Reporting())
        with scrape(address) as answer:
            assert answer.headers["Content-Type"] == "text/plain;version=0.0.4;charset=utf-8"
            text = answer.read().decode()
    served = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "topic" in sample.labels
    }
    source = brokers.source.log("topic")
    copied = brokers.destination.log("topic")
    assert served["shoal_records_total", "topic", "0"] == copied.log_end_offset == 5
    assert served["shoal_batches_total", "topic", "0"] == 2
    assert served["shoal_decisions_total", "topic", "0", "dropped: aborted"] == 1
    assert served["shoal_decisions_total", "topic", "0", "dropped: control"] == 1
    assert served["shoal_lag_records", "topic", "0"] == 0
    assert served["shoal_lag_seconds", "topic", "0"] == 0
    assert source.log_end_offset > 5
    fetched, produced = (
        served[f"shoal_{name}_bytes_total", "topic", "0"] for name in ("fetched", "produced")
    )
    assert 0 < produced < fetched
    assert served["shoal_last_commit_timestamp_seconds", "topic", "0"] == pytest.approx(time.time(), abs=20)

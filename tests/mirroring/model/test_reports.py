"""Reports on the control connection: the keys that driver and tasks agree on, in both directions."""

from __future__ import annotations

import json
from collections import Counter

from shoal.errors import PartitionStopped
from shoal.mirroring.model.handover import Left
from shoal.mirroring.model.incidents import Incident, IncidentKind
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.model.reports import (
    CopyReport,
    Counters,
    ProcessReport,
    TaskReport,
    left_out_report,
)
from shoal.records import Decision
from shoal.topic_partition import TopicPartition

PARTITION = TopicPartition("topic", 3)

POSITION = MirrorPosition(7, 7, ProducerIdentity(1, 0), (0, 0), None, None, "rules")

FULL = TaskReport(
    [
        CopyReport(
            PARTITION,
            source_offset=7,
            end_offset=9,
            committed_offset=5,
            newest_ms=1_700_000_000_000,
            waiting_for="a leader",
            commit_waits_for="a coordinator",
            held_back=2,
            stopped=PartitionStopped("topic", 3, 7, "too large", 8, can_heal=False),
            counters=Counters(
                since=1_700,
                records=4,
                batches=2,
                bytes_in=110,
                bytes_out=100,
                retries=1,
                decisions=Counter({Decision.COPY: 2, Decision.DROP_CONTROL: 1}),
                runs=[[3, 7, 1003]],
                incidents=[Incident(IncidentKind.SOURCE_RETENTION, "its log begins at 7", 3, continued=True)],
            ),
        )
    ],
    process=ProcessReport("host:7", 0.5, 900, 1000, is_native=True),
    begin_generation=True,
    leaves={PARTITION: Left(5, is_done=True)},
)

WIRE = {
    "partitions": [
        {
            "topic": "topic",
            "partition": 3,
            "source_offset": 7,
            "end_offset": 9,
            "committed_offset": 5,
            "newest_ms": 1_700_000_000_000,
            "waiting_for": "a leader",
            "commit_waits_for": "a coordinator",
            "held_back": 2,
            "stopped": [7, "too large", 8, False],
            "since": 1_700,
            "decisions": {"copied": 2, "dropped: control": 1},
            "records": 4,
            "batches": 2,
            "bytes_in": 110,
            "bytes_out": 100,
            "retries": 1,
            "runs": [[3, 7, 1003]],
            "incidents": [["source-retention", "its log begins at 7", 3, True]],
        }
    ],
    "process": {"name": "host:7", "cpu_s": 0.5, "rss_bytes": 900, "peak_rss_bytes": 1000, "is_native": True},
    "begin_generation": True,
    "leaves": [[["topic", 3], {"entry": 5, "is_settled": True, "is_done": True}]],
    "small_batches": None,
}


def test_full_task_report_has_literal_keys() -> None:
    assert FULL.to_json_object() == WIRE


def test_task_report_is_read_back_from_the_wire() -> None:
    assert TaskReport.from_json_object(json.loads(json.dumps(WIRE))).to_json_object() == WIRE


def test_report_of_skipped_partitions_has_no_process() -> None:
    sent = left_out_report({PARTITION: "no leader"}).to_json_object()
    read = TaskReport.from_json_object(json.loads(json.dumps(sent)))
    assert read == TaskReport([CopyReport(PARTITION, waiting_for="no leader")])


def test_report_has_all_counts_and_only_new_incidents() -> None:
    counters = Counters.begun()
    incident = Incident(IncidentKind.SOURCE_RETENTION, "its log begins at 7", 3, continued=True)
    counters.records, counters.incidents, counters.runs = 4, [incident], [[3, 7, 1003]]
    counters.decisions[Decision.COPY] += 2
    first = counters.take()
    counters.decisions[Decision.COPY] += 1
    second = counters.take()
    assert (first.since, first.records, first.decisions, first.incidents) == (
        counters.since,
        4,
        {"copied": 2},
        [incident],
    )
    assert (second.since, second.records, second.decisions) == (counters.since, 4, {"copied": 3})
    assert (second.incidents, second.runs) == ([], [])

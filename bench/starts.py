"""The cost of finding the positions of partitions: the row ``aligning``.

A task does this at a mirror's start, for all of its partitions together. Two real clusters have topics of the
same names, and three starts are measured, each with new connections:

- *first start*: there are no positions, and the copies are empty;
- *with positions*: everything is mirrored, and the group has the positions;
- *positions lost*: everything is mirrored, and only the copies show it.
"""

import itertools
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple
from unittest import mock

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from bench.report import say
from bench.rows import delete_topics
from rig import KafkaCluster, create_topic
from shoal.client.admin import init_producer_id
from shoal.client.cluster import Cluster, patiently
from shoal.client.config import ClientConfig
from shoal.client.connection import Connection
from shoal.client.coordinator import MemberId
from shoal.mirroring.assignment import end_offsets, partitions_of
from shoal.mirroring.control import Uncontrolled, WorkerControl
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.positions import GroupPositions
from shoal.mirroring.task.committer import Commits
from shoal.mirroring.task.partition import PartitionCopy
from shoal.mirroring.task.resume import Watch, resume_partitions
from shoal.mirroring.task.task import run_copy_task
from shoal.protocol.apis import ApiKey

__all__ = ["Start", "measure_starts"]

_PER_TOPIC = 50
_RECORDS = 20
_GROUP = "bench.starts"


class Start(NamedTuple):
    """One start of one task, with all partitions."""

    name: str
    wall_s: float
    cpu_s: float
    requests: Counter[str]


def _start(name: str, settings: CopySettings, ranges: Sequence[CopyRange]) -> Start:
    """Align all partitions as one task does."""
    requests: Counter[str] = Counter()
    send_parts = Connection.send_parts

    def counted(
        connection: Connection, parts: Sequence[bytes | memoryview], api_key: ApiKey, *rest: Any
    ) -> None:
        requests[api_key.name] += 1
        send_parts(connection, parts, api_key, *rest)

    copies = [PartitionCopy(each, settings) for each in ranges]
    with (
        Cluster(settings.source) as source,
        Cluster(settings.destination) as destination,
        Commits(settings, WorkerControl(Uncontrolled()), None) as commits,
        mock.patch.object(Connection, "send_parts", counted),
    ):
        before, began = time.process_time(), time.perf_counter()
        source.refresh({each.source.topic for each in copies})
        destination.refresh({each.destination.topic for each in copies})
        watch = Watch(lambda: False, lambda copy, reason: None, lambda: None)
        errors = resume_partitions(copies, source, destination, commits, settings, watch)
        measured = Start(name, time.perf_counter() - began, time.process_time() - before, requests)
    assert not errors, next(iter(errors.values()))
    say(f"{name}: {measured.wall_s:.1f} s, {dict(requests)}")
    return measured


def _load(source: KafkaCluster, topics: Sequence[str]) -> None:
    """Send each partition a batch of distinct records."""
    producer = Producer(
        {"bootstrap.servers": source.bootstrap, "linger.ms": 500, "compression.type": "lz4", "log_level": 0}
    )
    for topic, number, record in itertools.product(topics, range(_PER_TOPIC), range(_RECORDS)):
        producer.produce(topic, f"{topic} {number} {record}".encode(), partition=number)
        producer.poll(0)
    assert producer.flush(60) == 0


def measure_starts(
    source: KafkaCluster, destination: KafkaCluster, partitions: int, repeat: int
) -> list[Start]:
    """Measure a first start once, and each of the others this often."""
    topics = [f"starts_{number}" for number in range(-(-partitions // _PER_TOPIC))]
    say("creating topics")
    for cluster, topic in itertools.product((source, destination), topics):
        create_topic(cluster.bootstrap, topic, _PER_TOPIC, config={"compression.type": "producer"})
    _load(source, topics)
    ours, theirs = (
        ClientConfig.from_properties(name, {"bootstrap.servers": cluster.bootstrap})[0]
        for name, cluster in (("source", source), ("destination", destination))
    )
    settings = CopySettings(ours, theirs, _GROUP, rules="bench")
    with Cluster(ours) as asked:
        ends = end_offsets(asked, partitions_of(asked, topics), ours.isolation_level)
        positions = GroupPositions(asked, _GROUP, MemberId)
        patiently(lambda: positions.read_all(list(ends)), patience_s=60.0)  # the cluster's first group
    with Cluster(theirs) as asked:
        patiently(lambda: init_producer_id(asked), patience_s=60.0)  # the cluster's first producer
    ranges = [CopyRange(each.topic, each.partition, each.topic, 0, end) for each, end in ends.items()]
    measured = [_start("first start", settings, ranges)]
    say("copying")
    assert run_copy_task(ranges, settings, Uncontrolled()).complete
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    for _ in range(repeat):
        measured.append(_start("with positions", settings, ranges))
    for _ in range(repeat):
        admin.delete_consumer_groups([_GROUP])[_GROUP].result(60)
        measured.append(_start("positions lost", settings, ranges))
    for cluster in (source, destination):
        delete_topics(cluster, *topics)
    return measured

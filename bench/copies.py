"""The cost of comparing all copies with the committed positions: ``python -m bench.copies --help``.

A mirror compares them at its start and at each ``--refresh``. Two real clusters have topics of the same
names, a group has a position for each partition, and no record is lost: the usual case. Each comparison uses
connections that are already open, as in a running mirror.
"""

import argparse
import itertools
import os
import statistics
import time
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

from bench.report import machine, markdown, say
from rig import BENCH_JVM, KAFKA_VERSION, KafkaCluster, create_topic, two_clusters
from shoal.client.cluster import Cluster, patiently
from shoal.client.config import ClientConfig
from shoal.client.connection import Connection
from shoal.client.coordinator import MemberId
from shoal.mirroring.assignment import partitions_of
from shoal.mirroring.driver.copy_watch import CopyWatch
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.model.first_start import FirstStart
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.positions import GroupPositions
from shoal.mirroring.prepare.create import PreparedTopic
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition

_RESULTS = Path(__file__).parent / "results.md"
_PER_TOPIC = 50
_GROUP = "bench.copies"


def _commit_positions(source: Cluster, destination: Cluster, partitions: list[TopicPartition]) -> None:
    """Commit the positions of a mirror whose topics are all empty."""
    ids = [cluster.refresh().topics for cluster in (source, destination)]
    positions = {}
    for number, partition in enumerate(partitions):
        ours, theirs = (str(each[partition.topic].topic_id) for each in ids)
        positions[partition] = MirrorPosition(
            0, 0, ProducerIdentity(number, 0), (0, 0), None, ours, theirs, 0, "0" * 16, -1,
            FirstStart.now().selecting(TopicSelection("copies.*")),
        )  # fmt: skip
    group = GroupPositions(source, _GROUP, MemberId)
    refused = patiently(lambda: group.commit(positions), patience_s=60.0)  # the cluster's first group
    assert not refused, refused


class _Comparison(NamedTuple):
    wall_ms: float
    cpu_ms: float
    requests: Counter[str]


def _compare(watch: CopyWatch, source: Cluster, destination: Cluster) -> _Comparison:
    requests: Counter[str] = Counter()
    send = Connection.request

    def counted(connection: Connection, api_key: ApiKey, **fields: Any) -> Any:
        requests[api_key.name] += 1
        return send(connection, api_key, **fields)

    with mock.patch.object(Connection, "request", counted):
        before, began = time.process_time(), time.perf_counter()
        watch.look(source, destination)
        return _Comparison(
            1000 * (time.perf_counter() - began), 1000 * (time.process_time() - before), requests
        )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.copies", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=1200, help="number (default: 1200)")
    parser.add_argument("--repeat", type=int, default=20, help="number of comparisons (default: 20)")
    parser.add_argument("--append", action="store_true", help=f"append the table to bench/{_RESULTS.name}")
    return parser.parse_args()


def _measure(clusters: Sequence[KafkaCluster], partitions: int, repeat: int) -> list[_Comparison]:
    topics = [f"copies_{number}" for number in range(partitions // _PER_TOPIC)]
    say("creating topics")
    for cluster, topic in itertools.product(clusters, topics):
        create_topic(cluster.bootstrap, topic, _PER_TOPIC, config={"compression.type": "producer"})
    ours, theirs = (
        ClientConfig.from_properties(name, {"bootstrap.servers": cluster.bootstrap})[0]
        for name, cluster in zip(("source", "destination"), clusters, strict=True)
    )
    with Cluster(ours) as source, Cluster(theirs) as destination:
        mirrored = partitions_of(source, topics)
        _commit_positions(source, destination, mirrored)
        found: list[object] = []

        def create_again(topics: Collection[str]) -> Collection[str]:
            found.extend(topics)
            return ()

        metrics = Metrics()
        metrics.expect({}, dict.fromkeys(mirrored, 0))
        prepared = {topic: PreparedTopic(topic, topic, _PER_TOPIC, created=False) for topic in topics}
        schedule = PartitionSchedule(prepared, metrics)
        tasks: Any = SimpleNamespace(give_up=found.extend, end_window=lambda: None)
        watch = CopyWatch(
            MirrorOptions(ours, theirs, TopicSelection("copies.*")),
            _GROUP,
            schedule,
            tasks,
            create_again,
            *[found.append] * 2,
        )
        _compare(watch, source, destination)  # opens the connections
        measured = [_compare(watch, source, destination) for _ in range(repeat)]
    assert not found, found
    return measured


def table(partitions: int, measured: Sequence[_Comparison]) -> str:
    """Return a Markdown table of the comparisons: the medians, and the extremes."""
    requests = ", ".join(f"{count} {name}" for name, count in sorted(measured[-1].requests.items()))
    times = ([each.wall_ms for each in measured], [each.cpu_ms for each in measured])
    cells = (f"{statistics.median(each):.0f} ({min(each):.0f} to {max(each):.0f})" for each in times)
    head = ("partitions", "requests", "wall, ms", "CPU of the driver, ms")
    return markdown(head, [(f"{partitions:,}", requests, *cells)])


def main() -> None:
    arguments = _parse()
    load_before = os.getloadavg()[0]
    patient = {"broker.session.timeout.ms": 9000, "broker.heartbeat.interval.ms": 2000}
    with two_clusters(jvm=BENCH_JVM, heap="1g", config=patient) as clusters:
        measured = _measure(clusters, arguments.partitions, arguments.repeat)
    loads = f"{load_before:.1f} and {os.getloadavg()[0]:.1f}"
    text = f"{table(arguments.partitions, measured)}\n\nLoad of the machine, before and after: {loads}."
    print(text)
    if arguments.append:
        head = (
            "## All copies compared with their positions\n\n"
            f"`python -m bench.copies --partitions {arguments.partitions}`, {machine()}; two Kafka "
            f"{KAFKA_VERSION} brokers (KRaft) on this machine.\n"
            f"The work of a mirror at its start and at each `--refresh`; the median of {arguments.repeat}, "
            "and the extremes.\n"
        )
        with _RESULTS.open("a") as file:
            file.write(f"\n{head}\n{text}\n")


if __name__ == "__main__":
    main()

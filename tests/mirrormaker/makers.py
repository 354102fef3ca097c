"""Mirror makers in threads, between two embedded brokers."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from shoal.cli import make_parser
from shoal.cli.mirror_maker import parse
from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import fetch_offsets
from shoal.client.config import ClientConfig
from shoal.mirroring.model.progress import Progress, Summary
from shoal.spark.api import run_mirror_maker
from shoal.timing import DEFAULT_TIMING, Timing
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.world.batches import Content
from tests.world.contents import content_of
from tests.world.waiting import InThread

CONSUMER = """\
bootstrap.servers={servers}
group.id=makers
auto.offset.reset=earliest
key.deserializer=org.apache.kafka.common.serialization.ByteArrayDeserializer
session.timeout.ms=6000
heartbeat.interval.ms=100
metadata.max.age.ms=300
"""

PRODUCER = "bootstrap.servers={servers}\n"


class Maker(InThread[Summary]):
    """A mirror maker that runs in a thread."""

    def __init__(self, arguments: list[str], timing: Timing) -> None:
        options = parse(make_parser().parse_args(["mirror-maker", *arguments]))
        interval_s = options.mirror.timing.commit_interval_s
        hurried = replace(timing, shortest_refresh_s=0.2, commit_interval_s=interval_s)
        self.options = replace(options, mirror=replace(options.mirror, refresh_s=0.2, timing=hurried))
        self.stop = threading.Event()
        self.warnings: list[str] = []
        self.notices: list[str] = []
        self.progress: list[Progress] = []
        super().__init__(self._run)

    def _run(self) -> Summary:
        return run_mirror_maker(
            self.options,
            on_progress=self.progress.append,
            on_warning=self.warnings.append,
            on_notice=self.notices.append,
            stop=self.stop,
        )

    @property
    def partitions(self) -> int:
        """How many are its own, as it said last; -1 before it has said anything."""
        return self.progress[-1].partitions if self.progress else -1

    def end(self) -> Summary:
        """Stop the run, and return its summary or raise its error."""
        self.stop.set()
        return self.result()


class Makers:
    """Two clusters, and mirror makers between them."""

    def __init__(self, directory: Path, source: Broker, destination: Broker) -> None:
        self.directory = directory
        self.source = source
        self.destination = destination
        self._sent = 0
        self.know_anew()
        self.consumer_properties = ""
        self.producer_properties = ""

    def start(self, *arguments: str, include: str = "orders", timing: Timing = DEFAULT_TIMING) -> Maker:
        files = {
            "consumer": CONSUMER.format(servers=self.source.bootstrap) + self.consumer_properties,
            "producer": PRODUCER.format(servers=self.destination.bootstrap) + self.producer_properties,
        }
        given = []
        for name, text in files.items():
            file = self.directory / f"{name}-{time.monotonic_ns()}.properties"
            file.write_text(text)
            given += [f"--{name}.config", str(file)]
        return Maker([*given, "--include", include, "--offset.commit.interval.ms", "50", *arguments], timing)

    def produce(self, count: int, topic: str = "orders", partitions: int = 3, size: int = 20) -> None:
        for _ in range(count):
            self._producer.produce(
                topic,
                b"value %d " % self._sent + b"x" * size,
                b"key %d" % self._sent,
                partition=self._sent % partitions,
                headers={"number": b"%d" % self._sent},
            )
            self._sent += 1
        assert self._producer.flush(20) == 0

    def know_anew(self) -> None:
        """Use the current number of partitions for later records."""
        # A producer may outlive its broker, and would log that.
        config = {"bootstrap.servers": self.source.bootstrap, "linger.ms": 0, "log_level": 0}
        self._producer = Producer(config)

    def of_source(self, topic: str = "orders") -> list[list[Content]]:
        return [content_of(log) for log in self.source.topics.topic(topic).logs]

    def copied(self, topic: str = "orders") -> list[list[Content]]:
        found = self.destination.topics.get(topic)
        return [content_of(log) for log in found.logs] if found else []

    def is_copied(self, topic: str = "orders") -> bool:
        return self.copied(topic) == self.of_source(topic)

    def committed(self, topic: str = "orders", partitions: int = 3) -> dict[int, int]:
        config = config_of(self.source)
        with Cluster(config) as cluster:
            asked = [TopicPartition(topic, number) for number in range(partitions)]
            found = fetch_offsets(cluster, "makers", asked)
        return {partition.partition: each.offset for partition, each in found.items()}

    def ends(self, topic: str = "orders") -> dict[int, int]:
        logs = self.source.topics.topic(topic).logs
        return {number: log.log_end_offset for number, log in enumerate(logs)}


def config_of(broker: Broker) -> ClientConfig:
    return ClientConfig.from_properties("source", {"bootstrap.servers": broker.bootstrap})[0]


BOTH_WAYS = pytest.mark.parametrize("way", [["--use.raw.bytes"], []], ids=["raw", "deep"])

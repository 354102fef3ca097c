"""Real brokers that forget producers, and the resulting counter-examples of the model.

Records 30 days old expire with the default ``producer.id.expiration.ms``, a
day. Only the check, by default every ten minutes, comes sooner here; or the
broker is restarted, and forgets at once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from rig import KafkaCluster
from rig.load import create_topic, load_batch
from rig.made_records import random_records
from rig.read import read_topic
from rig.wait import wait_until
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.error_codes import ErrorCode
from shoal.mirroring.control import Control
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.ranges import CopyRange
from shoal.net.address import parse_bootstrap
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal.timing import DEFAULT_TIMING
from shoal.topic_partition import TopicPartition
from tests import batches
from tests.copying import TaskResult, Uncontrolled, run_copy_task
from tests.late_requests import Doomed, Requests, arrive
from tests.two_brokers import Killed

NOW_MS = int(time.time() * 1000)
OLD_MS = NOW_MS - 30 * 86_400_000

#: Limits a request to a few of them.
SMALL_BUFFER = 65_536 + 1_000


@pytest.fixture(scope="module")
def forgetful_cluster() -> Iterator[KafkaCluster]:
    """A cluster that checks for expired producers every 50 ms."""
    with KafkaCluster(config={"producer.id.expiration.check.interval.ms": 50}) as cluster:
        yield cluster


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    return Requests(monkeypatch)


class Mirror:
    """Workers between one partition at the source and one at the destination."""

    def __init__(self, source: KafkaCluster, destination: KafkaCluster, topic: str, timestamp: int) -> None:
        self._from, self._to, self._topic = source, destination, topic
        self._random = Random(topic)
        self._timestamp = timestamp
        self._loaded = 0
        for bootstrap in {source.bootstrap, destination.bootstrap}:
            create_topic(bootstrap, topic)
        self.settings = CopySettings(
            ClientConfig("source", tuple(parse_bootstrap(source.bootstrap))),
            ClientConfig("destination", tuple(parse_bootstrap(destination.bootstrap))),
            f"mirror of {topic}",
            "rules",
            fetch_buffer_bytes=SMALL_BUFFER,
            timing=replace(DEFAULT_TIMING, commit_interval_s=60.0),
        )

    def load(self, count: int) -> None:
        for _ in range(count):
            records = random_records(self._random, self._random.randint(1, 3), 200)
            load_batch(
                self._from.bootstrap,
                self._topic,
                0,
                [replace(each, timestamp=self._timestamp) for each in records],
            )
            self._loaded += len(records)

    def run(self, control: Control | None = None) -> TaskResult:
        return run_copy_task(
            [CopyRange(self._topic, 0, self._topic, 0, self._loaded)],
            self.settings,
            control or Uncontrolled(),
        )

    def remembered(self) -> list[int]:
        """Return the producer ids that the destination's leader remembers."""
        request = request_class(ApiKey.DESCRIBE_PRODUCERS)
        with Cluster(self.settings.destination) as cluster:
            cluster.refresh({self._topic})
            leader = cluster.partition(TopicPartition(self._topic, 0)).leader
            response = cluster.connection(leader).request(
                ApiKey.DESCRIBE_PRODUCERS,
                topics=[request.TopicRequest(name=self._topic, partition_indexes=[0])],
            )
        (described,) = response.topics[0].partitions
        assert described.error_code == 0
        return [each.producer_id for each in described.active_producers]

    def await_forgotten(self) -> None:
        wait_until(lambda: not self.remembered(), "the destination to forget its producers")

    def copied(self) -> int:
        return len(read_topic(self._to.bootstrap, self._topic)[0])


def test_late_request_of_a_forgotten_producer_is_seen_by_the_next_task(
    source_cluster: KafkaCluster, forgetful_cluster: KafkaCluster, topic: str, requests: Requests
) -> None:
    """The model's "a zombie": no client can prevent it."""
    mirror = Mirror(source_cluster, forgetful_cluster, topic, OLD_MS)
    mirror.load(3)
    requests.die_after(0)
    with pytest.raises(Killed):
        mirror.run(Doomed(requests))
    left_behind = requests.sent[-1:]
    assert mirror.run().complete
    mirror.await_forgotten()
    before = mirror.copied()
    (outcome,) = arrive(mirror.settings.destination, left_behind, topic)
    assert (outcome.error_code, outcome.base_offset) == (0, before)
    mirror.load(1)
    doubled = mirror.copied()
    mirror.await_forgotten()
    (stopped,) = mirror.run().stopped
    assert re.search(r"another.*program", stopped.reason)
    assert mirror.copied() == doubled


@pytest.mark.parametrize(
    ("timestamp", "error"),
    [(NOW_MS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (OLD_MS, ErrorCode.NONE)],
    ids=["remembers", "forgot"],
)
def test_request_of_a_forgotten_producer_without_predecessor_is_accepted(
    forgetful_cluster: KafkaCluster, topic: str, timestamp: int, error: ErrorCode
) -> None:
    """The model's "two in flight": the reason for which old records go one request at a time."""
    mirror = Mirror(forgetful_cluster, forgetful_cluster, topic, timestamp)
    requests = [
        bytes(batches.batch(base_timestamp=timestamp, producer_id=7, producer_epoch=0, base_sequence=number))
        for number in range(3)
    ]
    arrive(mirror.settings.destination, requests[:1], topic)
    if timestamp == OLD_MS:
        mirror.await_forgotten()
    (outcome,) = arrive(mirror.settings.destination, requests[2:], topic)
    assert outcome.error_code == error

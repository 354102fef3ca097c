"""Fetch sessions with a real broker: many partitions, few of which have records (KIP-227)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rig import KafkaCluster, create_topic, load_plain
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig, IsolationLevel
from shoal.client.fetch import Fetcher, FetchFrom
from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.records import split, verify_crc
from shoal.topic_partition import TopicPartition

PARTITIONS = 60
BUSY = 4
RECORDS_PER_BATCH = 16


class Reader:
    """Reads all partitions of a topic from their beginnings, in one session."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        leader = cluster.partition(TopicPartition(topic, 0)).leader
        self.connection = cluster.connect(leader)
        self.fetcher = Fetcher(
            self.connection,
            buffer_bytes=512 * 1024,
            isolation_level=IsolationLevel.READ_COMMITTED,
            max_wait_ms=200,
        )
        self.positions = {TopicPartition(topic, number): 0 for number in range(PARTITIONS)}
        self.full_requests = 0
        for partition in self.positions:
            self.fetcher.ask(FetchFrom(partition, 0))

    def turn(self) -> set[TopicPartition]:
        """Fetch once; return the partitions that are in the response."""
        assert self.fetcher.send()
        response = self.fetcher.receive()
        assert response.error_code == ErrorCode.NONE
        self.full_requests += self.fetcher.first_of_full is not None
        for fetched in response.partitions:
            assert fetched.error_code == ErrorCode.NONE
            partition = TopicPartition(fetched.topic, fetched.partition)
            before = self.positions[partition]
            for batch in split(fetched.record_set):
                verify_crc(batch)
                assert batch.header.base_offset == self.positions[partition]
                self.positions[partition] = batch.header.next_offset
            if self.positions[partition] > before:
                self.fetcher.ask(FetchFrom(partition, self.positions[partition]))
        return {TopicPartition(each.topic, each.partition) for each in response.partitions}

    def read_up_to(self, count: int) -> None:
        for _ in range(2_000):
            if sum(self.positions.values()) == count:
                return
            self.turn()
        raise AssertionError(f"{sum(self.positions.values())} of {count} records came")


@pytest.fixture
def reader(source_cluster: KafkaCluster, topic: str) -> Iterator[Reader]:
    create_topic(source_cluster.bootstrap, topic, PARTITIONS)
    config, _ = ClientConfig.from_properties("source", {"bootstrap.servers": source_cluster.bootstrap})
    with Cluster(config) as cluster:
        cluster.refresh([topic])
        opened = Reader(cluster, topic)
        yield opened
        opened.fetcher.close()


def load(cluster: KafkaCluster, topic: str, megabytes: int) -> int:
    """Load the first partitions of a topic; return the number of records."""
    return load_plain(
        cluster.bootstrap,
        topic,
        "lz4",
        RECORDS_PER_BATCH,
        megabytes * 1_000_000,
        partitions=BUSY,
        create=False,
    )


def test_session_returns_all_records_once_in_order(
    reader: Reader, source_cluster: KafkaCluster, topic: str
) -> None:
    assert reader.turn() == reader.positions.keys()
    assert reader.turn() == set()
    count = 0
    for _ in range(2):
        count += load(source_cluster, topic, 4)
        reader.read_up_to(count)
        assert reader.turn() == set()
    assert reader.full_requests == 1


def test_session_lost_by_the_broker_begins_again(
    reader: Reader, source_cluster: KafkaCluster, topic: str
) -> None:
    reader.turn()
    other = reader.fetcher._connection
    session_id = reader.fetcher._session_id
    assert session_id > 0
    # If a request names a session with the last epoch, the broker closes it.
    other.request(
        ApiKey.FETCH,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        isolation_level=0,
        session_id=session_id,
        session_epoch=-1,
        topics=[],
        forgotten_topics_data=[],
        rack_id="",
    )
    count = load(source_cluster, topic, 1)
    reader.read_up_to(count)
    assert reader.full_requests == 2
    assert reader.fetcher._session_id not in (0, session_id)


def test_forgotten_partition_can_be_fetched_again(
    reader: Reader, source_cluster: KafkaCluster, topic: str
) -> None:
    first = TopicPartition(topic, 0)
    reader.turn()
    reader.fetcher.forget(first)
    reader.turn()
    count = load(source_cluster, topic, 1)
    while reader.turn():
        pass
    assert reader.positions[first] == 0 < sum(reader.positions.values()) < count
    reader.fetcher.ask(FetchFrom(first, 0))
    reader.read_up_to(count)
    assert reader.full_requests == 1

"""Fetches on one connection, as the copy loop makes them."""

from __future__ import annotations

from shoal.client.cluster import Cluster
from shoal.client.config import IsolationLevel
from shoal.client.fetch import Fetcher, FetchFrom
from shoal.error_codes import ErrorCode
from shoal.records import split
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests import batches
from tests.two_brokers import History

FIRST, SECOND = TopicPartition("topic", 0), TopicPartition("topic", 1)
OTHER = TopicPartition("other", 0)


def fetcher_of(broker: Broker, cluster: Cluster, buffer_bytes: int = 4 * 1024 * 1024) -> Fetcher:
    return Fetcher(
        cluster.connect(broker.node_id),
        buffer_bytes=buffer_bytes,
        isolation_level=IsolationLevel.READ_COMMITTED,
        max_wait_ms=10,
    )


def ask(fetcher: Fetcher, *wanted: FetchFrom) -> None:
    for each in wanted:
        fetcher.ask(each)
    assert fetcher.send()


def test_response_has_partitions_of_several_topics(broker: Broker, cluster: Cluster) -> None:
    for partition in (FIRST, SECOND, OTHER):
        History(broker.log(*partition)).plain(2)
    fetcher = fetcher_of(broker, cluster)
    assert not fetcher.is_waiting
    ask(fetcher, FetchFrom(FIRST, 0), FetchFrom(OTHER, 0), FetchFrom(SECOND, 2))
    assert fetcher.is_waiting
    response = fetcher.receive()
    assert not fetcher.is_waiting
    found = {(each.topic, each.partition): each for each in response.partitions}
    assert [len(list(split(found[each].record_set))) for each in (FIRST, SECOND, OTHER)] == [1, 0, 1]
    assert found[FIRST].high_watermark == 2
    fetcher.close()


def test_record_sets_are_writable_in_place(broker: Broker, cluster: Cluster) -> None:
    History(broker.log(*FIRST)).plain(2)
    fetcher = fetcher_of(broker, cluster)
    ask(fetcher, FetchFrom(FIRST, 0))
    (fetched,) = fetcher.receive().partitions
    assert not fetched.record_set.readonly
    fetcher.close()


def test_batch_larger_than_the_buffer_is_returned_whole(broker: Broker, cluster: Cluster) -> None:
    history = History(broker.log(*FIRST))
    history.store(batches.batch([bytes(900_000)]))
    history.plain(1)
    fetcher = fetcher_of(broker, cluster, buffer_bytes=70_000)
    for offset, size in ((0, 900_000), (1, 1)):
        ask(fetcher, FetchFrom(FIRST, offset))
        (fetched,) = fetcher.receive().partitions
        assert next(split(fetched.record_set)).header.base_offset == offset
        assert len(fetched.record_set) > size
    fetcher.close()


def test_response_of_several_batches_fits_the_buffer(broker: Broker, cluster: Cluster) -> None:
    for partition in (FIRST, SECOND, OTHER):
        History(broker.log(*partition)).plain(*[100] * 100)
    fetcher = fetcher_of(broker, cluster, buffer_bytes=65_536 + 20_000)
    ask(fetcher, *[FetchFrom(each, 0) for each in (FIRST, SECOND, OTHER)])
    assert sum(len(each.record_set) for each in fetcher.receive().partitions) <= 20_000
    fetcher.close()


def test_error_belongs_to_its_partition(broker: Broker, cluster: Cluster) -> None:
    History(broker.log(*FIRST)).plain(2)
    fetcher = fetcher_of(broker, cluster)
    ask(fetcher, FetchFrom(FIRST, 0), FetchFrom(SECOND, 99))
    found = {each.partition: each for each in fetcher.receive().partitions}
    assert found[0].error_code == ErrorCode.NONE
    assert found[1].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    fetcher.close()

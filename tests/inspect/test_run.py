"""Inspections of an embedded broker, by the client alone."""

from __future__ import annotations

import pytest

from shoal.client.cluster import Cluster
from shoal.client.offsets import LogOffsets
from shoal.error_codes import ErrorCode
from shoal.inspect import InspectOptions, InspectProgress, inspect
from shoal.inspect.facts import Facts
from shoal.inspect.reading import PartitionPlan, PartitionReading
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.inspect.topics import NOW_MS, config_of, history, inspected, topic
from tests.world import batches
from tests.world.batches import Content
from tests.world.history import ABORT, COMMIT
from tests.world.logs import may_compact


def test_ratio_is_that_of_decompressed_batches(broker: Broker) -> None:
    value = b"the same words " * 200
    log = history(broker)
    for _ in range(20):
        log.store(
            batches.batch([value] * 4, base_offset=log.next_offset, codec=Codec.GZIP, base_timestamp=NOW_MS)
        )
    report = topic(broker)
    # A partition has a fourth of the topic's number.
    sample = report.ratios["gzip"]
    assert (sample.batches, report.ratio is not None and report.ratio > 20) == (2, True)
    assert sample.uncompressed > 4 * len(value) * sample.batches


def test_batch_that_cannot_be_decompressed_counts_without_a_ratio(broker: Broker) -> None:
    history(broker).log.store(memoryview(batches.raw_batch(b"no stream", attributes=Codec.GZIP)))
    report = topic(broker)
    assert (report.batches, report.opened, report.ratio) == (1, {"gzip": 1}, None)


def test_damaged_batches_are_opened_no_more_often_than_others(broker: Broker) -> None:
    log = history(broker)
    for number in range(20):
        log.store(batches.raw_batch(b"no stream", attributes=Codec.GZIP, base_offset=number))
    assert topic(broker).opened == {"gzip": 2}


def test_first_batch_of_each_codec_is_opened(broker: Broker) -> None:
    history(broker).plain(*[9] * 10, codec=Codec.GZIP).plain(*[9] * 10, codec=Codec.ZSTD)
    report = topic(broker)
    assert (report.opened, report.ratio is None) == ({"gzip": 2, "zstd": 1}, False)


def test_compacted_log_shows_its_gaps_also_at_its_end(broker: Broker) -> None:
    log = history(broker)
    may_compact(broker, "orders")
    log.plain(2).holed(5, [1, 2]).gap(4).empty(3).gap_at_the_end(6)
    report = topic(broker)
    assert (report.removed_inside, report.removed_between, report.emptied) == (5, 10, 1)


def test_transactions_are_counted_by_their_markers(broker: Broker) -> None:
    log = history(broker)
    log.transaction(2, 1, ends=COMMIT).transaction(3, ends=ABORT, producer_id=78)
    report = topic(broker)
    assert (report.transactional, report.commits, report.aborts) == (3, 1, 1)
    assert report.open_transactions == []


def store_open(broker: Broker, age_ms: int, producer_id: int) -> None:
    """Store the records of a transaction without a marker, and others behind them."""
    log = history(broker).plain(4)
    log.base_timestamp = NOW_MS - age_ms
    flags = batches.TRANSACTIONAL
    log.store(log.batch(2, flags=flags, producer_id=producer_id, producer_epoch=0, base_sequence=0))
    log.plain(3)


@pytest.mark.parametrize("age_ms", [60_000, 3_600_000])
def test_open_transaction_that_no_coordinator_has_hangs(broker: Broker, age_ms: int) -> None:
    store_open(broker, age_ms, producer_id=9)
    (found,) = topic(broker).open_transactions
    assert (found.producer_id, found.first_offset, found.held_back) == (9, 4, 5)
    assert found.is_hanging


@pytest.mark.parametrize("age_ms", [60_000, 3_600_000])
def test_open_transaction_of_its_coordinator_does_not_hang(broker: Broker, age_ms: int) -> None:
    transactions = broker.transactions
    producer_id, epoch = transactions.init("payments", 60_000, -1, -1)
    store_open(broker, age_ms, producer_id)
    transactions.add_partitions("payments", producer_id, epoch, [("orders", 0)])
    (found,) = topic(broker).open_transactions
    assert (found.producer_id, found.is_hanging) == (producer_id, False)


def test_open_transaction_does_not_hang_while_its_coordinator_moves(broker: Broker) -> None:
    transactions = broker.transactions
    producer_id, epoch = transactions.init("payments", 60_000, -1, -1)
    store_open(broker, 0, producer_id)
    transactions.add_partitions("payments", producer_id, epoch, [("orders", 0)])
    fault = broker.faults.add(ApiKey.DESCRIBE_TRANSACTIONS, error=ErrorCode.NOT_COORDINATOR)
    (found,) = topic(broker).open_transactions
    assert (found.is_hanging, fault.hits) == (False, 1)


def test_open_transaction_in_a_partition_that_its_coordinator_lacks_hangs(broker: Broker) -> None:
    transactions = broker.transactions
    producer_id, epoch = transactions.init("payments", 60_000, -1, -1)
    store_open(broker, 0, producer_id)
    transactions.add_partitions("payments", producer_id, epoch, [("another", 0)])
    (found,) = topic(broker).open_transactions
    assert found.is_hanging


@pytest.mark.parametrize("age_ms", [60_000, 3_600_000])
def test_open_transaction_hangs_by_its_time_if_coordinators_list_none(broker: Broker, age_ms: int) -> None:
    broker.apis = {api: handler for api, handler in broker.apis.items() if api != ApiKey.LIST_TRANSACTIONS}
    store_open(broker, age_ms, producer_id=9)
    (found,) = topic(broker).open_transactions
    assert found.is_hanging is (age_ms > 15 * 60_000)


def test_open_transaction_of_an_old_broker_is_read_at_the_last_stable_offset(broker: Broker) -> None:
    broker.apis = {api: handler for api, handler in broker.apis.items() if api != ApiKey.DESCRIBE_PRODUCERS}
    log = history(broker).plain(4)
    log.store(log.batch(2, flags=batches.TRANSACTIONAL, producer_id=9, producer_epoch=0, base_sequence=0))
    (found,) = topic(broker).open_transactions
    assert (found.producer_id, found.first_offset) == (9, 4)


def test_sample_reads_a_part_from_the_start_to_the_end(broker: Broker) -> None:
    log = history(broker)
    for number in range(3000):
        log.base_timestamp = NOW_MS - 3_000_000 + 1000 * number
        log.store(log.batch(80))
    facts = topic(broker, sample=400_000)
    assert 0 < facts.size < 2_000_000
    assert 0.05 < facts.share_read < 0.4
    assert facts.oldest_ms == NOW_MS - 3_000_000 + 79
    assert facts.newest_ms is not None
    assert facts.newest_ms > NOW_MS - 200_000
    assert facts.batches * facts.scale == pytest.approx(3000, rel=0.05)


def test_partitions_of_a_topic_add_up(broker: Broker) -> None:
    for partition in range(3):
        history(broker, partitions=4, partition=partition).plain(5, producer_id=7 + partition % 2)
    report = topic(broker)
    assert (report.partitions, report.records, report.producer_ids) == (4, 15, 2)


def test_partition_that_refuses_is_not_inspected_and_the_others_are(broker: Broker) -> None:
    history(broker, "closed").plain(3)
    history(broker).plain(3)
    broker.faults.add(ApiKey.FETCH, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic="closed", times=None)
    report = inspected(broker, "closed", "orders", "absent")
    assert [each.topic for each in report.topics] == ["orders"]
    reasons = {str(each.partition): each.reason for each in report.not_inspected}
    assert set(reasons) == {"absent-0", "closed-0"}
    assert "no such topic" in reasons["absent-0"]


def test_batch_whose_offset_hides_the_rest_of_the_log_is_not_taken_for_compaction(broker: Broker) -> None:
    log = history(broker).plain(*[100] * 10)
    log.log.flip_bit(4, 2, 0)
    report = inspected(broker)
    assert (report.topics, "behind the end" in report.not_inspected[0].reason) == ((), True)


def test_log_whose_leader_answers_late_is_inspected(broker: Broker) -> None:
    history(broker).plain(3)
    broker.faults.add(ApiKey.LIST_OFFSETS, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1)
    broker.faults.add(ApiKey.FETCH, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1)
    report = inspected(broker)
    assert (report.not_inspected, report.topics[0].records) == ((), 3)


def test_retention_during_the_reading_moves_its_start(broker: Broker) -> None:
    log = history(broker).plain(*[1] * 10)
    plan = PartitionPlan(TopicPartition("orders", 0), LogOffsets(0, 10, 10), 0)
    log.log.delete_records(4)
    facts = Facts("orders", NOW_MS)
    with Cluster(config_of(broker)) as cluster:
        cluster.refresh(["orders"])
        PartitionReading(cluster, plan, facts).read(None)
    assert (facts.records, facts.runs) == (6, [(4, 10)])


def test_compressed_message_that_begins_before_the_end_is_counted(broker: Broker) -> None:
    log = history(broker).messages([Content(NOW_MS, b"key", b"value")] * 6, 1, Codec.GZIP)
    plan = PartitionPlan(TopicPartition("orders", 0), LogOffsets(0, 4, 4), 0)
    facts = Facts("orders", NOW_MS)
    with Cluster(config_of(broker)) as cluster:
        cluster.refresh(["orders"])
        PartitionReading(cluster, plan, facts).read(None)
    assert (facts.batches, facts.runs) == (1, [(0, log.next_offset)])


def test_progress_ends_with_all_partitions(broker: Broker) -> None:
    history(broker).plain(3, 3)
    seen: list[InspectProgress] = []
    inspect(config_of(broker), ["orders"], InspectOptions(sample=None), on_progress=seen.append)
    assert (seen[-1].done, seen[-1].partitions, seen[-1].batches) == (1, 1, 2)

"""``shoal inspect`` of a real Kafka cluster, against the logs as Kafka's own DumpLogSegments shows them."""

from __future__ import annotations

from collections import Counter

from rig import KafkaCluster, load_every_kind
from rig.dump import dump_partitions
from rig.load import transactional_producer
from shoal.client.config import ClientConfig
from shoal.inspect import InspectOptions, inspect
from shoal.net.address import parse_bootstrap

PARTITIONS = 2


def test_facts_are_those_of_the_log_files(source_cluster: KafkaCluster, topic: str) -> None:
    load_every_kind(source_cluster.bootstrap, topic, PARTITIONS)
    pending = transactional_producer(source_cluster.bootstrap, f"{topic}-open", "lz4", timeout_ms=600_000)
    pending.begin_transaction()
    pending.produce(topic, b"never committed", partition=1)
    pending.flush()
    config = ClientConfig("source", tuple(parse_bootstrap(source_cluster.bootstrap)))
    report = inspect(config, [topic], InspectOptions(sample=None))
    pending.abort_transaction()

    assert report.not_inspected == ()
    (facts,) = report.topics
    directories = [source_cluster.partition_dir(topic, number) for number in range(PARTITIONS)]
    stored = [each for dump in dump_partitions(directories).values() for each in dump]
    # The marker of the last abort came after the inspection.
    data = [each for each in stored if not each.is_control]
    assert (facts.batches, facts.size) == (len(data), sum(each.size for each in data))
    assert facts.records == sum(each.count for each in data)
    assert facts.codecs == Counter(each.codec for each in data)
    assert facts.transactional == sum(each.is_transactional for each in data)
    assert facts.control_batches == len(stored) - len(data) - 1
    assert {producer_id: each.batches for producer_id, each in facts.producers.items()} == Counter(
        each.producer_id for each in data
    )
    assert facts.leader_epochs == {each.partition_leader_epoch for each in data}
    assert (facts.removed_inside, facts.removed_between, facts.aborts) == (0, 0, facts.control_batches // 2)
    (opened,) = facts.open_transactions
    last = data[-1]
    assert (opened.producer_id, opened.first_offset, opened.is_hanging) == (
        last.producer_id,
        last.base_offset,
        False,
    )
    assert facts.ratio is not None
    assert facts.ratio > 1

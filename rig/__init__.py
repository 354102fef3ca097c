"""The rig: real Apache Kafka for tests and benchmarks.

The rig fetches Kafka's own jars with Maven and starts real KRaft clusters on loopback. It loads them
with confluent-kafka, and reads them back with confluent-kafka and Kafka's DumpLogSegments. The rig
never imports shoal: only other projects' code judges the results.

    with two_clusters() as (source, destination):
        expected = load_every_kind(source.bootstrap, "orders")
        ...
        assert_same_records(read_topic(source.bootstrap, "orders"),
                            read_topic(destination.bootstrap, "orders"))
"""

from rig.cluster import BENCH_JVM, KafkaCluster, start_in_parallel, two_clusters
from rig.compaction import load_compacted, load_old_compacted
from rig.dump import DumpedBatch, dump_partition, dump_partitions
from rig.jars import KAFKA_VERSION, java
from rig.load import (
    CODECS,
    create_topic,
    load_aborted_transaction,
    load_batch,
    load_committed_transaction,
    load_every_kind,
    load_plain,
)
from rig.old_kafka import OLD_CODECS, OldKafka, load_old_batch, load_without_timestamps
from rig.read import (
    assert_same_records,
    digest_topic,
    read_topic,
)
from rig.record import Record
from rig.wait import TimedOut, wait_until

__all__ = [
    "BENCH_JVM",
    "CODECS",
    "KAFKA_VERSION",
    "OLD_CODECS",
    "DumpedBatch",
    "KafkaCluster",
    "OldKafka",
    "Record",
    "TimedOut",
    "assert_same_records",
    "create_topic",
    "digest_topic",
    "dump_partition",
    "dump_partitions",
    "java",
    "load_aborted_transaction",
    "load_batch",
    "load_committed_transaction",
    "load_compacted",
    "load_every_kind",
    "load_old_batch",
    "load_old_compacted",
    "load_plain",
    "load_without_timestamps",
    "read_topic",
    "start_in_parallel",
    "two_clusters",
    "wait_until",
]

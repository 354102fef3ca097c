"""
Record the vectors: ``python -m tests.vectors.record`` in the repository's root.

Takes about half a minute. Every scenario asserts the answer that its name describes, and
the files are replaced only if all of them pass.
"""

import itertools
import struct
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from kafka.protocol.admin import (
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
)
from kafka.protocol.consumer import (
    FetchRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

from rig import (
    CODECS,
    KAFKA_VERSION,
    KafkaCluster,
    Record,
    create_topic,
    load_batch,
    read_topic,
    recreate_topic,
    start_in_parallel,
    wait_until,
)
from rig.load import Codec, transactional_producer
from tests.vectors.batches import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    TRANSACTIONAL,
    batch,
    patched,
    split,
    with_wrong_crc,
)
from tests.vectors.wire import Recorder, batch_headers, message

load_idempotent = partial(load_batch, idempotent=True)

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
SUBSCRIPTION = struct.pack(">hii", 0, 0, -1)
"""
Of a consumer, version 0: no topics, no user data; as an assignment it reads the same.

With protocol type "consumer" the coordinator parses it; what it cannot parse (seen on 4.1.0) fails
inside a timer, and the join is never answered.
"""
GROUP = "recorded-group"
NOBODYS_TOPIC_ID = uuid.UUID("6e6f2074-6f70-6963-2068-617320746869")
FETCH_VERSIONS = range(4, 13)
PRODUCE_VERSIONS = range(3, 13)

# Everything is compacted as soon as a segment is closed, and a segment soon after its first record.
CONFIG = {"log.cleaner.backoff.ms": 100, "log.initial.task.delay.ms": 100}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "200",
}


class Scenarios:
    """The recorded scenarios, one method for each subject; they run in the order of `run`."""

    def __init__(self, cluster: KafkaCluster, pair: KafkaCluster, recorder: Recorder) -> None:
        self.bootstrap = cluster.bootstrap
        self.pair = pair
        self.recorder = recorder

    def run(self) -> None:
        self.api_versions()
        self.topics()
        self.metadata()
        self.fetch_codecs()
        self.fetch_versions()
        self.fetch_limits()
        self.fetch_errors()
        self.fetch_sessions()
        self.fetch_topic_ids()
        self.fetch_transactions()
        self.fetch_log_append_time()
        self.fetch_compacted()
        self.offsets()
        self.producer_ids()
        self.produce()
        self.produce_versions()
        self.produce_topic_ids()
        self.produce_refusals()
        self.produce_sequences()
        self.group()
        self.committed_offsets()
        self.two_brokers()

    def api_versions(self) -> None:
        request = message(ApiVersionsRequest, 3, client_software_name="shoal", client_software_version="1")
        self.record(request, "api_versions-v3", "the APIs of a broker listener")
        request = message(ApiVersionsRequest, 0)
        self.record(request, "api_versions-v0", "the APIs of a broker listener, oldest version")

    def topics(self) -> None:
        def request(name: str, *, partitions: int = 1, replicas: int = 1, config: str = "lz4") -> Any:
            topic = {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": replicas,
                "assignments": [],
                "configs": [{"name": "compression.type", "value": config}],
            }
            return message(CreateTopicsRequest, 7, topics=[topic], timeout_ms=10_000, validate_only=False)

        for name, asked, error in (
            ("created", request("created"), 0),
            ("exists", request("created"), 36),
            ("invalid-name", request("in/valid"), 17),
            ("invalid-partitions", request("none", partitions=0), 37),
            ("invalid-replication-factor", request("none", replicas=9), 38),
            ("invalid-config", request("none", config="no-such-codec"), 40),
        ):
            response = self.record(asked, f"create_topics-v7-{name}", f"error {error}")
            assert response.topics[0].error_code == error, response
        for name, keys in (("two", ["compression.type", "max.message.bytes"]), ("all", None)):
            resource = {"resource_type": 2, "resource_name": "created", "configuration_keys": keys}
            asked = message(DescribeConfigsRequest, 4, resources=[resource], include_synonyms=True)
            self.record(asked, f"describe_configs-v4-{name}", f"{name} configs of a topic, with synonyms")
        resource = {"resource_type": 2, "resource_name": "no-such-topic", "configuration_keys": None}
        response = self.record(
            message(DescribeConfigsRequest, 4, resources=[resource]), "describe_configs-v4-unknown", "error 3"
        )
        assert response.results[0].error_code == 3

    def metadata(self) -> None:
        create_topic(self.bootstrap, "three-partitions", partitions=3)
        for name, topics in (
            ("topics", [{"name": "three-partitions"}, {"name": "created"}]),
            ("unknown", [{"name": "no-such-topic"}]),
            ("brokers-only", []),
            ("everything", None),
        ):
            for version in (1, 7, 9, 12):
                asked = message(MetadataRequest, version, topics=topics, allow_auto_topic_creation=False)
                self.record(asked, f"metadata-v{version}-{name}", f"metadata of {name.replace('-', ' ')}")

    def fetch_codecs(self) -> None:
        """Each codec: batches of 1, 5 and 20 records; the first by a producer without an id."""
        for codec in CODECS:
            topic = f"codec-{codec}"
            create_topic(self.bootstrap, topic)
            for number, count in enumerate((1, 5, 20)):
                load_batch(self.bootstrap, topic, 0, records(count), codec, idempotent=number > 0)
            response = self.record(
                fetch({topic: {0: 0}}),
                f"fetch-v12-{codec}",
                "a plain batch of 1 record, idempotent ones of 5 and 20, sent by librdkafka",
                codec=codec,
                records=self.read(topic),
            )
            found = batch_headers(only_records(response))
            assert [b["count"] for b in found] == [1, 5, 20]
            # librdkafka does not compress a batch if that would not make it smaller.
            assert {b["codec"] for b in found} <= {codec, "none"}
            assert found[-1]["codec"] == codec
            assert [b["producer_id"] >= 0 for b in found] == [False, True, True]

    def fetch_versions(self) -> None:
        for version in FETCH_VERSIONS:
            self.record(
                fetch({"codec-lz4": {0: 0}}, version=version),
                f"fetch-v{version}",
                "the same three batches in every version that names topics by name",
                codec="lz4",
            )

    def fetch_limits(self) -> None:
        create_topic(self.bootstrap, "other", partitions=2)
        load_idempotent(self.bootstrap, "other", 1, records(4), "zstd")
        load_idempotent(self.bootstrap, "three-partitions", 0, records(2), "none")
        load_idempotent(self.bootstrap, "three-partitions", 2, records(3), "gzip")
        response = self.record(
            fetch({"three-partitions": {0: 0, 1: 0, 2: 1}, "other": {0: 0, 1: 0}}),
            "fetch-v12-several-partitions",
            "five partitions of two topics, two of them empty, one from the middle of its batch",
        )
        assert len(response.responses) == 2

        sizes = [len(b) for b in split(only_records(self.ask(fetch({"codec-none": {0: 0}}))))]
        for name, extra in (("length", 8), ("header", 40), ("payload", 100)):
            response = self.record(
                fetch({"codec-none": {0: 0}}, partition_max_bytes=sizes[0] + sizes[1] + extra),
                f"fetch-v12-cut-in-{name}",
                f"two whole batches and the first {extra} bytes of a third (KIP-74)",
            )
            assert len(only_records(response)) == sizes[0] + sizes[1] + extra
        response = self.record(
            fetch({"codec-none": {0: 1}}, partition_max_bytes=1),
            "fetch-v12-first-batch-over-limit",
            "partition_max_bytes 1: the first batch comes whole all the same (KIP-74)",
        )
        assert len(only_records(response)) == sizes[1]
        response = self.record(
            fetch({"codec-none": {0: 3}}),
            "fetch-v12-from-the-middle",
            "offset 3 lies inside the second batch, which comes whole",
        )
        assert batch_headers(only_records(response))[0]["base_offset"] == 1
        response = self.record(fetch({"codec-none": {0: 26}}), "fetch-v12-empty", "from the end offset")
        assert only_records(response) == b""

    def fetch_errors(self) -> None:
        for name, asked, error in (
            ("offset-out-of-range", fetch({"codec-none": {0: 27}}), 1),
            ("unknown-topic", fetch({"no-such-topic": {0: 0}}), 3),
            ("unknown-partition", fetch({"codec-none": {7: 0}}), 3),
            ("unknown-leader-epoch", fetch({"codec-none": {0: 0}}, leader_epoch=9), 75),
        ):
            response = self.record(asked, f"fetch-v12-{name}", f"error {error}")
            assert response.responses[0].partitions[0].error_code == error, response

    def fetch_sessions(self) -> None:
        first = self.record(
            fetch({"codec-none": {0: 26}, "codec-gzip": {0: 26}}, session_epoch=0),
            "fetch-v12-session-start",
            "a full fetch that asks for a session (KIP-227)",
        )
        load_idempotent(self.bootstrap, "codec-gzip", 0, records(1), "gzip")
        response = self.record(
            fetch({}, session_id=first.session_id, session_epoch=1),
            "fetch-v12-session-one-changed",
            "an incremental fetch: only the partition with something new is in the response",
        )
        assert [topic.topic for topic in response.responses] == ["codec-gzip"]
        forgotten = [{"topic": "codec-gzip", "partitions": [0]}]
        response = self.record(
            fetch({}, session_id=first.session_id, session_epoch=2, forgotten=forgotten, max_wait_ms=50),
            "fetch-v12-session-forget",
            "an incremental fetch that removes a partition; nothing new",
        )
        assert response.responses == []
        for name, session_id, error in (("unknown", 1, 70), ("wrong-epoch", first.session_id, 71)):
            response = self.record(
                fetch({}, session_id=session_id, session_epoch=9),
                f"fetch-v12-session-{name}",
                f"error {error}",
            )
            assert response.error_code == error

    def fetch_topic_ids(self) -> None:
        """From version 13 on topics are listed by id (KIP-516)."""
        ids = self.topic_ids("codec-lz4", "codec-none", "codec-gzip")
        nobody = {"nobody": NOBODYS_TOPIC_ID}
        self.record(
            fetch({"codec-lz4": {0: 0}}, version=13, ids=ids),
            "fetch-v13",
            "the same three batches as in the versions before; the topic is listed by id",
            codec="lz4",
        )
        response = self.record(
            fetch({"nobody": {0: 0}, "codec-none": {0: 0, 7: 0}}, version=13, ids=ids | nobody),
            "fetch-v13-unknown-topic-id",
            "a topic id that no topic has, error 100; a partition that its topic does not have, error 3",
        )
        assert fetch_errors(response) == {0: {0, 100}, 7: {3}}
        first = self.record(
            fetch({"codec-none": {0: 26}, "codec-gzip": {0: 27}}, version=13, ids=ids, session_epoch=0),
            "fetch-v13-session-start",
            "a full fetch that asks for a session, by id",
        )
        load_idempotent(self.bootstrap, "codec-gzip", 0, records(1), "gzip")
        response = self.record(
            fetch({}, version=13, session_id=first.session_id, session_epoch=1),
            "fetch-v13-session-one-changed",
            "an incremental fetch: only the partition with something new is in the response",
        )
        assert [topic.topic_id for topic in response.responses] == [ids["codec-gzip"]]
        forgotten = [{"topic_id": ids["codec-gzip"], "partitions": [0]}]
        session = {"session_id": first.session_id, "session_epoch": 2}
        response = self.record(
            fetch({}, version=13, **session, forgotten=forgotten, max_wait_ms=50),
            "fetch-v13-session-forget",
            "an incremental fetch that removes a partition by its topic's id; nothing new",
        )
        assert response.responses == []
        response = self.record(
            fetch({}, session_id=first.session_id, session_epoch=3),
            "fetch-v12-session-by-name",
            "a request by name in a session by id: error 106",
        )
        assert response.error_code == 106
        self.fetch_recreated_topic()

    def fetch_recreated_topic(self) -> None:
        create_topic(self.bootstrap, "recreated")
        load_idempotent(self.bootstrap, "recreated", 0, records(5))
        former = self.topic_ids("recreated")
        first = self.ask(fetch({"recreated": {0: 5}}, version=13, ids=former, session_epoch=0, max_wait_ms=0))
        recreate_topic(self.bootstrap, "recreated")
        load_idempotent(self.bootstrap, "recreated", 0, records(20))
        assert self.topic_ids("recreated") != former
        response = self.record(
            fetch({"recreated": {0: 5}}, version=13, ids=former),
            "fetch-v13-recreated",
            "the id of a topic that was deleted, and created again under its name: error 100",
        )
        assert fetch_errors(response) == {0: {100}}
        response = self.record(
            fetch({}, version=13, session_id=first.session_id, session_epoch=1),
            "fetch-v13-session-recreated",
            "the same in a session, which knows the topic by its former id: error 103",
        )
        assert fetch_errors(response) == {0: {103}}

    def fetch_transactions(self) -> None:
        """
        Partition 0: committed; aborted; plain; then one aborted that a committed one interrupts.

        Partition 1: an open transaction with plain records behind it.
        """
        topic = "transactions"
        # A marker of today would roll a segment of old records, and a fetch ends with its segment.
        create_topic(self.bootstrap, topic, partitions=2, config={"segment.ms": "1000000000000"})
        one = transactional_producer(self.bootstrap, "one", "lz4")
        two = transactional_producer(self.bootstrap, "two", "none")

        in_transaction(one, topic, 0, 3).commit_transaction()
        in_transaction(one, topic, 0, 2).abort_transaction()
        load_idempotent(self.bootstrap, topic, 0, records(2))
        in_transaction(two, topic, 0, 4)
        in_transaction(one, topic, 0, 1).commit_transaction()
        send(two, topic, 0, 1)
        two.abort_transaction()
        self.wait_for_markers(topic, 0, end=3 + 1 + 2 + 1 + 2 + 4 + 1 + 1 + 1 + 1)

        in_transaction(one, topic, 1, 2)
        load_idempotent(self.bootstrap, topic, 1, records(3))
        response = self.record(
            fetch({topic: {0: 0}}, isolation_level=READ_COMMITTED),
            "fetch-v12-read-committed",
            "committed, aborted, plain, and an aborted transaction around a committed one",
            records={f"{topic}-0": self.read(topic)[f"{topic}-0"]},
        )
        partition = response.responses[0].partitions[0]
        assert len(partition.aborted_transactions) == 2
        assert sum(b["is_control"] for b in batch_headers(bytes(partition.records))) == 4
        response = self.record(
            fetch({topic: {0: 0}}), "fetch-v12-read-uncommitted", "the same partition under read_uncommitted"
        )
        assert response.responses[0].partitions[0].aborted_transactions is None
        for version in (4, 11):
            self.record(
                fetch({topic: {0: 0}}, version=version, isolation_level=READ_COMMITTED),
                f"fetch-v{version}-read-committed",
                "the same in an older version",
            )
        response = self.record(
            fetch({topic: {1: 0}}, isolation_level=READ_COMMITTED, max_wait_ms=50),
            "fetch-v12-open-transaction",
            "an open transaction at the start: last stable offset 0, high watermark 5, no records",
        )
        partition = response.responses[0].partitions[0]
        assert (partition.last_stable_offset, partition.high_watermark) == (0, 5)
        one.abort_transaction()

    def fetch_log_append_time(self) -> None:
        topic = "log-append-time"
        create_topic(self.bootstrap, topic, config={"message.timestamp.type": "LogAppendTime"})
        load_batch(self.bootstrap, topic, 0, records(3), "snappy", idempotent=False)
        load_idempotent(self.bootstrap, topic, 0, records(6), "snappy")
        response = self.record(
            fetch({topic: {0: 0}}), "fetch-v12-log-append-time", "a topic with LogAppendTime", codec="snappy"
        )
        assert all(b["timestamp_type"] == "LogAppendTime" for b in batch_headers(only_records(response)))

    def fetch_compacted(self) -> None:
        """A batch with holes, one without records, one with a tombstone and so a delete horizon."""
        for codec in ("none", "lz4"):
            topic = f"compacted-{codec}"
            create_topic(self.bootstrap, topic, config=COMPACTED)
            for keys in (
                (b"a", b"b", b"c", b"d", b"e"),  # b and d will go: holes
                (b"f", b"g"),  # all will go: an empty batch stays, the last of its producer
                (b"b", b"d", b"f", b"g"),
                (b"gone",),
            ):
                load_idempotent(self.bootstrap, topic, 0, keyed(keys), codec)
            load_idempotent(self.bootstrap, topic, 0, [Record(b"gone", None, (), 1_600_000_000_000)], codec)
            self.wait_for_compaction(topic)
            response = self.record(
                fetch({topic: {0: 0}}),
                f"fetch-v12-compacted-{codec}",
                "holes; a batch without records; a tombstone with a delete horizon (attribute bit 6)",
                codec=codec,
                records=self.read(topic),
            )
            found = batch_headers(only_records(response))
            assert [b["count"] for b in found][:3] == [3, 0, 4]
            assert any(b["attributes"] & 0x40 for b in found)

    def offsets(self) -> None:
        def list_offsets(timestamp: int, version: int, topic: str = "codec-lz4", isolation: int = 0) -> Any:
            partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
            return message(
                ListOffsetsRequest,
                version,
                replica_id=-1,
                isolation_level=isolation,
                topics=[{"name": topic, "partitions": [partition]}],
            )

        for name, timestamp in (
            ("latest", -1),
            ("earliest", -2),
            ("max-timestamp", -3),
            ("timestamp", 1_600_000_000_003),
            ("timestamp-after-end", 1_700_000_000_000),
        ):
            self.record(list_offsets(timestamp, 8), f"list_offsets-v8-{name}", f"timestamp {timestamp}")
        for version in range(1, 8):
            self.record(list_offsets(-1, version), f"list_offsets-v{version}-latest", "timestamp -1")
        self.record(list_offsets(-1, 8, topic="no-such-topic"), "list_offsets-v8-unknown", "error 3")

        def end_of_epoch(epoch: int, current: int, version: int) -> Any:
            partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
            topics = [{"topic": "codec-lz4", "partitions": [partition]}]
            return message(OffsetForLeaderEpochRequest, version, replica_id=-1, topics=topics)

        for version in (3, 4):
            for name, epoch, current, error in (
                ("current", 0, 0, 0),
                ("later-epoch", 5, 0, 0),
                ("unknown-leader-epoch", 0, 9, 75),
            ):
                response = self.record(
                    end_of_epoch(epoch, current, version),
                    f"offset_for_leader_epoch-v{version}-{name}",
                    f"the end of leader epoch {epoch}; current leader epoch {current}",
                )
                assert response.topics[0].partitions[0].error_code == error

    def producer_ids(self) -> None:
        wait_until(lambda: self.ask(init_producer_id(4)).error_code == 0, "a producer id")
        for version in (0, 1, 2, 3, 4):
            asked = message(
                InitProducerIdRequest, version, transactional_id=None, transaction_timeout_ms=60_000
            )
            self.record(asked, f"init_producer_id-v{version}", "a new producer id, not transactional")

    def produce(self) -> None:
        """Accepted: each codec; idempotent; many partitions; acks=1."""
        create_topic(self.bootstrap, "produced", partitions=5)
        for partition, codec in enumerate(CODECS):
            sent = self.producible(codec)
            response = self.record(
                produce({"produced": {partition: sent}}),
                f"produce-v12-{codec}",
                "one batch of librdkafka's, with its base offset and leader epoch set back",
                codec=codec,
            )
            assert_produced(response, error=0, base_offset=0)
        response = self.record(
            produce({"produced": {p: self.producible(codec) for p, codec in enumerate(CODECS)}}),
            "produce-v12-five-partitions",
            "one batch for each of five partitions, each with another codec",
        )
        assert [p.base_offset for p in response.responses[0].partition_responses] == [20] * 5
        create_topic(self.bootstrap, "appended", config={"message.timestamp.type": "LogAppendTime"})
        response = self.record(
            produce({"appended": {0: batch([b"one", b"two"])}}),
            "produce-v12-log-append-time",
            "to a LogAppendTime topic: the response has the time",
        )
        assert response.responses[0].partition_responses[0].log_append_time_ms > 0
        response = self.record(
            produce({"produced": {0: batch([b"one"])}}, acks=1), "produce-v12-acks-1", "acks=1"
        )
        assert_produced(response, error=0, base_offset=40)

    def produce_versions(self) -> None:
        create_topic(self.bootstrap, "produced-versions")
        for number, version in enumerate(PRODUCE_VERSIONS):
            response = self.record(
                produce({"produced-versions": {0: batch([b"one", b"two"], codec=1)}}, version=version),
                f"produce-v{version}",
                "a gzip batch of two records, in every version that names topics by name",
                codec="gzip",
            )
            assert_produced(response, error=0, base_offset=2 * number)

    def produce_topic_ids(self) -> None:
        """From version 13 on topics are listed by id (KIP-516)."""
        create_topic(self.bootstrap, "produced-by-id", partitions=2)
        ids = self.topic_ids("produced-by-id") | {"nobody": NOBODYS_TOPIC_ID}
        sent = batch([b"one", b"two"], codec=1)
        response = self.record(
            produce({"produced-by-id": {0: sent, 1: sent}}, version=13, ids=ids),
            "produce-v13",
            "a gzip batch of two records to two partitions of a topic that is listed by id",
            codec="gzip",
        )
        assert_produced(response, error=0, base_offset=0)
        response = self.record(
            produce({"nobody": {0: sent}}, version=13, ids=ids),
            "produce-v13-unknown-topic-id",
            "a topic id that no topic has: error 100",
        )
        assert_produced(response, error=100)
        response = self.record(
            produce({"produced-by-id": {7: sent}}, version=13, ids=ids),
            "produce-v13-unknown-partition",
            "a partition that the topic does not have: error 3",
        )
        assert_produced(response, error=3)
        recreate_topic(self.bootstrap, "produced-by-id")
        response = self.record(
            produce({"produced-by-id": {0: sent}}, version=13, ids=ids),
            "produce-v13-recreated",
            "the id of a topic that was deleted, and created again under its name: error 100",
        )
        assert_produced(response, error=100)

    def produce_refusals(self) -> None:
        create_topic(self.bootstrap, "refused", config={"max.message.bytes": "2000"})
        create_topic(self.bootstrap, "refused-compacted", config={"cleanup.policy": "compact"})
        good = batch([b"one", b"two"])
        gzip = batch([b"one", b"two"] * 5, codec=1)
        far_future = 4_000_000_000_000
        for name, sent, error in (
            ("two-batches", good + good, 87),
            ("bad-crc", with_wrong_crc(good), 2),
            ("bad-crc-gzip", with_wrong_crc(gzip), 2),
            ("base-offset", patched(good, ">q", BASE_OFFSET, 7), 87),
            ("control-batch", patched(good, ">h", ATTRIBUTES, CONTROL), 87),
            ("holes", patched(good, ">i", LAST_OFFSET_DELTA, 4), 87),
            ("no-records", patched(good, ">i", LAST_OFFSET_DELTA + 34, 0), 87),
            ("too-large", batch([b"x" * 2000]), 10),
            ("future-timestamp", batch([b"x"], timestamp=far_future), 32),
            ("producer-id-without-sequence", batch([b"x"], producer_id=1, producer_epoch=0), 87),
            ("transactional", patched(good, ">h", ATTRIBUTES, TRANSACTIONAL), 53),
        ):
            response = self.record(
                produce({"refused": {0: sent}}), f"produce-v12-refused-{name}", f"error {error}"
            )
            assert_produced(response, error=error)
        without_key = self.keyless()
        for name, topic, error in (
            ("unknown-topic", "no-such-topic", 3),
            ("no-key", "refused-compacted", 87),
        ):
            asked = produce({topic: {0: without_key}})
            response = self.record(asked, f"produce-v12-refused-{name}", f"error {error}")
            assert_produced(response, error=error)

    def produce_sequences(self) -> None:
        """The broker's checks of sequence numbers, on which exactly-once depends."""
        create_topic(self.bootstrap, "sequences")
        identity = self.ask(init_producer_id(4))

        def asked(sequence: int, epoch: int = 0, producer_id: int = identity.producer_id) -> Any:
            return produce({"sequences": {0: batch([b"one", b"two"], 0, producer_id, epoch, sequence)}})

        for name, request, error, base_offset in (
            ("first", asked(0), 0, 0),
            ("next", asked(2), 0, 2),
            ("repeated", asked(0), 0, 0),
            ("gap", asked(6), 45, -1),
            ("new-epoch", asked(0, epoch=1), 0, 4),
            ("old-epoch", asked(4, epoch=0), 47, -1),
            ("new-epoch-not-zero", asked(9, epoch=2), 45, -1),
            ("unknown-producer-anywhere", asked(1000, producer_id=identity.producer_id + 500), 0, 6),
        ):
            response = self.record(request, f"produce-v12-sequence-{name}", f"error {error}")
            assert_produced(response, error=error, base_offset=base_offset)
        topics = [{"name": "sequences", "partition_indexes": [0]}]
        response = self.record(
            message(DescribeProducersRequest, 0, topics=topics),
            "describe_producers-v0",
            "two producers' state",
        )
        assert len(response.topics[0].partitions[0].active_producers) == 2

    def group(self) -> None:
        """A group of one member, as one consumer would make it: join, sync, heartbeat, leave."""

        def find(version: int) -> Any:
            if version < 4:
                return message(FindCoordinatorRequest, version, key=GROUP, key_type=0)
            return message(FindCoordinatorRequest, version, key_type=0, coordinator_keys=[GROUP])

        wait_until(lambda: self.ask(find(4)).coordinators[0].error_code == 0, "a group coordinator")
        for version in range(5):
            self.record(find(version), f"find_coordinator-v{version}", "the coordinator of a group")

        def join(version: int, member_id: str, protocol_type: str = "consumer") -> Any:
            return message(
                JoinGroupRequest,
                version,
                group_id=GROUP,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                member_id=member_id,
                protocol_type=protocol_type,
                protocols=[{"name": "range", "metadata": SUBSCRIPTION}],
            )

        # Not by joining: the coordinator would wait for a member that never comes back.
        stranger = {"group_id": GROUP, "generation_id": 1, "member_id": "nobody"}
        wait_until(
            lambda: self.ask(message(HeartbeatRequest, 4, **stranger)).error_code == 25,
            "a loaded group coordinator",
        )
        response = self.record(join(7, ""), "join_group-v7-first", "error 79: join again with this member id")
        assert response.error_code == 79
        member_id = response.member_id
        for version in (5, 7, 9):
            response = self.record(
                join(version, member_id), f"join_group-v{version}", "the only member, so the leader"
            )
            assert response.error_code == 0
        generation = response.generation_id
        response = self.record(
            join(7, "", protocol_type="connect"),
            "join_group-v7-other-type",
            "error 23: another protocol type",
        )
        assert response.error_code == 23

        member = {"group_id": GROUP, "generation_id": generation, "member_id": member_id}
        for version in (3, 5):
            response = self.record(
                message(
                    SyncGroupRequest,
                    version,
                    **member,
                    **({"protocol_type": "consumer", "protocol_name": "range"} if version == 5 else {}),
                    assignments=[{"member_id": member_id, "assignment": SUBSCRIPTION}],
                ),
                f"sync_group-v{version}",
                "the leader's assignment",
            )
            assert (response.error_code, bytes(response.assignment)) == (0, SUBSCRIPTION)
        for version in (3, 4):
            response = self.record(
                message(HeartbeatRequest, version, **member), f"heartbeat-v{version}", "of a member"
            )
            assert response.error_code == 0
        response = self.record(
            message(HeartbeatRequest, 4, **{**member, "generation_id": generation + 1}),
            "heartbeat-v4-wrong-generation",
            "error 22",
        )
        assert response.error_code == 22
        for version in (3, 5):
            asked = message(
                DescribeGroupsRequest, version, groups=[GROUP], include_authorized_operations=False
            )
            response = self.record(asked, f"describe_groups-v{version}", "a stable group of one member")
            assert response.groups[0].group_state == "Stable"
        self.commits(generation, member_id)
        asked = message(LeaveGroupRequest, 4, group_id=GROUP, members=[{"member_id": member_id}])
        response = self.record(asked, "leave_group-v4", "the only member leaves")
        assert response.error_code == 0

    def commits(self, generation: int, member_id: str) -> None:
        def commit(version: int, generation: int, metadata: str, member_id: str = member_id) -> Any:
            partition = {
                "partition_index": 0,
                "committed_offset": 20,
                "committed_leader_epoch": 0,
                "committed_metadata": metadata,
            }
            return message(
                OffsetCommitRequest,
                version,
                group_id=GROUP,
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                topics=[{"name": "codec-lz4", "partitions": [partition]}],
            )

        for name, asked, error in (
            ("v8", commit(8, generation, "the metadata of a pair"), 0),
            ("v7", commit(7, generation, "the metadata of a pair"), 0),
            ("v8-wrong-generation", commit(8, generation + 1, ""), 22),
            ("v8-unknown-member", commit(8, generation, "", member_id="nobody"), 25),
            ("v8-metadata-too-large", commit(8, generation, "x" * 4097), 12),
        ):
            response = self.record(asked, f"offset_commit-{name}", f"error {error}")
            assert response.topics[0].partitions[0].error_code == error, response

    def committed_offsets(self) -> None:
        """By name, all of them, and of an unknown group."""
        topics = [{"name": "codec-lz4", "partition_indexes": [0, 7]}]
        for group in (GROUP, "no-such-group"):
            for version in (5, 7):
                asked = message(OffsetFetchRequest, version, group_id=group, topics=topics)
                self.record(asked, f"offset_fetch-v{version}-{group}", "a committed offset, and none")
            asked = message(OffsetFetchRequest, 8, groups=[{"group_id": group, "topics": topics}])
            self.record(asked, f"offset_fetch-v8-{group}", "a committed offset, and none")
        asked = message(OffsetFetchRequest, 8, groups=[{"group_id": GROUP, "topics": None}])
        self.record(asked, "offset_fetch-v8-all", "every committed offset of a group")

    def two_brokers(self) -> None:
        """A partition led by the other broker, in its second leader epoch."""
        first, second = self.pair.address(1), self.pair.address(2)
        topic = {
            "name": "on-two",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": [2]}],
            "configs": [],
        }
        asked = message(CreateTopicsRequest, 7, topics=[topic], timeout_ms=10_000, validate_only=False)
        self.recorder.record(first, asked, "create_topics-v7-assigned", "one partition, on broker 2")
        load_idempotent(self.pair.bootstrap, "on-two", 0, records(3), "lz4")
        self.pair.restart(2)
        load_idempotent(self.pair.bootstrap, "on-two", 0, records(4), "zstd")
        for version in (7, 9, 12):
            asked = message(MetadataRequest, version, topics=[{"name": "on-two"}])
            response = self.recorder.record(
                first, asked, f"metadata-v{version}-two-brokers", "two brokers; a leader epoch above 0"
            )
        epoch = response.topics[0].partitions[0].leader_epoch
        assert epoch > 0

        wrong = [
            (first, fetch({"on-two": {0: 0}}), "fetch-v12-not-leader", 6),
            (second, fetch({"on-two": {0: 0}}, leader_epoch=0), "fetch-v12-fenced-leader-epoch", 74),
        ]
        for address, asked, name, error in wrong:
            response = self.recorder.record(address, asked, name, f"error {error}")
            assert response.responses[0].partitions[0].error_code == error
        for version in (9, 12):
            response = self.recorder.record(
                first,
                produce({"on-two": {0: batch([b"one"])}}, version=version),
                f"produce-v{version}-not-leader",
                "error 6; from version 10 on, with the current leader and its address (KIP-951)",
            )
            assert_produced(response, error=6)
        self.recorder.record(
            second, fetch({"on-two": {0: 0}}), "fetch-v12-two-epochs", "batches of two leader epochs"
        )
        partition = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": 0}
        topics = [{"topic": "on-two", "partitions": [partition]}]
        response = self.recorder.record(
            second,
            message(OffsetForLeaderEpochRequest, 4, replica_id=-1, topics=topics),
            "offset_for_leader_epoch-v4-earlier-epoch",
            "the end of the first of two epochs",
        )
        assert response.topics[0].partitions[0].end_offset == 3

    def topic_ids(self, *topics: str) -> dict[str, uuid.UUID]:
        asked = message(
            MetadataRequest, 12, topics=[{"name": each} for each in topics], allow_auto_topic_creation=False
        )
        return {topic.name: topic.topic_id for topic in self.ask(asked).topics}

    def record(self, request: Any, name: str, what: str, **more: Any) -> Any:
        return self.recorder.record(self.bootstrap, request, name, what, **more)

    def ask(self, request: Any) -> Any:
        return self.recorder.ask(self.bootstrap, request)

    def read(self, topic: str) -> dict[str, list[dict[str, Any]]]:
        """Return the records that confluent-kafka reads, in JSON's types."""
        return {
            f"{topic}-{partition}": [as_json(record) for record in found]
            for partition, found in read_topic(self.bootstrap, topic).items()
        }

    def producible(self, codec: Codec) -> bytes:
        """Take the largest batch of a codec topic and reset the fields that the broker wrote."""
        stored = split(only_records(self.ask(fetch({f"codec-{codec}": {0: 0}}))))[2]
        sent = bytearray(patched(stored, ">qhi", 43, -1, -1, -1))
        sent[BASE_OFFSET : BASE_OFFSET + 8] = bytes(8)
        sent[LEADER_EPOCH : LEADER_EPOCH + 4] = b"\xff" * 4
        return bytes(sent)

    def keyless(self) -> bytes:
        """Take a batch whose only record has no key."""
        create_topic(self.bootstrap, "keyless")
        only = Record(None, b"value", (), 1_600_000_000_000)
        load_batch(self.bootstrap, "keyless", 0, [only], idempotent=False)
        return split(only_records(self.ask(fetch({"keyless": {0: 0}}))))[0]

    def wait_for_markers(self, topic: str, partition: int, end: int) -> None:
        """Wait until every transaction is decided in the log; commit returns sooner."""

        def decided() -> bool:
            found = self.ask(fetch({topic: {partition: 0}})).responses[0].partitions[0]
            return bool(found.last_stable_offset == found.high_watermark == end)

        wait_until(decided, f"the transaction markers of {topic}-{partition}")

    def wait_for_compaction(self, topic: str) -> None:
        """
        Send records until a segment is closed and cleaned: the last one never is.

        A segment is closed by a record whose timestamp is ``segment.ms`` after that of its first.
        """
        numbers = itertools.count(1)

        def compacted() -> bool:
            found = batch_headers(only_records(self.ask(fetch({topic: {0: 0}}))))
            if found[0]["count"] == 3 and any(b["attributes"] & 0x40 for b in found):
                return True
            later = 1_600_000_000_000 + 1000 * next(numbers)
            load_idempotent(self.bootstrap, topic, 0, [Record(b"filler", b"", (), later)])
            return False

        wait_until(compacted, f"compaction of {topic}", timeout_s=60, interval_s=0.5)


def fetch(
    offsets: dict[str, dict[int, int]],
    *,
    version: int = 12,
    isolation_level: int = READ_UNCOMMITTED,
    partition_max_bytes: int = 1_000_000,
    leader_epoch: int = -1,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Sequence[dict[str, Any]] = (),
    max_wait_ms: int = 500,
    ids: Mapping[str, uuid.UUID] | None = None,
) -> Any:
    """Build a Fetch request for ``{topic: {partition: offset}}``; with ``ids``, topics are listed by id."""
    topics = [
        {
            **({"topic": topic} if ids is None else {"topic_id": ids[topic]}),
            "partitions": [
                {
                    "partition": partition,
                    "fetch_offset": offset,
                    "current_leader_epoch": leader_epoch,
                    "partition_max_bytes": partition_max_bytes,
                }
                for partition, offset in of_topic.items()
            ],
        }
        for topic, of_topic in offsets.items()
    ]
    return message(
        FetchRequest,
        version,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=10_000_000,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten_topics_data=list(forgotten),
    )


def produce(
    record_sets: dict[str, dict[int, bytes]],
    *,
    version: int = 12,
    acks: int = -1,
    ids: Mapping[str, uuid.UUID] | None = None,
) -> Any:
    """Build a Produce request for ``{topic: {partition: record set}}``; with ``ids``, it lists these."""
    topics = [
        {
            **({"name": topic} if ids is None else {"topic_id": ids[topic]}),
            "partition_data": [{"index": p, "records": record_set} for p, record_set in of_topic.items()],
        }
        for topic, of_topic in record_sets.items()
    ]
    return message(
        ProduceRequest, version, transactional_id=None, acks=acks, timeout_ms=10_000, topic_data=topics
    )


def init_producer_id(version: int) -> Any:
    return message(InitProducerIdRequest, version, transactional_id=None, transaction_timeout_ms=60_000)


def assert_produced(response: Any, error: int, base_offset: int = -1) -> None:
    partition = response.responses[0].partition_responses[0]
    assert (partition.error_code, partition.base_offset) == (error, base_offset), response


def fetch_errors(response: Any) -> dict[int, set[int]]:
    """Return the error codes by partition number."""
    errors: dict[int, set[int]] = {}
    for topic in response.responses:
        for partition in topic.partitions:
            errors.setdefault(partition.partition_index, set()).add(partition.error_code)
    return errors


def only_records(response: Any) -> bytes:
    """Return the record set of a Fetch response with one partition."""
    (partition,) = response.responses[0].partitions
    assert partition.error_code == 0, response
    return bytes(partition.records)


def records(count: int) -> list[Record]:
    """Make records with keys, headers, a tombstone and an empty value among them."""
    values = (b"value of a record, with some text that compresses " * 2, None, b"", b"short")
    return [
        Record(
            key=None if number % 5 == 4 else b"key-%d" % number,
            value=values[number % 4],
            headers=(("header", b"x"), ("null", None)) if number % 3 == 0 else (),
            timestamp=1_600_000_000_000 + number,
        )
        for number in range(count)
    ]


def keyed(keys: Sequence[bytes]) -> list[Record]:
    return [Record(key, b"value of " + key * 30, (), 1_600_000_000_000 + n) for n, key in enumerate(keys)]


def in_transaction(producer: Producer, topic: str, partition: int, count: int) -> Producer:
    """Begin a transaction with one batch, and leave it open."""
    producer.begin_transaction()
    return send(producer, topic, partition, count)


def send(producer: Producer, topic: str, partition: int, count: int) -> Producer:
    for record in records(count):
        producer.produce(topic, record.value, record.key, partition, timestamp=record.timestamp)
    assert producer.flush(30) == 0
    return producer


def as_json(record: Record) -> dict[str, Any]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else data.decode()

    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type,
        "key": text(record.key),
        "value": text(record.value),
        "headers": [[name, text(value)] for name, value in record.headers],
    }


def main() -> None:
    recorder = Recorder(f"Apache Kafka {KAFKA_VERSION}")
    cluster, pair = KafkaCluster(config=CONFIG), KafkaCluster(brokers=2)
    with start_in_parallel(cluster, pair):
        try:
            Scenarios(cluster, pair, recorder).run()
        finally:
            recorder.close()
    recorder.save(Path(__file__).parent)


if __name__ == "__main__":
    main()

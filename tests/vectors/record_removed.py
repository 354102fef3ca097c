"""
Record the vectors of removed versions: ``python -m tests.vectors.record_removed``, in the root.

Kafka 2.8.2 with ZooKeeper still answers every version that Kafka 4 has removed, also those that a
broker without ZooKeeper never did.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest
from kafka.protocol.consumer import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import ProduceRequest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from rig import OLD_KAFKA_VERSION, OldKafka, wait_until
from tests.vectors.wire import Recorder, message

GROUP = "recorded-group"
TIMESTAMP = 1_600_000_000_000
TOPIC_RESOURCE = 2
GZIP = 1


class RemovedScenarios:
    """The recorded scenarios, one method for each subject; they run in the order of `run`."""

    def __init__(self, kafka: OldKafka, recorder: Recorder) -> None:
        self.kafka = kafka
        self.recorder = recorder

    def run(self) -> None:
        self.topics()
        self.metadata()
        self.produce()
        self.fetch()
        self.list_offsets()
        self.positions()
        self.leader_epochs()
        self.deletion()

    def topics(self) -> None:
        for version in (0, 1):
            topic = {
                "name": f"created-{version}",
                "num_partitions": 2,
                "replication_factor": 1,
                "assignments": [],
                "configs": [{"name": "retention.ms", "value": "-1"}],
            }
            asked = message(CreateTopicsRequest, version, topics=[topic], timeout_ms=10_000)
            for name, error in (("created", 0), ("exists", 36)):
                response = self.record(asked, f"create_topics-v{version}-{name}", f"error {error}")
                assert response.topics[0].error_code == error, response
        wanted = {
            "resource_type": TOPIC_RESOURCE,
            "resource_name": "created-0",
            "configuration_keys": ["retention.ms", "cleanup.policy"],
        }
        asked = message(DescribeConfigsRequest, 0, resources=[wanted])
        response = self.record(asked, "describe_configs-v0", "one setting of the topic's, one default")
        assert [each.name for each in response.results[0].configs] == ["cleanup.policy", "retention.ms"]

    def metadata(self) -> None:
        for name, topics in (
            ("topic", [{"name": "created-0"}]),
            ("everything", []),
            ("unknown", [{"name": "?"}]),
        ):
            asked = message(MetadataRequest, 0, topics=topics)
            self.record(asked, f"metadata-v0-{name}", "all topics where none is named")

    def produce(self) -> None:
        self.kafka.create_topic("produced", 2)
        cases: Sequence[tuple[str, Callable[[int], bytes], int]] = [
            ("", message_set, 0),
            ("-gzip", gzipped, 0),
            ("-refused-bad-crc", with_wrong_crc, 2),
        ]
        next_offset = 0
        for version in range(3):
            for name, build, error in cases:
                asked = produce("produced", build(1 if version == 2 else 0), version)
                response = self.record(asked, f"produce-v{version}{name}", f"3 messages, error {error}")
                answer = response.responses[0].partition_responses[0]
                assert answer.error_code == error, response
                assert answer.base_offset == (next_offset if error == 0 else -1), response
                next_offset += 3 if error == 0 else 0

    def fetch(self) -> None:
        for version in range(4):
            for name, offset, error in (("", 0, 0), ("-at-the-end", 18, 0), ("-out-of-range", 99, 1)):
                asked = fetch("produced", offset, version)
                what = f"from offset {offset} of 18, converted from magic 2; error {error}"
                response = self.record(asked, f"fetch-v{version}{name}", what)
                assert response.responses[0].partitions[0].error_code == error, response

    def list_offsets(self) -> None:
        for name, timestamp, partition, error in (
            ("latest", -1, 0, 0),
            ("earliest", -2, 0, 0),
            ("unknown", -1, 9, 3),
        ):
            wanted = {"partition_index": partition, "timestamp": timestamp, "max_num_offsets": 2}
            topics = [{"name": "produced", "partitions": [wanted]}]
            asked = message(ListOffsetsRequest, 0, replica_id=-1, topics=topics)
            response = self.record(asked, f"list_offsets-v0-{name}", f"two offsets at most; error {error}")
            assert response.topics[0].partitions[0].error_code == error, response

    def positions(self) -> None:
        """Of version 0 in ZooKeeper, of version 1 at the coordinator."""

        def ready() -> bool:
            found = self.recorder.ask(self.kafka.bootstrap, message(FindCoordinatorRequest, 0, key=GROUP))
            asked = offset_fetch(1)
            return bool(
                found.error_code == 0
                and self.recorder.ask(self.kafka.bootstrap, asked).topics[0].partitions[0].error_code == 0
            )

        wait_until(ready, "the group coordinator")
        for version, missing in ((0, 3), (1, 0)):
            response = self.record(offset_fetch(version), f"offset_fetch-v{version}-none", "no position")
            assert response.topics[0].partitions[0].error_code == missing, response
            response = self.record(offset_commit(version), f"offset_commit-v{version}", "offset 7")
            assert response.topics[0].partitions[0].error_code == 0, response
            response = self.record(offset_fetch(version), f"offset_fetch-v{version}", "offset 7")
            assert response.topics[0].partitions[0].committed_offset == 7, response

    def leader_epochs(self) -> None:
        topics = [{"topic": "produced", "partitions": [{"partition": 0, "leader_epoch": 0}]}]
        for version in (0, 1):
            asked = message(OffsetForLeaderEpochRequest, version, topics=topics)
            response = self.record(asked, f"offset_for_leader_epoch-v{version}", "the end of the first epoch")
            assert response.topics[0].partitions[0].end_offset == 18, response

    def deletion(self) -> None:
        asked = message(DeleteTopicsRequest, 0, topic_names=["created-1", "no-such-topic"], timeout_ms=10_000)
        response = self.record(asked, "delete_topics-v0", "a topic, and one that is not there")
        assert {each.name: each.error_code for each in response.responses} == {
            "created-1": 0,
            "no-such-topic": 3,
        }

    def record(self, request: Any, name: str, what: str) -> Any:
        return self.recorder.record(self.kafka.bootstrap, request, name, what)


def message_set(magic: int, codec: int = 0) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset in range(3):
        builder.append(offset, timestamp=TIMESTAMP + offset, key=b"key %d" % offset, value=b"value" * 20)
    return bytes(builder.build())


def gzipped(magic: int) -> bytes:
    return message_set(magic, GZIP)


def with_wrong_crc(magic: int) -> bytes:
    sent = message_set(magic)
    return sent[:-1] + bytes([sent[-1] ^ 1])


def produce(topic: str, record_set: bytes, version: int) -> Any:
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": record_set}]}]
    return message(ProduceRequest, version, acks=-1, timeout_ms=10_000, topic_data=topics)


def fetch(topic: str, offset: int, version: int) -> Any:
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    topics: Sequence[dict[str, Any]] = [{"topic": topic, "partitions": [wanted]}]
    return message(
        FetchRequest, version, replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=topics
    )


def offset_commit(version: int) -> Any:
    position = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "metadata"}
    topics = [{"name": "produced", "partitions": [position]}]
    return message(OffsetCommitRequest, version, group_id=GROUP, member_id="", topics=topics)


def offset_fetch(version: int) -> Any:
    topics = [{"name": "produced", "partition_indexes": [0]}]
    return message(OffsetFetchRequest, version, group_id=GROUP, topics=topics)


def main() -> None:
    recorder = Recorder(f"Apache Kafka {OLD_KAFKA_VERSION}")
    with OldKafka() as kafka:
        try:
            RemovedScenarios(kafka, recorder).run()
        finally:
            recorder.close()
    directory = Path(__file__).parent / "removed"
    directory.mkdir(exist_ok=True)
    recorder.save(directory)


if __name__ == "__main__":
    main()

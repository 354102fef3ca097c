"""
Record the down-converted vectors: ``python -m tests.vectors.record_down_converted``.

Fetch responses of Kafka 3.9, the last line that converts. Fetch 12 returns each record set as in the
log; Fetch 0 and 1 convert to magic 0, Fetch 2 and 3 to magic 1. Every scenario asserts that the log has
the batches of its name.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rig import (
    OLD_CODECS,
    KafkaCluster,
    Record,
    create_topic,
    load_batch,
    load_compacted,
    wait_until,
)
from rig.jars import KAFKA_3_VERSION
from rig.load import Codec, transactional_producer
from tests.vectors.record import fetch, in_transaction, only_records, records
from tests.vectors.wire import Recorder, batch_headers

LOG_VERSION = 12
MAGIC_OF_VERSION = {0: 0, 1: 0, 2: 1, 3: 1}
OLD_TIME = {"segment.ms": "1000000000000"}
"""So that a marker of today rolls no segment of old records: a fetch ends with its segment."""

ERROR_UNSUPPORTED_VERSION, ERROR_UNSUPPORTED_COMPRESSION = 35, 76


class DownConversions:
    """The recorded scenarios, one method for each subject."""

    def __init__(self, cluster: KafkaCluster, recorder: Recorder) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap
        self.recorder = recorder

    def run(self) -> None:
        self.codecs()
        self.from_the_middle()
        self.log_append_time()
        self.padding()
        self.transactions()
        self.compacted()
        self.zstd()
        self.refused()

    def codecs(self) -> None:
        for codec in OLD_CODECS:
            topic = f"codec-{codec}"
            create_topic(self.bootstrap, topic)
            for count in (1, 5, 20):
                load_batch(self.bootstrap, topic, 0, records(count), codec)
            what = "batches of 1, 5 and 20 records, with headers and tombstones"
            found = self.record(topic, topic, what, codec, versions=(0, 1, 2, 3))
            assert [each["count"] for each in found] == [1, 5, 20]
            assert found[-1]["codec"] == codec

    def from_the_middle(self) -> None:
        for codec in ("none", "gzip"):
            self.record(
                f"codec-{codec}",
                f"from-the-middle-{codec}",
                "offset 15 lies inside the last batch: what is before it comes too, if it is compressed",
                codec,
                offset=15,
            )

    def log_append_time(self) -> None:
        for codec in ("none", "snappy"):
            topic = f"log-append-time-{codec}"
            create_topic(self.bootstrap, topic, config={"message.timestamp.type": "LogAppendTime"})
            for count in (3, 6):
                load_batch(self.bootstrap, topic, 0, records(count), codec)
            found = self.record(topic, topic, "batches of 3 and 6 records with an append time each", codec)
            assert {each["timestamp_type"] for each in found} == {"LogAppendTime"}

    def padding(self) -> None:
        """Headers are dropped, so the converted bytes are fewer than announced."""
        for size in (100, 140_000):
            topic = f"padding-{size}"
            create_topic(self.bootstrap, topic)
            for number in range(2):
                large = (("header", b"h" * (size if number else 100)),)
                load_batch(self.bootstrap, topic, 0, [Record(b"key", b"value", large, 1_600_000_000_000)])
            self.record(topic, topic, f"two records, of which one has a header of {size} bytes")

    def transactions(self) -> None:
        """Committed; aborted; plain; and then nothing but a marker."""
        topic = "transactions"
        create_topic(self.bootstrap, topic, config=OLD_TIME)
        producer = transactional_producer(self.bootstrap, "one", "lz4")
        in_transaction(producer, topic, 0, 3).commit_transaction()
        in_transaction(producer, topic, 0, 2).abort_transaction()
        load_batch(self.bootstrap, topic, 0, records(2))
        in_transaction(producer, topic, 0, 1).commit_transaction()
        self.wait_for_end(topic, 3 + 1 + 2 + 1 + 2 + 1 + 1)
        found = self.record(
            topic,
            topic,
            "committed, marker, aborted, marker, plain, committed, marker: aborted records are kept",
        )
        assert [each["is_control"] for each in found] == [False, True, False, True, False, False, True]
        self.record(
            topic,
            "from-a-marker",
            "offset 3 is a marker: Kafka leaves it out, and sends the batch behind it twice",
            offset=3,
        )
        response = self.record(
            topic, "only-a-marker", "the last offset is a marker: twelve bytes of padding", offset=10
        )
        assert [each["is_control"] for each in response] == [True]

    def compacted(self) -> None:
        topics: dict[str, Codec] = {f"compacted-{codec}": codec for codec in OLD_CODECS}
        load_compacted(self.cluster, topics)
        for topic, codec in topics.items():
            found = self.record(
                topic, topic, "holes, batches without records, tombstones, transactions", codec
            )
            assert any(each["count"] == 0 for each in found)
            assert any(0 < each["count"] <= each["last_offset_delta"] for each in found)

    def zstd(self) -> None:
        topic = "zstd"
        create_topic(self.bootstrap, topic)
        load_batch(self.bootstrap, topic, 0, records(20), "gzip")
        load_batch(self.bootstrap, topic, 0, records(20), "zstd")
        self.record(topic, "zstd-behind-gzip", "a batch of gzip, then one of zstd: padding in its place")
        self.record(
            topic, "zstd", "zstd from the start: error 76", offset=20, error=ERROR_UNSUPPORTED_COMPRESSION
        )

    def refused(self) -> None:
        topic = "refused"
        create_topic(self.bootstrap, topic, config={"message.downconversion.enable": "false"})
        load_batch(self.bootstrap, topic, 0, records(1))
        self.record(
            topic,
            topic,
            "message.downconversion.enable=false: error 35",
            error=ERROR_UNSUPPORTED_VERSION,
        )

    def record(
        self,
        topic: str,
        name: str,
        what: str,
        codec: str | None = None,
        *,
        offset: int = 0,
        versions: Sequence[int] = (1, 3),
        error: int = 0,
    ) -> list[dict[str, Any]]:
        """Record a fetch of partition 0 unconverted and converted; return the batches in the log."""
        kept = self.recorder.record(
            self.bootstrap,
            fetch({topic: {0: offset}}, version=LOG_VERSION),
            f"fetch-v{LOG_VERSION}-{name}",
            f"{what} (as it is in the log)",
            codec=codec,
        )
        for version in versions:
            response = self.recorder.record(
                self.bootstrap,
                fetch({topic: {0: offset}}, version=version),
                f"fetch-v{version}-{name}",
                f"{what} (magic {MAGIC_OF_VERSION[version]})",
                codec=codec,
            )
            assert response.responses[0].partitions[0].error_code == error, response
        return batch_headers(only_records(kept))

    def wait_for_end(self, topic: str, end: int) -> None:
        """Wait until every transaction is decided in the log; commit returns sooner."""

        def decided() -> bool:
            found = self.recorder.ask(self.bootstrap, fetch({topic: {0: 0}})).responses[0].partitions[0]
            return bool(found.last_stable_offset == found.high_watermark == end)

        wait_until(decided, f"the transaction markers of {topic}-0")


def main() -> None:
    recorder = Recorder(f"Apache Kafka {KAFKA_3_VERSION}")
    with KafkaCluster(version=KAFKA_3_VERSION) as cluster:
        try:
            DownConversions(cluster, recorder).run()
        finally:
            recorder.close()
    directory = Path(__file__).parent / "down_converted"
    directory.mkdir(exist_ok=True)
    recorder.save(directory)


if __name__ == "__main__":
    main()

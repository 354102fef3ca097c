"""
Record the old vectors: ``python -m tests.vectors.record_old`` in the repository's root.

Fetch responses of Kafka 2.8.2 with messages of magic 0 and 1 as they lie in its log: a Fetch from
version 4 on converts nothing. Every scenario asserts that Kafka's own DumpLogSegments finds the
messages of its name in the log.
"""

from pathlib import Path
from typing import Any

from rig import (
    OLD_CODECS,
    OLD_KAFKA_VERSION,
    DumpedBatch,
    OldKafka,
    Record,
    dump_partition,
    load_batch,
    load_old_batch,
    load_without_timestamps,
    read_topic,
)
from rig.compaction import load_old_compacted
from rig.load import Codec
from rig.old_kafka import MessageFormat
from tests.vectors.record import as_json, fetch, only_records, records
from tests.vectors.wire import Recorder

OLD_FORMATS: tuple[MessageFormat, ...] = (0, 1)


class OldScenarios:
    """The recorded scenarios of an old broker, one method for each subject."""

    def __init__(self, kafka: OldKafka, recorder: Recorder) -> None:
        self.kafka = kafka
        self.recorder = recorder

    def run(self) -> None:
        self.codecs()
        self.versions()
        self.from_the_middle()
        self.log_append_time()
        self.without_timestamps()
        self.upgraded()
        self.compacted()

    def codecs(self) -> None:
        for magic in OLD_FORMATS:
            for codec in OLD_CODECS:
                topic = f"magic-{magic}-{codec}"
                self.kafka.create_topic(topic, magic)
                self.load(topic, codec, magic)
                found = self.record(topic, topic, "batches of 1, 5 and 20 records", codec)
                assert {message.codec for message in found} <= {codec, "none"}
                assert [message.codec for message in found][-1] == codec
                assert [len(message.records) for message in found][-1] == (1 if codec == "none" else 20)

    def versions(self) -> None:
        for version in range(4, 12):
            self.record("magic-1-lz4", "magic-1-lz4", "the same in an older version", "lz4", version=version)

    def from_the_middle(self) -> None:
        for magic in OLD_FORMATS:
            topic = f"magic-{magic}-gzip"
            what = "from offset 15, in the middle of the last wrapper, which comes whole"
            name = f"{topic}-from-the-middle"
            found = self.record(topic, name, what, "gzip", offset=15)
            assert found[-1].records[0].offset < 15

    def log_append_time(self) -> None:
        for codec in OLD_CODECS:
            topic = f"magic-1-log-append-time-{codec}"
            self.kafka.create_topic(topic, 1, timestamp_type="LogAppendTime")
            self.load(topic, codec, 1)
            what = "batches of 1, 5 and 20 records: a wrapper's timestamp is that of all in it"
            found = self.record(topic, topic, what, codec)
            assert {message.timestamp_type for message in found} == {"LogAppendTime"}

    def without_timestamps(self) -> None:
        for codec in OLD_CODECS:
            topic = f"magic-1-without-timestamps-{codec}"
            self.kafka.create_topic(topic, 1)
            for count in (1, 5, 20):
                load_without_timestamps(self.kafka.bootstrap, topic, 0, headless(count), codec)
            found = self.record(topic, topic, "by a client of Kafka 0.9: timestamps of -1", codec)
            assert {message.max_timestamp for message in found} == {-1}

    def upgraded(self) -> None:
        """One partition in the course of years: magic 0, then 1, then 2."""
        topic = "upgraded"
        self.kafka.create_topic(topic, 0)
        self.load(topic, "gzip", 0)
        self.kafka.change_format(topic, 1)
        self.load(topic, "snappy", 1)
        self.kafka.change_format(topic, 2)
        load_batch(self.kafka.bootstrap, topic, 0, records(20), "zstd")
        self.record(topic, topic, "magic 0 with gzip, then 1 with snappy, then 2 with zstd", None)
        found = dump_partition(self.kafka.partition_dir(topic, 0))
        assert {batch.magic for batch in found} == {0, 1, 2}

    def compacted(self) -> None:
        topics = {
            f"magic-{magic}-compacted-{codec}": (magic, codec)
            for magic in OLD_FORMATS
            for codec in OLD_CODECS
        }
        load_old_compacted(self.kafka, topics)
        for topic, (_, codec) in topics.items():
            self.record(topic, topic, "wrappers with holes at their begin, middle and end", codec)

    def load(self, topic: str, codec: Codec, magic: MessageFormat) -> None:
        for count in (1, 5, 20):
            load_old_batch(self.kafka.bootstrap, topic, 0, headless(count), codec, magic)

    def record(
        self, topic: str, name: str, what: str, codec: str | None, version: int = 12, offset: int = 0
    ) -> list[DumpedBatch]:
        """Record a fetch of partition 0, and return the messages in the response."""
        size = len(only_records(self.recorder.ask(self.kafka.bootstrap, fetch({topic: {0: offset}}))))
        dumped = dump_partition(self.kafka.partition_dir(topic, 0), deep=True)
        # A response begins with the wrapper that has the offset, and ends with its segment.
        found = [message for message in dumped if message.last_offset >= offset]
        while sum(message.size for message in found) > size:
            del found[-1]
        assert sum(message.size for message in found) == size
        consumed = {
            f"{topic}-{partition}": [as_json(record) for record in of_partition]
            for partition, of_partition in read_topic(self.kafka.bootstrap, topic).items()
        }
        self.recorder.record(
            self.kafka.bootstrap,
            fetch({topic: {0: offset}}, version=version),
            f"fetch-v{version}-{name}",
            what,
            codec=codec,
            records=consumed,
            messages={f"{topic}-0": [message_as_json(each) for each in found if each.magic < 2]},
        )
        return found


def headless(count: int) -> list[Record]:
    """Make the records of the other vectors, without the headers that came with magic 2."""
    return [Record(record.key, record.value, (), record.timestamp) for record in records(count)]


def message_as_json(message: DumpedBatch) -> dict[str, Any]:
    return {
        "offset": message.last_offset,
        "size": message.size,
        "magic": message.magic,
        "codec": message.codec,
        "crc": message.crc,
        "crc_is_valid": message.is_valid,
        "timestamp_type": message.timestamp_type,
        "timestamp": message.max_timestamp,
        "records": [[record.offset, record.timestamp] for record in message.records],
    }


def main() -> None:
    recorder = Recorder(f"Apache Kafka {OLD_KAFKA_VERSION}")
    with OldKafka() as kafka:
        try:
            OldScenarios(kafka, recorder).run()
        finally:
            recorder.close()
    directory = Path(__file__).parent / "old"
    directory.mkdir(exist_ok=True)
    recorder.save(directory)


if __name__ == "__main__":
    main()

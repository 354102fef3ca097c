"""A real Kafka 2.8.2 with ZooKeeper: the source of message formats that no newer broker writes.

A topic's ``message.format.version`` selects the format in which the broker stores records. The broker
converts records of newer clients:

- magic 0 (before 0.10): messages without a timestamp; a compressed wrapper holds messages with
  absolute offsets, and its lz4 frames have the wrong header checksum of the old Java client;
- magic 1 (0.10 to 0.10.2): messages with a timestamp; a wrapper holds offsets relative to its
  first, and can declare its own timestamp, the append time, as that of all its messages.

Clients before 0.10 sent no timestamps, and magic 1 stores -1 for them (`load_without_timestamps`).
"""

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

from confluent_kafka import Producer

from rig.cluster import OLD_LOG4J, QUICK_JVM, java_properties
from rig.jars import OLD_KAFKA_VERSION, class_path, java
from rig.load import Codec, Loaded, alter_topic, create_topic, load_batch, send_batch
from rig.ports import free_port
from rig.process import spawn, tail
from rig.readiness import await_broker
from rig.record import Record
from rig.wait import wait_until

__all__ = [
    "OLD_CODECS",
    "MessageFormat",
    "OldKafka",
    "TimestampType",
    "load_old_batch",
    "load_without_timestamps",
]

MessageFormat = Literal[0, 1, 2]
"""The magic of a topic's messages: 2 are the current record batches."""

TimestampType = Literal["CreateTime", "LogAppendTime"]

OLD_CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4")
"""Codecs of messages of magic 0 and 1; zstd came later."""

_FORMAT_VERSIONS: dict[MessageFormat, str] = {0: "0.9.0", 1: "0.10.2", 2: "2.8"}


@dataclass
class OldKafka:
    """One broker of Kafka 2.8.2 and its ZooKeeper, running inside a ``with`` block.

    Args:
        config: Broker properties, over the rig's own.

    Raises:
        MissingKafka: On entry: no Java, no Maven, or the download failed.
        KafkaDidNotStart: On entry.
    """

    config: Mapping[str, object] = field(default_factory=dict)
    _port: int = field(default_factory=free_port, repr=False)
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list, repr=False)
    _directory: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="rig-old-kafka-", ignore_cleanup_errors=True)
        try:
            self._launch()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """The broker's ``127.0.0.1:port``."""
        return f"127.0.0.1:{self._port}"

    def partition_dir(self, topic: str, partition: int) -> Path:
        """Return the directory of a partition's segments."""
        return self._path("data") / f"{topic}-{partition}"

    def output(self, lines: int = 30) -> str:
        """Return the last lines of the broker's log."""
        return tail(self._path("broker.log"), lines)

    def create_topic(
        self,
        topic: str,
        message_format: MessageFormat,
        partitions: int = 1,
        timestamp_type: TimestampType = "CreateTime",
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic whose messages the broker stores in this format."""
        own = {
            "message.format.version": _FORMAT_VERSIONS[message_format],
            "message.timestamp.type": timestamp_type,
        }
        create_topic(self.bootstrap, topic, partitions, config={**own, **(config or {})})

    def change_format(self, topic: str, message_format: MessageFormat) -> None:
        """Make the broker store new records in this format, as an upgrade does.

        The broker receives the change from ZooKeeper after its response. It logs a line before it applies
        a change, and applies one after the other: the line of a second one shows that the first holds.
        """
        version = _FORMAT_VERSIONS[message_format]
        heard = re.compile(
            rf"topics/{re.escape(topic)} with config:.*message\.format\.version -> {re.escape(version)}\b"
        )
        log = self._path("broker.log")

        def change() -> None:
            before = len(heard.findall(log.read_text()))
            alter_topic(self.bootstrap, topic, {"message.format.version": version})
            wait_until(lambda: len(heard.findall(log.read_text())) > before, f"format {version} of {topic}")

        change()
        change()

    def close(self) -> None:
        """Kill both processes and delete everything. You can call it repeatedly."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()
        if self._directory is not None:
            self._directory.cleanup()

    def _path(self, name: str) -> Path:
        assert self._directory is not None
        return Path(self._directory.name) / name

    def _launch(self) -> None:
        # Take both ports at once: the broker waits for its ZooKeeper.
        zookeeper_port = free_port()
        self._path("tmp").mkdir()
        self._path("server.properties").write_text(java_properties(self._properties(zookeeper_port)))
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self._spawn([main, str(zookeeper_port), self._path("zk")], "zookeeper.log")
        broker = self._spawn(["kafka.Kafka", self._path("server.properties")], "broker.log")
        await_broker(broker, 1, self.bootstrap, self._path("broker.log"))

    def _spawn(self, program: Sequence[str | Path], log: str) -> subprocess.Popen[bytes]:
        options = [
            "-Xmx512m",
            *QUICK_JVM,
            f"-Djava.io.tmpdir={self._path('tmp')}",
            f"-Dlog4j.configuration=file:{OLD_LOG4J}",
            # Its web server is not among the jars.
            "-Dzookeeper.admin.enableServer=false",
            "-cp",
            class_path(OLD_KAFKA_VERSION),
        ]
        process = spawn([java(), *options, *program], self._path(log))
        self._processes.append(process)
        return process

    def _properties(self, zookeeper_port: int) -> dict[str, object]:
        return {
            "broker.id": 1,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
            "log.dirs": self._path("data"),
            # The topics' own message.format.version may not be newer than this version.
            "inter.broker.protocol.version": "2.8",
            "log.message.format.version": "0.10.2",
            "log.retention.ms": -1,
            "log.cleaner.backoff.ms": 100,
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": 0,
            "offsets.topic.num.partitions": 4,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            **self.config,
        }


def load_old_batch(
    bootstrap: str,
    topic: str,
    partition: int,
    records: Sequence[Record],
    codec: Codec,
    message_format: MessageFormat,
) -> Loaded:
    """Send these records as one batch, which the broker stores in the topic's format.

    If there is a codec, the batch is one wrapper, otherwise a message for each record. The records must
    have no headers, which came with magic 2.

    Returns:
        The records that a consumer must read, except for timestamps of a LogAppendTime topic; magic 0
        has none.
    """
    load_batch(bootstrap, topic, partition, records, codec, idempotent=message_format == 2)
    return {partition: _as_seen(records, message_format)}


def load_without_timestamps(
    bootstrap: str, topic: str, partition: int, records: Sequence[Record], codec: Codec
) -> Loaded:
    """Send these records as a client of Kafka 0.9 does: messages of magic 0, by Produce 1.

    A topic of magic 1 stores them with the timestamp -1.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "api.version.request": False,
            "broker.version.fallback": "0.9.0",
            "compression.codec": codec,
            "linger.ms": 20_000,
            "log_level": 0,
        }
    )
    send_batch(producer, topic, partition, records)
    return {partition: [replace(record, timestamp=-1) for record in records]}


def _as_seen(records: Sequence[Record], message_format: MessageFormat) -> list[Record]:
    if message_format == 0:
        return [replace(record, timestamp=0, timestamp_type="none") for record in records]
    return list(records)

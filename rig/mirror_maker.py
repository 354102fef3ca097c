"""Kafka's own mirrors: MirrorMaker 1 of Kafka 3.9, the last that has it, and MirrorMaker 2."""

import signal
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from rig.cluster import LOG4J, OLD_LOG4J, QUICK_JVM, java_properties
from rig.jars import KAFKA_3_VERSION, class_path, java, mirror_maker_2_class_path
from rig.process import spawn, tail

__all__ = [
    "MirrorMaker1",
    "MirrorMaker2",
    "mirror_maker_1",
    "mirror_maker_2",
    "mirror_maker_2_properties",
]

#: Clusters of one broker.
_SINGLE = {
    f"{name}.replication.factor": 1
    for name in (
        *("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic"),
        *("offset.storage", "status.storage", "config.storage"),
    )
}


class _MirrorMaker(ABC):
    """A process with files of properties; killed at the end of the ``with`` block if it still runs."""

    def __init__(self, files: Mapping[str, Mapping[str, object]]) -> None:
        self._files = files

    @abstractmethod
    def _command(self) -> Sequence[str | Path]: ...

    def _path(self, name: str) -> Path:
        return Path(self._directory.name) / name

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="rig-mirror-maker-")
        for name, properties in self._files.items():
            self._path(name).write_text(java_properties(properties))
            self._path(name).chmod(0o600)
        self._process = spawn(self._command(), self._path("log"))
        return self

    def output(self, lines: int = 30) -> str:
        """Return the last lines of its log."""
        return tail(self._path("log"), lines)

    def stop(self, timeout_s: float = 60) -> int:
        """Stop it cleanly, as Ctrl-C does; return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def wait(self, timeout_s: float = 120) -> int:
        """Wait until it ends by itself; return its exit code."""
        return self._process.wait(timeout_s)

    def __exit__(self, *exc_info: object) -> None:
        self.kill()
        self._directory.cleanup()


class MirrorMaker1(_MirrorMaker):
    """A running ``kafka.tools.MirrorMaker``."""

    def __init__(
        self, consumer: Mapping[str, object], producer: Mapping[str, object], options: Sequence[str] = ()
    ) -> None:
        """
        Args:
            consumer: Properties of its consumer.
            producer: Properties of its producer.
            options: The other arguments of its command line.
        """
        super().__init__({"consumer": consumer, "producer": producer})
        self._options = options

    def _command(self) -> Sequence[str | Path]:
        jvm = ["-Xmx256m", *QUICK_JVM]
        return mirror_maker_1(jvm, self._path("consumer"), self._path("producer"), self._options)


def mirror_maker_1(
    jvm: Sequence[str], consumer_file: Path, producer_file: Path, options: Sequence[str]
) -> list[str | Path]:
    """Return the command of ``kafka.tools.MirrorMaker``."""
    tool: list[str | Path] = [java(), *jvm, f"-Dlog4j.configuration=file:{OLD_LOG4J}"]
    tool += ["-cp", class_path(KAFKA_3_VERSION), "kafka.tools.MirrorMaker"]
    return [*tool, "--consumer.config", consumer_file, "--producer.config", producer_file, *options]


class MirrorMaker2(_MirrorMaker):
    """A running MirrorMaker 2, as a dedicated process."""

    def __init__(
        self,
        source: str,
        destination: str,
        topics: str,
        alias: str = "source",
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """
        Args:
            source: The source cluster's bootstrap servers.
            destination: The destination cluster's bootstrap servers.
            topics: A regular expression.
            alias: The source cluster's alias, which prefixes the names of the copies.
            properties: Further properties.
        """
        every = mirror_maker_2_properties(source, destination, topics, alias, properties or {})
        super().__init__({"properties": every})

    def _command(self) -> Sequence[str | Path]:
        return mirror_maker_2(["-Xmx512m", *QUICK_JVM], self._path("properties"))


def mirror_maker_2(jvm: Sequence[str], properties_file: Path) -> list[str | Path]:
    """Return the command of a dedicated MirrorMaker 2."""
    tool: list[str | Path] = [java(), *jvm, f"-Dlog4j2.configurationFile={LOG4J}"]
    tool += ["-cp", mirror_maker_2_class_path(), "org.apache.kafka.connect.mirror.MirrorMaker"]
    return [*tool, properties_file]


def mirror_maker_2_properties(
    source: str, destination: str, topics: str, alias: str, more: Mapping[str, object]
) -> dict[str, object]:
    """Return the properties of a MirrorMaker 2 between clusters of one broker; see `MirrorMaker2`."""
    return {
        "clusters": f"{alias}, destination",
        f"{alias}.bootstrap.servers": source,
        "destination.bootstrap.servers": destination,
        f"{alias}->destination.enabled": "true",
        f"{alias}->destination.topics": topics,
        "replication.factor": 1,
        "sync.topic.acls.enabled": "false",
        **_SINGLE,
        **more,
    }

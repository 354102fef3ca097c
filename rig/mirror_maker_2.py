"""MirrorMaker 2 as a dedicated process: shoal takes over its copies in tests."""

import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rig.cluster import LOG4J, QUICK_JVM, java_properties
from rig.jars import java, mirror_maker_2_class_path
from rig.process import spawn, tail

__all__ = ["MirrorMaker2"]

#: Clusters of one broker.
_SINGLE = {
    f"{name}.replication.factor": 1
    for name in (
        *("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic"),
        *("offset.storage", "status.storage", "config.storage"),
    )
}


@dataclass
class MirrorMaker2:
    """A running MirrorMaker 2; killed at the end of the ``with`` block if it still runs.

    Args:
        source: The source cluster's bootstrap servers.
        destination: The destination cluster's bootstrap servers.
        topics: A regular expression.
        alias: The source cluster's alias, which prefixes the names of the copies.
        properties: Further properties.
    """

    source: str
    destination: str
    topics: str
    alias: str = "source"
    properties: Mapping[str, object] = field(default_factory=dict)
    _directory: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="rig-mirror-maker-2-")
        self._path("properties").write_text(java_properties(self._properties()))
        self._process = spawn(
            [
                java(),
                "-Xmx512m",
                *QUICK_JVM,
                f"-Dlog4j2.configurationFile={LOG4J}",
                "-cp",
                mirror_maker_2_class_path(),
                "org.apache.kafka.connect.mirror.MirrorMaker",
                self._path("properties"),
            ],
            self._path("log"),
        )
        return self

    def _properties(self) -> Mapping[str, object]:
        return {
            "clusters": f"{self.alias}, destination",
            f"{self.alias}.bootstrap.servers": self.source,
            "destination.bootstrap.servers": self.destination,
            f"{self.alias}->destination.enabled": "true",
            f"{self.alias}->destination.topics": self.topics,
            "replication.factor": 1,
            "sync.topic.acls.enabled": "false",
            **_SINGLE,
            **self.properties,
        }

    def _path(self, name: str) -> Path:
        assert self._directory is not None
        return Path(self._directory.name) / name

    def output(self, lines: int = 30) -> str:
        """Return the last lines of its log."""
        return tail(self._path("log"), lines)

    def stop(self, timeout_s: float = 60) -> int:
        """Stop it cleanly, as Ctrl-C does; return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout_s)

    def __exit__(self, *exc_info: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._directory is not None:
            self._directory.cleanup()

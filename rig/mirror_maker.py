"""MirrorMaker 1 of Kafka 3.9, the last that has it, for comparison with `shoal mirror-maker`."""

import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rig.cluster import OLD_LOG4J, QUICK_JVM, java_properties
from rig.jars import KAFKA_3_VERSION, class_path, java
from rig.process import spawn, tail

__all__ = ["MirrorMaker1", "mirror_maker_1"]


def mirror_maker_1(
    jvm: Sequence[str], consumer_file: Path, producer_file: Path, options: Sequence[str]
) -> list[str | Path]:
    """Return the command of ``kafka.tools.MirrorMaker``."""
    return [
        java(),
        *jvm,
        f"-Dlog4j.configuration=file:{OLD_LOG4J}",
        "-cp",
        class_path(KAFKA_3_VERSION),
        "kafka.tools.MirrorMaker",
        "--consumer.config",
        consumer_file,
        "--producer.config",
        producer_file,
        *options,
    ]


@dataclass
class MirrorMaker1:
    """A running ``kafka.tools.MirrorMaker``; killed at the end of the ``with`` block if it still runs.

    Args:
        consumer: Properties of its consumer.
        producer: Properties of its producer.
        options: The other arguments of its command line.
    """

    consumer: Mapping[str, object]
    producer: Mapping[str, object]
    options: tuple[str, ...] = ()
    _directory: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="rig-mirror-maker-")
        for name, properties in (("consumer", self.consumer), ("producer", self.producer)):
            self._path(name).write_text(java_properties(properties))
            self._path(name).chmod(0o600)
        jvm = ["-Xmx256m", *QUICK_JVM]
        command = mirror_maker_1(jvm, self._path("consumer"), self._path("producer"), self.options)
        self._process = spawn(command, self._path("log"))
        return self

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
        return self.wait(timeout_s)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def wait(self, timeout_s: float = 120) -> int:
        """Wait until it ends by itself; return its exit code."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def __exit__(self, *exc_info: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._directory is not None:
            self._directory.cleanup()

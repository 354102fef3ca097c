"""Clients of Kafka from 0.8.2 to 2.8.2, from other projects, which use the protocol's old versions.

Kafka's own Java clients run in a JVM with the jars of their version (`OldClient.java`). kafka-python 2.0.2
runs in a separate process (`kafka_python_2.py`), with its behaviour for Kafka 0.8.2, 0.9 and 0.10.

Both programs take arguments as ``name=value`` and print JSON lines: ``{"assigned": [0, 1]}`` if their
partitions change, and for each record its partition, offset, timestamp and timestamp type, key and value
(base64, or null) and headers. A producer reads lines of partition, timestamp, key and value, separated by
tabs, with "-" for null. It prints the partition and offset of each.

    for client in OLD_CLIENTS:
        client.read("127.0.0.1:9092", "orders", partitions=4, records=1000)
"""

import base64
import hashlib
import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rig.cluster import QUICK_JVM
from rig.jars import MissingKafka, client_jars, fetched, java
from rig.process import tail
from rig.record import Record

__all__ = ["OLD_CLIENTS", "Member", "OldClient", "OldClientFailed"]

_HERE = Path(__file__).parent
_JAVA_PROGRAM = _HERE / "OldClient.java"
_PYTHON_PROGRAM = _HERE / "kafka_python_2.py"
_KAFKA_PYTHON = "kafka-python==2.0.2"
#: A dependency of it, since its own copy is too old for this Python.
_SIX = "six==1.17.0"

_RUN_TIMEOUT_S = 120.0


class OldClientFailed(Exception):
    """A client ended with an error, or did not end; the text has its output."""


@dataclass(frozen=True, slots=True)
class OldClient:
    """One client, of one version.

    Attributes:
        name: Name in test ids.
        fetch_version: The newest Fetch version that it sends, if a broker supports all.
        produce_version: The newest Produce version that it sends, likewise.
        joins_groups: Whether it shares partitions with other members; 0.8.2 could only commit.
        command: Returns the command that runs it, without arguments; fetches its packages on the first call.
        words: Arguments of every call.
        dots: Replacement for dots in names of settings: kafka-python has underscores.
    """

    name: str
    fetch_version: int
    produce_version: int
    command: Callable[[], list[str]] = field(repr=False)
    joins_groups: bool = True
    words: tuple[str, ...] = ()
    dots: str = "."

    @property
    def fetched_magic(self) -> int:
        """The newest message format that a broker may return to its Fetch."""
        return 0 if self.fetch_version < 2 else 1 if self.fetch_version < 4 else 2

    @property
    def produced_magic(self) -> int:
        """The message format that it sends."""
        return 0 if self.produce_version < 2 else 1 if self.produce_version < 3 else 2

    def as_seen(self, record: Record) -> Record:
        """Return a current record as this client must read it: without the fields that its format lacks."""
        magic = self.fetched_magic
        return Record(
            record.key,
            record.value,
            record.headers if magic == 2 else (),
            record.timestamp if magic else -1,
            record.timestamp_type if magic else "none",
            record.offset,
        )

    def read(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        records: int,
        settings: Mapping[str, object] | None = None,
    ) -> dict[int, list[Record]]:
        """Read partitions from their beginning, without a group.

        Args:
            records: Smallest number of records; the client also reads any that follow soon.
            settings: Client settings, by their Java names.

        Raises:
            OldClientFailed: The client read fewer records, or failed otherwise.
        """
        words = [f"partitions={partitions}", f"records={records}"]
        return _by_partition(_events(self._command("consume", bootstrap, topic, words, settings)))

    def read_and_commit(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        *,
        records: int,
    ) -> dict[int, list[Record]]:
        """Read exactly this many records as a group's only member, commit, and leave.

        Reading starts at the committed offset.
        """
        words = [f"group={group}", f"records={records}", "commit=true"]
        return _by_partition(_events(self._command("consume", bootstrap, topic, words)))

    def member(
        self, bootstrap: str, topic: str, group: str, settings: Mapping[str, object] | None = None
    ) -> "Member":
        """Return a group member that reads inside a ``with`` block and never commits."""
        return Member(self._command("consume", bootstrap, topic, [f"group={group}"], settings))

    def follower(
        self, bootstrap: str, topic: str, partitions: int, settings: Mapping[str, object] | None = None
    ) -> "Member":
        """Return a reader of partitions from their beginning inside a ``with`` block, without a group."""
        return Member(self._command("consume", bootstrap, topic, [f"partitions={partitions}"], settings))

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[tuple[int, Record]],
        settings: Mapping[str, object] | None = None,
    ) -> list[tuple[int, int]]:
        """Send records to their partitions.

        The client sends timestamps if its format has them, and never headers.

        Returns:
            The partition and acknowledged offset of each record.
        """
        lines = [
            f"{partition}\t{record.timestamp if self.produced_magic else '-'}\t"
            f"{_text(record.key)}\t{_text(record.value)}"
            for partition, record in records
        ]
        command = self._command("produce", bootstrap, topic, [], settings)
        said = _events(command, "".join(f"{line}\n" for line in lines))
        return [(each["partition"], each["offset"]) for each in said]

    def _command(
        self,
        verb: str,
        bootstrap: str,
        topic: str,
        words: Sequence[str],
        settings: Mapping[str, object] | None = None,
    ) -> list[str]:
        own = [f"client.{name.replace('.', self.dots)}={value}" for name, value in (settings or {}).items()]
        return [
            *self.command(),
            verb,
            f"bootstrap={bootstrap}",
            f"topic={topic}",
            *self.words,
            *words,
            *own,
        ]


class Member:
    """A running consumer; killed at the end of the ``with`` block if it does not end by itself."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()
        self._directory = tempfile.TemporaryDirectory(prefix="rig-old-client-")
        self._log = Path(self._directory.name) / "stderr"
        self._errors: str | None = None
        self.assigned: list[int] = []
        self.records: dict[int, list[Record]] = {}

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(_RUN_TIMEOUT_S if kind is None else 1)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._take_in()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors = tail(self._log)
        self._directory.cleanup()
        if kind is None and self._process.returncode:
            raise OldClientFailed(f"ended with {self._process.returncode}:\n{self._errors}")

    def listen(self) -> None:
        """Read its output so far.

        Raises:
            OldClientFailed: The client has ended.
        """
        self._take_in()
        if self._process.poll() is not None:
            raise OldClientFailed(f"ended with {self._process.returncode}:\n{tail(self._log)}")

    def _take_in(self) -> None:
        while not self._said.empty():
            event = self._said.get()
            if "assigned" in event:
                self.assigned = event["assigned"]
            else:
                self.records.setdefault(event["partition"], []).append(_record(event))

    def errors(self) -> str:
        """Return the last lines of its log, also after it has ended."""
        return self._errors if self._errors is not None else tail(self._log)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(json.loads(line))


def _output(command: Sequence[str], stdin: str) -> str:
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=_RUN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as expired:
        lines = (expired.stdout or b"").count(b"\n")
        errors = (expired.stderr or b"").decode(errors="replace")[-4000:]
        raise OldClientFailed(
            f"was still running after {_RUN_TIMEOUT_S:g} s, having said {lines} lines:\n{errors}"
        ) from expired
    if done.returncode:
        raise OldClientFailed(f"ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout


def _events(command: Sequence[str], stdin: str = "") -> list[dict[str, Any]]:
    return [json.loads(line) for line in _output(command, stdin).splitlines()]


def _by_partition(events: Sequence[dict[str, Any]]) -> dict[int, list[Record]]:
    records: dict[int, list[Record]] = {}
    for event in events:
        if "offset" in event:
            records.setdefault(event["partition"], []).append(_record(event))
    return dict(sorted(records.items()))


def _record(event: Mapping[str, Any]) -> Record:
    return Record(
        _bytes(event["key"]),
        _bytes(event["value"]),
        tuple((name, _bytes(value)) for name, value in event["headers"]),
        event["timestamp"],
        event["timestamp_type"],
        event["offset"],
    )


def _text(data: bytes | None) -> str:
    return "-" if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _kafka_python() -> list[str]:
    directory = fetched("kafka-python-2.0.2", _install_kafka_python)
    # This directory comes before site-packages, which has the newer version that shoal uses.
    return ["env", f"PYTHONPATH={directory}", sys.executable, str(_PYTHON_PROGRAM)]


def _install_kafka_python(directory: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*pip, "--target", str(directory), _KAFKA_PYTHON, _SIX], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise MissingKafka(f"pip could not install {_KAFKA_PYTHON}:\n{done.stdout}{done.stderr}")


def _kafka_clients(version: str, limits: str = "") -> list[str]:
    return _java(f"{client_jars(version)}/*", f"clients-{version}", limits)


def _java(jars: str, name: str, limits: str) -> list[str]:
    """Return the command of the Java program with these jars, compiled against them once."""
    source = hashlib.sha256(_JAVA_PROGRAM.read_bytes()).hexdigest()[:8]
    classes = fetched(f"{name}-program-{source}", lambda directory: _compile(jars, directory))
    return [
        str(java()),
        "-Xmx256m",
        *QUICK_JVM,
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        f"-Dlimits={limits}",
        *("-cp", f"{classes}:{jars}", "OldClient"),
    ]


def _compile(jars: str, directory: Path) -> None:
    javac = java().parent / "javac"
    command = [str(javac), "-nowarn", "-Xlint:none", "-cp", jars, "-d", str(directory), str(_JAVA_PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingKafka(f"javac could not compile {_JAVA_PROGRAM.name}:\n{done.stdout}{done.stderr}")


def _python_as_of(api_version: str, fetch_version: int, produce_version: int) -> OldClient:
    return OldClient(
        f"kafka-python 2.0.2 as of {api_version}",
        fetch_version,
        produce_version,
        _kafka_python,
        joins_groups=api_version != "0.8.2",
        words=(f"api_version={api_version}",),
        dots="_",
    )


OLD_CLIENTS: tuple[OldClient, ...] = (
    _python_as_of("0.8.2", 0, 0),
    _python_as_of("0.9", 1, 1),
    _python_as_of("0.10", 2, 2),
    _python_as_of("0.10.1", 3, 2),
    OldClient("Java 0.9.0.1", 1, 1, lambda: _kafka_clients("0.9.0.1")),
    OldClient("Java 0.10.0.1", 2, 2, lambda: _kafka_clients("0.10.0.1")),
    OldClient("Java 0.10.2.2", 3, 2, lambda: _kafka_clients("0.10.2.2")),
    OldClient("Java 1.0.2", 6, 5, lambda: _kafka_clients("1.0.2")),
    OldClient(
        "Java 1.0.2 up to Fetch 3", 3, 2, lambda: _kafka_clients("1.0.2", "FETCH:3,PRODUCE:2,LIST_OFFSETS:1")
    ),
    OldClient("Java 2.8.2", 12, 9, lambda: _kafka_clients("2.8.2")),
    # Its producer uses only Produce 2 for messages before magic 2.
    OldClient(
        "Java 2.8.2 up to Fetch 1",
        1,
        2,
        lambda: _kafka_clients("2.8.2", "FETCH:1,PRODUCE:2,LIST_OFFSETS:0,OFFSET_COMMIT:1,OFFSET_FETCH:1"),
    ),
)
"""The oldest first; each reads and writes the formats of its time."""

"""Run a mover once, and count what it uses from half of its records to the last.

By then its processes are warm and its connections open, so a start is no part of the figure; nothing is
computed as the difference of two runs. The records are counted at the destination, by its end offsets.
"""

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.account import Account, running
from bench.mover import Command, Job, Mover
from rig import KafkaCluster, TimedOut, wait_until
from rig.process import tail

__all__ = [
    "GIGABYTE",
    "AtWork",
    "MoverFailed",
    "Window",
    "at_work",
    "count_records",
    "end_offsets",
    "measure",
]

GIGABYTE = 1_000_000_000

#: The part of the records that is not measured: meanwhile a JVM compiles its code.
_BEGINS_AT = 0.5
_LOOK_INTERVAL_S = 0.02
_MEMORY_INTERVAL_S = 2.0
_ENDS_S = 120.0
_TIMEOUT_S = 1800.0

#: A pause as ``-Xlog:gc:file=FILE:time`` logs it; what a collector does beside the program is none.
#: [2026-11-22T15:25:01.123+0000] GC(7) Pause Young (Normal) (G1 Evacuation Pause) 24M->5M(256M) 2.345ms
_PAUSE = re.compile(r"^\[(?P<at>[^]]+)\]\s*GC\(\d+\) Pause .*?(?P<ms>[\d.,]+)ms$", re.MULTILINE)
_TOPIC_IS_NEW = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)


class MoverFailed(Exception):
    """A mover ended with an error, or did not copy everything; the text has its output."""


@dataclass(frozen=True)
class AtWork:
    """A mover that runs.

    Attributes:
        name: Its name in errors.
        log: The file of its output.
    """

    name: str
    process: subprocess.Popen[bytes]
    account: Account
    log: Path

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = _TIMEOUT_S) -> None:
        """Wait for a condition.

        Raises:
            MoverFailed: The mover ended before.
            TimedOut: The condition did not hold within the time.
        """

        def holds() -> bool:
            has_ended = self.process.poll() is not None  # before the look, so that its last work counts
            if condition():
                return True
            if has_ended:
                raise MoverFailed(f"{self.name} ended with {self.process.returncode}:\n{tail(self.log)}")
            return False

        try:
            wait_until(holds, what, timeout_s, _LOOK_INTERVAL_S)
        except TimedOut as error:
            raise TimedOut(f"{self.name}: {error}:\n{tail(self.log)}") from error

    def await_end(self, timeout_s: float) -> None:
        """Wait until it has ended well by itself; raise MoverFailed otherwise."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise MoverFailed(f"{self.name} runs after {timeout_s:g} s:\n{tail(self.log)}") from error
        if code:
            raise MoverFailed(f"{self.name} ended with {code}:\n{tail(self.log)}")

    def percent_of_a_core(self, seconds: float) -> float:
        """Return its CPU over a time."""
        began, before = time.monotonic(), self.account.cpu_s()
        time.sleep(seconds)  # the time itself is the purpose
        return 100 * (self.account.cpu_s() - before) / (time.monotonic() - began)


@contextmanager
def at_work(name: str, command: Command, directory: Path) -> Iterator[AtWork]:
    """Run a mover inside a ``with`` block; its output and its state go into a directory."""
    log = directory / "mover.log"
    environment = {"XDG_STATE_HOME": str(directory / "state"), **command.environment}
    with running(command.arguments, log, environment, command.directory) as (process, account):
        yield AtWork(name, process, account, log)


@dataclass(frozen=True)
class Window:
    """The usage of a mover from half of its records to the last.

    Attributes:
        part: The part of the records that it copied in this time, such as 0.5.
        seconds: The time between the first and the last of them.
        cpu_s: User and system time of all its processes.
        source_cpu_s: User and system time of the source's brokers.
        destination_cpu_s: The same of the destination's.
        pss: Bytes; the highest sum over its processes. A shared page is divided among its processes.
        pauses_s: The pauses of its JVM to collect garbage.
    """

    part: float
    seconds: float
    cpu_s: float
    source_cpu_s: float = 0.0
    destination_cpu_s: float = 0.0
    pss: int = 0
    pauses_s: Sequence[float] = ()


def measure(
    mover: Mover,
    job: Job,
    source: KafkaCluster,
    destination: KafkaCluster,
) -> tuple[Window, str]:
    """Let a mover copy a topic.

    Returns:
        The usage, and the destination topic.

    Raises:
        MoverFailed: The mover failed, or the copy has another number of records than the source.
        TimedOut: The mover was still running after this time.
    """
    expected = sum(end_offsets(job.source, job.topic)) if job.records is None else job.records
    with mover.command(job) as command, at_work(mover.name, command, job.directory) as runs:
        meter = _Meter(runs, (source, destination), count_records(job.destination, command.copy))
        begin = meter.reach(max(1, int(_BEGINS_AT * expected)))
        end = meter.reach(expected)
        meter.look_at_memory(at_once=True)
        if command.ends_by_itself:
            runs.await_end(_ENDS_S)
    found = sum(end_offsets(job.destination, command.copy))
    if found != expected:
        raise MoverFailed(f"{mover.name} copied {found} of {expected} records:\n{tail(runs.log)}")
    window = Window(
        part=(expected - begin.records) / expected,
        seconds=end.at - begin.at,
        cpu_s=end.cpu_s - begin.cpu_s,
        source_cpu_s=end.brokers_s[0] - begin.brokers_s[0],
        destination_cpu_s=end.brokers_s[1] - begin.brokers_s[1],
        pss=meter.pss,
        pauses_s=[each for at, each in _pauses(job.gc_log) if begin.unix_time <= at <= end.unix_time],
    )
    return window, command.copy


@dataclass(frozen=True)
class _Reading:
    """The records that are copied, and what was used for them, at a time."""

    records: int
    at: float
    unix_time: float
    cpu_s: float
    brokers_s: Sequence[float]


class _Meter:
    """Watches a mover that runs.

    Attributes:
        pss: The most bytes that it saw.
    """

    def __init__(self, runs: AtWork, clusters: Sequence[KafkaCluster], records: Callable[[], int]) -> None:
        self.pss = 0
        self._runs = runs
        self._clusters = clusters
        self._records = records
        self._pss_at = 0.0

    def reach(self, count: int) -> _Reading:
        """Wait until so many records are copied."""
        found = 0

        def is_reached() -> bool:
            nonlocal found
            found = self._records()
            if found < count:
                self.look_at_memory()
            return found >= count

        self._runs.until(is_reached, f"{count} records")
        cpu_s, brokers_s = self._runs.account.cpu_s(), [each.cpu_seconds() for each in self._clusters]
        return _Reading(found, time.monotonic(), time.time(), cpu_s, brokers_s)

    def look_at_memory(self, at_once: bool = False) -> None:
        """Read the memory, but seldom: a process is halted while the kernel walks its pages."""
        if at_once or time.monotonic() > self._pss_at + _MEMORY_INTERVAL_S:
            self.pss = max(self.pss, self._runs.account.pss())
            self._pss_at = time.monotonic()


def _pauses(log: Path) -> Iterator[tuple[float, float]]:
    """Yield the pauses of a JVM to collect garbage: the end as Unix time, and the seconds."""
    for found in _PAUSE.finditer(log.read_text() if log.exists() else ""):
        at = datetime.fromisoformat(found["at"]).timestamp()
        yield at, float(found["ms"].replace(",", ".")) / 1000


def count_records(bootstrap: str, topic: str) -> Callable[[], int]:
    """Return a function that counts a topic's records, by one request; 0 while the topic does not exist."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    partitions: list[int] = []

    def count() -> int:
        try:
            if not partitions:
                partitions.extend(_partitions(admin, topic))
            return sum(_ends(admin, topic, partitions)) if partitions else 0
        except KafkaException as error:
            if error.args[0].code() in _TOPIC_IS_NEW:
                return 0
            raise

    return count


def end_offsets(bootstrap: str, topic: str) -> list[int]:
    """Return the end offset of each partition; empty while the topic does not exist."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    partitions = _partitions(admin, topic)
    return _ends(admin, topic, partitions) if partitions else []


def _partitions(admin: AdminClient, topic: str) -> list[int]:
    found = admin.list_topics(timeout=30).topics.get(topic)
    return [] if found is None else sorted(found.partitions)


def _ends(admin: AdminClient, topic: str, partitions: Sequence[int]) -> list[int]:
    asked = [TopicPartition(topic, partition) for partition in partitions]
    latest = dict.fromkeys(asked, OffsetSpec.latest())
    answers = admin.list_offsets(latest, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=30)
    return [answers[each].result().offset for each in asked]

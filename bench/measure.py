"""Run a mover once, and count what it uses from half of its records to the last.

By then its processes are warm and its connections open, so a start is no part of the figure; nothing is
computed as the difference of two runs. The records are counted at the destination, by its end offsets.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.account import Account, running
from bench.mover import Job, Mover
from bench.yardstick import Yardstick
from rig import KafkaCluster, TimedOut
from rig.process import tail

__all__ = [
    "GIGABYTE",
    "MoverFailed",
    "Window",
    "all_copied",
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
_TOPIC_IS_NEW = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)


class MoverFailed(Exception):
    """A mover ended with an error, or did not copy everything; the text has its output."""


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
        yardstick_ms: `bench.yardstick`, beside the whole run.
    """

    part: float
    seconds: float
    cpu_s: float
    source_cpu_s: float = 0.0
    destination_cpu_s: float = 0.0
    pss: int = 0
    yardstick_ms: float = 0.0


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
    with mover.command(job) as command, Yardstick() as yardstick:
        run = _Run(job, source, destination, yardstick, time.monotonic() + _TIMEOUT_S)
        with running(command.arguments, run.log, command.environment, command.directory) as (
            process,
            account,
        ):

            def check() -> None:
                if time.monotonic() > run.deadline:
                    raise TimedOut(f"{mover.name} was still running after {_TIMEOUT_S:g} s:\n{tail(run.log)}")
                if process.poll() not in (None, 0):
                    raise MoverFailed(f"{mover.name} ended with {process.returncode}:\n{tail(run.log)}")

            window = run.watch(account, command.copy, check)
            if command.ends_by_itself:
                ends_by = time.monotonic() + _ENDS_S
                while process.poll() is None and time.monotonic() < ends_by:
                    time.sleep(_LOOK_INTERVAL_S)
                if process.poll() != 0:
                    raise MoverFailed(f"{mover.name} ended with {process.returncode}:\n{tail(run.log)}")
        found = sum(end_offsets(job.destination, command.copy))
        if found != run.expected:
            raise MoverFailed(f"{mover.name} copied {found} of {run.expected} records:\n{tail(run.log)}")
        return window, command.copy


class _Run:
    """The measurement of one run."""

    def __init__(
        self,
        job: Job,
        source: KafkaCluster,
        destination: KafkaCluster,
        yardstick: Yardstick,
        deadline: float,
    ) -> None:
        self.log = job.directory / "mover.log"
        self.deadline = deadline
        self.expected = sum(end_offsets(job.source, job.topic)) if job.records is None else job.records
        self._job = job
        self._clusters = source, destination
        self._yardstick = yardstick
        self._pss = 0
        self._pss_at = 0.0

    def watch(self, account: Account, copy: str, check: Callable[[], None]) -> Window:
        records = count_records(self._job.destination, copy)

        def reach(count: int) -> tuple[int, _Reading]:
            while (found := records()) < count:
                check()
                self._look_at_memory(account)
                time.sleep(_LOOK_INTERVAL_S)
            return found, self._read(account)

        at, begin = reach(max(1, int(_BEGINS_AT * self.expected)))
        _, end = reach(self.expected)
        self._look_at_memory(account, at_once=True)
        return Window(
            part=(self.expected - at) / self.expected,
            seconds=end.at - begin.at,
            cpu_s=end.cpu_s - begin.cpu_s,
            source_cpu_s=end.brokers_s[0] - begin.brokers_s[0],
            destination_cpu_s=end.brokers_s[1] - begin.brokers_s[1],
            pss=self._pss,
            yardstick_ms=self._yardstick.milliseconds,
        )

    def _read(self, account: Account) -> "_Reading":
        return _Reading(time.monotonic(), account.cpu_s(), [each.cpu_seconds() for each in self._clusters])

    def _look_at_memory(self, account: Account, at_once: bool = False) -> None:
        """Read the memory, but seldom: a process is halted while the kernel walks its pages."""
        if at_once or time.monotonic() > self._pss_at + _MEMORY_INTERVAL_S:
            self._pss = max(self._pss, account.pss())
            self._pss_at = time.monotonic()


@dataclass(frozen=True)
class _Reading:
    at: float
    cpu_s: float
    brokers_s: Sequence[float]


def all_copied(bootstrap: str, copy: str, expected: int) -> Callable[[], bool]:
    """Return a check whether a topic has this many records; the topic need not exist yet."""
    records = count_records(bootstrap, copy)
    return lambda: records() >= expected


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

"""The cost of idle partitions: ``python -m bench.partitions --help``.

Two movers of the same kind run side by side between the same clusters: one has the busy partitions alone, the
other as many busy ones and a thousand idle ones. They take turns with the same work. Each time, the bench
measures the CPU of the working mover, from before the first record is loaded until its copy is complete:

- *steady*: records come at a steady rate, so that each fetch brings little;
- *backlog*: all copied records were there before (SIGSTOP stops the copy loop during the load).

*idle* is the CPU of a minute without records.
"""

import argparse
import itertools
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import IsolationLevel, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.account import Account, running
from bench.measure import MoverFailed
from bench.report import machine, markdown, say, versions
from rig import (
    BENCH_JVM,
    KAFKA_VERSION,
    KafkaCluster,
    create_topic,
    digest_topic,
    load_plain,
    two_clusters,
    wait_until,
)
from rig.process import tail
from rig.shoal import shoal_command
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.mirroring.assignment import partitions_of
from shoal.mirroring.control import Uncontrolled
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.task.task import run_copy_task

_RESULTS = Path(__file__).parent / "results.md"
_VALUE_BYTES = 1000
_RECORDS_PER_BATCH = 16
_STARTS_S = 300.0
_COPIES_S = 600.0
_ENDS_S = 30.0

#: If a mover is quiet for so long, it counts as idle: longer than its intervals of commits and reports.
_QUIET_S = 10.0

_IDLE_PER_TOPIC = 50


@dataclass
class _Runner:
    """A mover that does not end by itself, and its usage.

    Attributes:
        name: Name in the table.
        busy: The topic that gets records.
        idle: The topics that get none.
        backlog: CPU-seconds per GB of each backlog.
        steady: CPU-seconds per GB of each steady load.
        idle_minute: CPU-seconds of each minute without records.
    """

    name: str
    busy: str
    idle: Sequence[str]
    process: subprocess.Popen[bytes]
    account: Account
    log: Path
    backlog: list[float] = field(default_factory=list)
    steady: list[float] = field(default_factory=list)
    idle_minute: list[float] = field(default_factory=list)

    def cpu_s(self) -> float:
        """Return the CPU-seconds of the mover and all its descendants so far."""
        if self.process.poll() is not None:
            raise MoverFailed(f"{self.name} ended with {self.process.returncode}:\n{tail(self.log)}")
        return self.account.cpu().total_s


@dataclass(frozen=True)
class _Bench:
    source: KafkaCluster
    destination: KafkaCluster
    busy_partitions: int

    def await_copy(self, runner: _Runner) -> None:
        def is_copied() -> bool:
            runner.cpu_s()  # raises if it has ended
            ends = [self._ends(each, runner.busy) for each in (self.source, self.destination)]
            return ends[0] == ends[1]

        wait_until(is_copied, f"{runner.name}: the copy of {runner.busy}", _COPIES_S)

    def _ends(self, cluster: KafkaCluster, topic: str) -> list[int]:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        asked = {TopicPartition(topic, each): OffsetSpec.latest() for each in range(self.busy_partitions)}
        answers = admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=30
        )
        return [answer.result().offset for answer in answers.values()]

    def load(self, topic: str, megabytes: int) -> None:
        load_plain(
            self.source.bootstrap,
            topic,
            "lz4",
            _RECORDS_PER_BATCH,
            megabytes * 1_000_000,
            partitions=self.busy_partitions,
            create=False,
            first_timestamp_ms=int(time.time() * 1000) - 3_600_000,
        )

    def backlog(self, runner: _Runner, megabytes: int) -> float:
        """Return the CPU-seconds per GB of copying records that were there before."""
        before = runner.cpu_s()
        runner.process.send_signal(signal.SIGSTOP)
        try:
            self.load(runner.busy, megabytes)
        finally:
            runner.process.send_signal(signal.SIGCONT)
        self.await_copy(runner)
        return (runner.cpu_s() - before) / megabytes * 1000

    def steady(self, runner: _Runner, megabytes_per_s: float, seconds: float) -> float:
        """Return the CPU-seconds per GB of copying records that come at a steady rate."""
        before = runner.cpu_s()
        count = self._send(runner.busy, megabytes_per_s, seconds)
        self.await_copy(runner)
        return (runner.cpu_s() - before) / (count * _VALUE_BYTES) * 1e9

    def _send(self, topic: str, megabytes_per_s: float, seconds: float) -> int:
        """Send records of random bytes to random partitions, evenly over the time; return their number."""
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)

        producer = Producer(
            {
                "bootstrap.servers": self.source.bootstrap,
                "linger.ms": 50,
                "enable.idempotence": True,
                "delivery.report.only.error": True,
            }
        )
        dice = random.Random(0)
        values = [dice.randbytes(_VALUE_BYTES) for _ in range(100)]
        began, sent = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            for _ in range(int(passed * megabytes_per_s * 1e6 / _VALUE_BYTES) - sent):
                partition = dice.randrange(self.busy_partitions)
                producer.produce(topic, values[sent % 100], partition=partition, on_delivery=delivered)
                sent += 1
            producer.poll(0.005)
        if producer.flush(60) or failures:
            raise MoverFailed(f"the load did not reach the source: {failures[:1]}")
        return sent

    def await_quiet(self, runner: _Runner) -> None:
        """Wait until a mover has copied everything and has no periodic work left, such as a commit."""
        self.await_copy(runner)
        time.sleep(_QUIET_S)  # the time itself is the purpose

    def verify(self, runner: _Runner) -> None:
        if digest_topic(self.source.bootstrap, runner.busy) != digest_topic(
            self.destination.bootstrap, runner.busy
        ):
            raise MoverFailed(f"{runner.name}: the copy of {runner.busy} has other records")


def _copy(source_servers: str, destination_servers: str, group: str, topics: Sequence[str]) -> None:
    """Run the copy loop of a Spark task of shoal, with all partitions of some topics, until killed."""
    source, _ = ClientConfig.from_properties("source", {"bootstrap.servers": source_servers})
    destination, _ = ClientConfig.from_properties("destination", {"bootstrap.servers": destination_servers})
    with Cluster(source) as cluster:
        partitions = partitions_of(cluster, topics)
    ranges = [CopyRange(each.topic, each.partition, each.topic, 0, OPEN_END) for each in partitions]
    run_copy_task(ranges, CopySettings(source, destination, group, rules="bench"), Uncontrolled())


def _arguments(
    mover: str, source: KafkaCluster, destination: KafkaCluster, topics: Sequence[str]
) -> list[str]:
    if mover == "shoal":
        between = ["--from", source.bootstrap, "--to", destination.bootstrap]
        regex = "|".join(topics)
        return shoal_command("mirror", *between, "--topics", regex, "--group", topics[0])
    between = [source.bootstrap, destination.bootstrap]
    return [sys.executable, "-m", "bench.partitions", "copy", *between, topics[0], *topics]


@contextmanager
def _running(
    bench: _Bench, mover: str, name: str, busy: str, idle: Sequence[str], directory: Path
) -> Iterator[_Runner]:
    arguments = _arguments(mover, bench.source, bench.destination, [busy, *idle])
    log = directory / f"{busy}.log"
    with running(arguments, log, {"XDG_STATE_HOME": str(directory / busy)}) as (process, account):
        yield _Runner(name, busy, idle, process, account, log)
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS_S)


def table(runners: Sequence[_Runner], loads: Sequence[float]) -> str:
    """Return a Markdown table; the last row is the additional cost of the idle partitions."""
    head = ("", "backlog, CPU-s/GB", "steady, CPU-s/GB", "idle, CPU-s a minute")
    measured = [(each.backlog, each.steady, each.idle_minute) for each in runners]
    few, many = measured
    rows = [
        *((each.name, *map(_cell, values)) for each, values in zip(runners, measured, strict=True)),
        ("with idle ones, against without", *map(_ratio, few, many)),
    ]
    load = f"Load of the machine over a minute, before and after: {loads[0]:.1f} and {loads[1]:.1f}."
    return f"{markdown(head, rows)}\n\n{load}"


def _cell(values: Sequence[float]) -> str:
    if not values:
        return ""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _ratio(before: Sequence[float], after: Sequence[float]) -> str:
    return f"{statistics.median(after) / statistics.median(before):.2f} times" if before and after else ""


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.partitions", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--mover",
        choices=("loop", "shoal"),
        default="loop",
        help="the copy loop alone, or the whole of shoal mirror",
    )
    parser.add_argument("--busy", type=int, default=50, help="partitions that get records (default: 50)")
    parser.add_argument("--idle", type=int, default=1150, help="partitions that get none (default: 1150)")
    parser.add_argument("--megabytes", type=int, default=500, help="size of a backlog in MB (default: 500)")
    parser.add_argument(
        "--megabytes-per-s", type=float, default=5, help="rate of the steady load (default: 5)"
    )
    parser.add_argument("--seconds", type=float, default=20, help="duration of the steady load (default: 20)")
    parser.add_argument(
        "--repeat", type=int, default=3, help="number of turns; the median counts (default: 3)"
    )
    parser.add_argument("--append", action="store_true", help=f"append the table to bench/{_RESULTS.name}")
    return parser.parse_args()


def _measure(bench: _Bench, runners: Sequence[_Runner], arguments: argparse.Namespace) -> None:
    for runner in runners:
        bench.load(runner.busy, 20)  # a first run of everything that is slow the first time
        bench.await_quiet(runner)
    for turn in range(arguments.repeat):
        say(f"turn {turn + 1} of {arguments.repeat}")
        before = [runner.cpu_s() for runner in runners]
        time.sleep(60)
        for runner, cpu_s in zip(runners, before, strict=True):
            runner.idle_minute.append(runner.cpu_s() - cpu_s)
        for runner in runners:
            runner.steady.append(bench.steady(runner, arguments.megabytes_per_s, arguments.seconds))
            bench.await_quiet(runner)
        for runner in runners if arguments.mover == "loop" else ():
            runner.backlog.append(bench.backlog(runner, arguments.megabytes))
            bench.await_quiet(runner)
        for runner in runners:
            say(f"{runner.name}: backlog {runner.backlog}, steady {runner.steady}, idle {runner.idle_minute}")
    for runner in runners:
        bench.verify(runner)


def _create_topics(clusters: Sequence[KafkaCluster], busy: int, idle: int) -> list[str]:
    """Create all topics on both sides; return those that get no records."""
    idle_topics = {
        f"many_idle_{number}": min(_IDLE_PER_TOPIC, idle - first)
        for number, first in enumerate(range(0, idle, _IDLE_PER_TOPIC))
    }
    topics = {"few_busy": busy, "many_busy": busy, **idle_topics}
    for cluster, (topic, partitions) in itertools.product(clusters, topics.items()):
        create_topic(cluster.bootstrap, topic, partitions, config={"compression.type": "producer"})
    return list(idle_topics)


def main() -> None:
    if sys.argv[1:2] == ["copy"]:
        source, destination, group, *topics = sys.argv[2:]
        _copy(source, destination, group, topics)
        return
    arguments = _parse()
    load_before = os.getloadavg()[0]
    patient = {"broker.session.timeout.ms": 9000, "broker.heartbeat.interval.ms": 2000}
    with (
        two_clusters(jvm=BENCH_JVM, heap="1g", config=patient) as clusters,
        tempfile.TemporaryDirectory(prefix="bench-partitions-") as directory,
        ExitStack() as stack,
    ):
        bench = _Bench(*clusters, arguments.busy)
        say("creating topics")
        idle = _create_topics(clusters, arguments.busy, arguments.idle)
        few = f"{arguments.busy} busy partitions"
        many = f"{few} and {arguments.idle:,} idle ones"
        runners = [
            stack.enter_context(_running(bench, arguments.mover, name, busy, others, Path(directory)))
            for name, busy, others in ((few, "few_busy", ()), (many, "many_busy", idle))
        ]
        _measure(bench, runners, arguments)
        text = table(runners, (load_before, os.getloadavg()[0]))
    print(text)
    if arguments.append:
        what = "the copy loop alone" if arguments.mover == "loop" else "shoal mirror, Spark included"
        head = (
            f"## Idle partitions, {what}\n\n{machine()}; two Kafka {KAFKA_VERSION} brokers (KRaft) "
            f"on this machine; {versions('pyspark')}.\n"
            f"A backlog of {arguments.megabytes} MB, and {arguments.megabytes_per_s:g} MB/s for "
            f"{arguments.seconds:g} s; the median of {arguments.repeat}, and the extremes.\n"
        )
        with _RESULTS.open("a") as file:
            file.write(f"\n{head}\n{text}\n")


if __name__ == "__main__":
    main()

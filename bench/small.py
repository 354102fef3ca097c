"""The cost of small batches, one or many in a request, or joined: ``python -m bench.small --help``.

The row ``agent`` is its usual case: 300 B, 8 partitions, one and many.

The copy loop is one Spark task of shoal, without Spark. It copies the same topics repeatedly from one
real Kafka broker to another, each time to a new topic. If you pass ``--agent JAR``, the destination's
broker runs shoal's Java agent, and accepts many batches in a request from clients that ask for it. One batch
in a request is the stock path of the same broker. Without an agent, many and one are measured between real
Kafka and shoal's embedded broker. The CPU of that broker is that of a program in Python: then only the
mover's numbers are meaningful.

MB and GB are bytes as they are stored at the source, not records before compression.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import psutil

from bench.figures import Figure, Figures, Key, Ratio
from bench.measure import MoverFailed, end_offsets
from bench.report import machine, markdown, say, versions
from bench.rows import Row, Section, Settings
from rig import (
    BENCH_JVM,
    KAFKA_VERSION,
    KafkaCluster,
    create_topic,
    digest_topic,
    start_in_parallel,
    wait_until,
)
from rig.agent import agent_jar
from rig.cluster import free_port
from rig.load import load_values
from rig.process import spawn, tail
from rig.read import PartitionDigest
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig, IsolationLevel
from shoal.mirroring.assignment import end_offsets as source_ends
from shoal.mirroring.assignment import partitions_of
from shoal.mirroring.control import Uncontrolled
from shoal.mirroring.model.copy_options import CopySettings, Rebatch
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.task.task import run_copy_task
from shoal_broker import Broker

_RESULTS = Path(__file__).parent / "results.md"
_RECORD_BYTES = 100
_COPIES_S = 1800.0


@dataclass(frozen=True)
class Shape:
    """A topic's batches."""

    name: str
    records_per_batch: int


#: Approximate sizes, lz4, with records of 100 bytes.
SHAPES = (Shape("300 B", 3), Shape("2 KB", 26), Shape("16 KB", 220))


@dataclass(frozen=True)
class Way:
    """A way to send batches.

    Attributes:
        name: Name in the table.
        multi_batch: The mirror's option.
        rebatch: Likewise.
        connections: Number of connections to the destination's broker, each from a separate process with
            an equal share of the partitions.
    """

    name: str
    multi_batch: bool
    rebatch: str | None = None
    connections: int = 1


ONE = Way("one in a request", False)
FOUR = Way("one in a request, 4 connections", False, connections=4)
MANY = Way("many in a request", True)
JOINED = Way("`--rebatch 64k`", False, "64k")


@dataclass(frozen=True)
class Run:
    """One copy.

    Attributes:
        megabytes_per_s: Rate from the first connection to the last commit.
        mover_s_per_gb: The mover's CPU-seconds.
        broker_s_per_gb: The destination broker's.
        batch_bytes: The mean at the source.
    """

    megabytes_per_s: float
    mover_s_per_gb: float
    broker_s_per_gb: float
    batch_bytes: float


@dataclass(frozen=True)
class Destination:
    """A destination to measure.

    Attributes:
        name: Name in the table.
        bootstrap: Its address.
        cpu_s: Returns the CPU-seconds of its broker so far.
        ways: The ways to measure with it.
    """

    name: str
    bootstrap: str
    cpu_s: Callable[[], float]
    ways: Sequence[Way]


class _Counting(Uncontrolled):
    """A control without a driver, which counts."""

    def __init__(self) -> None:
        self.bytes_in = 0
        self.waited_for: set[str] = set()

    def report(self, report: TaskReport) -> None:
        for each in report.partitions:
            self.bytes_in += each.counters.bytes_in
            if each.waiting_for:
                self.waited_for.add(each.waiting_for)


def _copy(
    source_servers: str, destination_servers: str, topic: str, copy: str, way: Mapping[str, Any]
) -> None:
    """Run the mover, and print its usage."""
    source, _ = ClientConfig.from_properties("source", {"bootstrap.servers": source_servers})
    destination, _ = ClientConfig.from_properties("destination", {"bootstrap.servers": destination_servers})
    with Cluster(source) as cluster:
        partitions = partitions_of(cluster, [topic])
        ends = source_ends(cluster, partitions, IsolationLevel.READ_COMMITTED)
    ranges = [CopyRange(topic, each.partition, copy, 0, ends[each]) for each in partitions]
    settings = CopySettings(
        source,
        destination,
        copy,
        rules="bench",
        multi_batch=way["multi_batch"],
        rebatch=Rebatch.parse("rebatch", way["rebatch"]) if way["rebatch"] else None,
    )
    shares = [ranges[number :: way["connections"]] for number in range(way["connections"])]
    # As in Spark: each worker in a separate process.
    context = get_context("spawn")
    everyone = context.Barrier(len(shares))
    with ProcessPoolExecutor(len(shares), context, initializer=_wait_for, initargs=(everyone,)) as pool:
        list(pool.map(_share_copied, [([], settings)] * len(shares)))  # all processes exist now
        began = time.monotonic()
        copied = list(pool.map(_share_copied, [(share, settings) for share in shares]))
        seconds = time.monotonic() - began
    took = {
        "seconds": seconds,
        "cpu_s": sum(each.cpu_s for each in copied),
        "bytes": sum(each.bytes_in for each in copied),
        "complete": all(each.complete for each in copied),
        "waited_for": sorted(set().union(*(each.waited_for for each in copied))),
    }
    print(json.dumps(took), flush=True)


@dataclass(frozen=True)
class _Copied:
    """The result of one worker."""

    cpu_s: float
    bytes_in: int
    complete: bool
    waited_for: frozenset[str]


def _wait_for(everyone: Barrier) -> None:
    everyone.wait()


def _share_copied(task: tuple[Sequence[CopyRange], CopySettings]) -> _Copied:
    ranges, settings = task
    control, cpu_s = _Counting(), time.process_time()
    result = run_copy_task(ranges, settings, control)
    return _Copied(
        time.process_time() - cpu_s,
        control.bytes_in,
        result.complete and not result.stopped,
        frozenset(control.waited_for),
    )


def _load(bootstrap: str, topic: str, shape: Shape, megabytes: float, partitions: int) -> int:
    """Load a topic with batches of one size; return their number."""
    create_topic(bootstrap, topic, partitions)
    dice = random.Random(0)
    # Half of it is random: it compresses a little, as real records do.
    values = [dice.randbytes(_RECORD_BYTES // 4).hex().ljust(_RECORD_BYTES, "x") for _ in range(10_000)]
    batches = int(megabytes * 1e6 / (61 + shape.records_per_batch * 0.74 * _RECORD_BYTES))
    first_ms = int(time.time() * 1000) - 3_600_000
    records = (
        (
            number % partitions,
            first_ms + number,
            values[(number * shape.records_per_batch + each) % len(values)],
        )
        for number in range(batches)
        for each in range(shape.records_per_batch)
    )
    load_values(bootstrap, topic, "lz4", shape.records_per_batch, records, partitions)
    return batches


@dataclass
class Bench:
    """A source, and the number of runs."""

    source: KafkaCluster
    directory: Path
    copies: int = 0
    digests: dict[str, dict[int, PartitionDigest]] = field(default_factory=dict)

    def run(
        self,
        destination: Destination,
        topic: str,
        batches: int,
        partitions: int,
        way: Way,
    ) -> Run:
        """Copy a topic once."""
        self.copies += 1
        copy = f"copy_{self.copies}"
        create_topic(destination.bootstrap, copy, partitions)
        told = {"multi_batch": way.multi_batch, "rebatch": way.rebatch, "connections": way.connections}
        between = [self.source.bootstrap, destination.bootstrap, topic, copy]
        before = destination.cpu_s()
        done = subprocess.run(
            [sys.executable, "-m", "bench.small", "copy", *between, json.dumps(told)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=_COPIES_S,
            check=False,
        )
        broker_s = destination.cpu_s() - before
        took = json.loads(done.stdout or "{}")
        if not took.get("complete"):
            raise MoverFailed(f"{way.name}, {topic}: exit code {done.returncode}, {took}")
        if took["waited_for"]:
            say(f"{way.name}, {topic}: it waited for {took['waited_for']}")
        if end_offsets(self.source.bootstrap, topic) != end_offsets(destination.bootstrap, copy):
            raise MoverFailed(f"{way.name}: {copy} has another number of records than {topic}")
        gigabytes = took["bytes"] / 1e9
        return Run(
            took["bytes"] / 1e6 / took["seconds"],
            took["cpu_s"] / gigabytes,
            broker_s / gigabytes,
            took["bytes"] / batches,
        )

    def verify(self, destination: Destination, topic: str) -> None:
        """Compare the last copy with its topic, record by record."""
        copy = f"copy_{self.copies}"
        if topic not in self.digests:
            self.digests[topic] = digest_topic(self.source.bootstrap, topic)
        if digest_topic(destination.bootstrap, copy) != self.digests[topic]:
            raise MoverFailed(f"{copy} has other records than {topic}")


@contextmanager
def _embedded(directory: Path) -> Iterator[Destination]:
    port = free_port()
    log = directory / "broker.log"
    process = spawn([sys.executable, "-m", "bench.small", "broker", str(port)], log)
    bootstrap = f"127.0.0.1:{port}"
    try:
        wait_until(lambda: _answers(bootstrap, process, log), "the embedded broker")
        watched = psutil.Process(process.pid)

        def cpu_s() -> float:
            times = watched.cpu_times()
            return float(times.user + times.system)

        yield Destination("embedded broker", bootstrap, cpu_s, (ONE, MANY))
    finally:
        process.terminate()
        process.wait(30)


def _serve(port: int) -> None:
    """Run the embedded broker until killed."""
    with Broker("127.0.0.1", port, config={"shoal.multi.batch.produce": "true"}):
        signal.pause()


def _answers(bootstrap: str, process: subprocess.Popen[bytes], log: Path) -> bool:
    if process.poll() is not None:
        raise MoverFailed(f"the embedded broker ended with {process.returncode}:\n{tail(log)}")
    try:
        with Cluster(
            ClientConfig.from_properties("destination", {"bootstrap.servers": bootstrap})[0]
        ) as cluster:
            cluster.refresh([])
    except Exception:
        return False
    return True


@contextmanager
def _destinations(kafka: KafkaCluster, has_agent: bool, directory: Path) -> Iterator[list[Destination]]:
    if has_agent:
        yield [
            Destination("Kafka with the agent", kafka.bootstrap, kafka.cpu_seconds, (ONE, FOUR, MANY, JOINED))
        ]
        return
    with _embedded(directory) as embedded:
        yield [Destination("Kafka", kafka.bootstrap, kafka.cpu_seconds, (ONE, FOUR, JOINED)), embedded]


def table(runs: Mapping[tuple[str, str, str], Sequence[Run]]) -> str:
    """Return a Markdown table of the medians; ratios are to one in a request, of the same run."""
    head = ("batches", "destination", "sent", "MB/s", "", "destination CPU-s/GB", "", "mover CPU-s/GB", "")
    rows = []
    for (shape, destination, way), measured in runs.items():
        base = runs[shape, destination, ONE.name]
        mean = statistics.mean(each.batch_bytes for each in measured)
        rows.append(
            (
                f"{shape} (mean {mean:,.0f})",
                destination,
                way,
                *_cells(base, measured, lambda run: run.megabytes_per_s, faster=True),
                *_cells(base, measured, lambda run: run.broker_s_per_gb, faster=False),
                *_cells(base, measured, lambda run: run.mover_s_per_gb, faster=False),
            )
        )
    return markdown(head, rows)


def _cells(
    base: Sequence[Run], measured: Sequence[Run], value: Callable[[Run], float], *, faster: bool
) -> tuple[str, str]:
    mine, theirs = (statistics.median(map(value, runs)) for runs in (measured, base))
    ratio = mine / theirs if faster else theirs / max(mine, 1e-9)
    if measured is base:
        return f"{mine:.1f}", ""
    return f"{mine:.1f}", f"{ratio:.1f} times {'faster' if faster else 'cheaper'}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.small",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--agent",
        nargs="?",
        const="",
        metavar="JAR",
        help="shoal's Java agent, for the destination's broker (default: agent/'s, built if it is missing)",
    )
    parser.add_argument(
        "--agent-options", default="", metavar="TEXT", help="options of the agent, after JAR="
    )
    parser.add_argument(
        "--megabytes", type=float, default=100, help="size of each topic in MB (default: 100)"
    )
    parser.add_argument(
        "--partitions",
        type=int,
        default=8,
        help="number of each topic; fewer than 4 exclude the way with 4 connections (default: 8)",
    )
    parser.add_argument(
        "--shapes",
        nargs="+",
        choices=[each.name for each in SHAPES],
        default=[each.name for each in SHAPES],
        help="sizes of batches (default: all)",
    )
    parser.add_argument(
        "--ways",
        nargs="+",
        choices=[each.name for each in (ONE, FOUR, MANY, JOINED)],
        default=[each.name for each in (ONE, FOUR, MANY, JOINED)],
        help="ways to send; the others are compared with the first, which is always included (default: all)",
    )
    parser.add_argument(
        "--repeat", type=int, default=3, help="number of runs; the median counts (default: 3)"
    )
    parser.add_argument("--append", action="store_true", help=f"append the table to bench/{_RESULTS.name}")
    return parser.parse_args()


Runs = dict[tuple[str, str, str], list[Run]]
"""Of each shape, destination and way, by their names, in turn."""


def measure_ways(
    bench: Bench,
    destinations: Sequence[Destination],
    shapes: Sequence[Shape],
    ways: Collection[str],
    megabytes: float,
    partitions: int,
    repeat: int,
) -> Runs:
    """Copy a topic of each shape in each way, in turn.

    Args:
        ways: Names of the ways; the first one is always measured.
    """
    runs: Runs = {}
    for shape in shapes:
        topic = f"batches_of_{shape.records_per_batch}"
        say(f"loading {megabytes:g} MB in batches of {shape.name}")
        batches = _load(bench.source.bootstrap, topic, shape, megabytes, partitions)
        chosen = [
            (destination, way)
            for destination in destinations
            for way in destination.ways
            if way.name in {ONE.name, *ways} and way.connections <= partitions
        ]
        for destination, way in chosen:  # a first run of everything that is slow the first time
            bench.run(destination, topic, batches, partitions, way)
            bench.verify(destination, topic)
        for _ in range(repeat):
            for destination, way in chosen:
                run = bench.run(destination, topic, batches, partitions, way)
                runs.setdefault((shape.name, destination.name, way.name), []).append(run)
                say(f"{shape.name}, {destination.name}, {way.name}: {run}")
    return runs


@contextmanager
def _clusters(agent: str | None) -> Iterator[tuple[Bench, Sequence[Destination]]]:
    """Run both brokers, and provide the destinations.

    Args:
        agent: The argument of ``-javaagent``; None for a destination without an agent.
    """
    source = KafkaCluster(jvm=BENCH_JVM, heap="1g")
    kafka = KafkaCluster(jvm=(*BENCH_JVM, *([f"-javaagent:{agent}"] if agent else [])), heap="1g")
    with (
        tempfile.TemporaryDirectory(prefix="bench-small-") as directory,
        start_in_parallel(source, kafka),
        _destinations(kafka, agent is not None, Path(directory)) as destinations,
    ):
        yield Bench(source, Path(directory)), destinations


def _run(settings: Settings) -> Section:
    settings.clusters.close()
    shape, megabytes, partitions = SHAPES[0], 80 * settings.scale, 8
    with _clusters(str(agent_jar())) as (bench, destinations):
        runs = measure_ways(bench, destinations, [shape], [MANY.name], megabytes, partitions, settings.repeat)
    ((_, destination, _), _), *_ = runs.items()
    figures: Figures = {}
    for way in (ONE, MANY):
        measured = runs[shape.name, destination, way.name]
        figures |= {
            Key(AGENT.name, way.name, SPEED): Figure([each.megabytes_per_s for each in measured]),
            Key(AGENT.name, way.name, BROKER_CPU): Figure([each.broker_s_per_gb for each in measured]),
            Key(AGENT.name, way.name, MOVER_CPU): Figure([each.mover_s_per_gb for each in measured]),
        }
    rows = [
        (way.name, *(format(figures[Key(AGENT.name, way.name, each)], ".1f") for each in _AGENT_COLUMNS))
        for way in (ONE, MANY)
    ]
    one, many = (
        {name: figures[Key(AGENT.name, way.name, name)] for name in _AGENT_COLUMNS} for way in (ONE, MANY)
    )
    ratios = [
        f"{Ratio.of(many[SPEED], one[SPEED])} faster",
        *(f"{Ratio.of(one[name], many[name])} cheaper" for name in (BROKER_CPU, MOVER_CPU)),
    ]
    rows.append(("many against one", *ratios))
    text = (
        f"{megabytes:g} MB of batches of {shape.name} in {partitions} partitions, lz4; the copy loop, and a "
        "destination with the Java agent. A MB is one as it is stored at the source.\n\n"
        f"{markdown(('sent', *_AGENT_COLUMNS), rows)}"
    )
    return Section("Several batches in a request", text, figures)


SPEED = "MB/s"
BROKER_CPU = "destination broker, CPU-s/GB"
MOVER_CPU = "mover, CPU-s/GB"
_AGENT_COLUMNS = (SPEED, BROKER_CPU, MOVER_CPU)

AGENT = Row(
    "agent", "batches of 300 B, several in a request, with the Java agent", 4, _run, compares_commits=False
)


def main() -> None:
    if sys.argv[1:2] == ["copy"]:
        source_servers, destination_servers, topic, copy, way = sys.argv[2:]
        _copy(source_servers, destination_servers, topic, copy, json.loads(way))
        return
    if sys.argv[1:2] == ["broker"]:
        _serve(int(sys.argv[2]))
        return
    arguments = _parse()
    load_before = os.getloadavg()[0]
    agent = None
    if arguments.agent is not None:
        options = f"={arguments.agent_options}" if arguments.agent_options else ""
        agent = f"{arguments.agent or agent_jar()}{options}"
    shapes = [each for each in SHAPES if each.name in arguments.shapes]
    with _clusters(agent) as (bench, destinations):
        runs = measure_ways(
            bench,
            destinations,
            shapes,
            arguments.ways,
            arguments.megabytes,
            arguments.partitions,
            arguments.repeat,
        )
        text = table(runs)
    text += (
        f"\n\nLoad of the machine over a minute, before and after: {load_before:.1f} and "
        f"{os.getloadavg()[0]:.1f}."
    )
    print(text)
    if arguments.append:
        head = (
            f"## Small batches\n\n{machine()}; two Kafka {KAFKA_VERSION} brokers (KRaft) on this machine, "
            f"the copy loop alone; {versions('kafka-python')}.\n{arguments.megabytes:g} MB a topic of "
            f"{arguments.partitions} partitions, lz4; the median of {arguments.repeat}.\n"
        )
        with _RESULTS.open("a") as file:
            file.write(f"\n{head}\n{text}\n")


if __name__ == "__main__":
    main()

"""Compare a mirror that decodes (*deep*) with one that copies whole batches (*shallow*), on the same topic.

    python -m bench.before_after                 the table, on standard output
    python -m bench.before_after --append        the table to results.md, and before_after.svg

The options ``--svg FILE`` and ``--json FILE`` write the chart and all runs elsewhere.

The charts are those of KIP-712 and of Pinterest's article: CPU, memory, garbage collection, batch sizes and
message conversions, before and after.

Each run is one mover between two brokers. The mover starts and warms up on a first topic. Then the bench
fills a second topic with prepared batches, as fast as the source accepts them. It measures the mover until
all of them are at the destination. The numbers therefore exclude the mover's start and the making of the
batches. Movers take turns, N times. The filling and the brokers share the machine with the mover.
"""

import argparse
import dataclasses
import itertools
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from bench.account import Account, running
from bench.before_after_report import Run, chart, table
from bench.copy_loop import copy_topic
from bench.gc_log import pauses
from bench.measure import MoverFailed, all_copied, end_offsets
from bench.mirror_maker_2 import MirrorMaker2
from bench.mirror_makers import FollowingShoal, MirrorMaker1Mover, ShoalMirrorMaker
from bench.mover import Job, Mover
from bench.report import machine, say, versions
from bench.rows import PATIENT, delete_topics
from bench.topics import PARTITIONS, TOPICS, Shape, load
from rig import (
    BENCH_JVM,
    KAFKA_VERSION,
    KafkaCluster,
    TimedOut,
    create_topic,
    dump_partitions,
    start_in_parallel,
)
from rig.cluster import free_port
from rig.jars import KAFKA_3_VERSION, MIRROR_MAKER_2_VERSION
from rig.jmx import jmx_options, read_count
from rig.process import tail

_HERE = Path(__file__).parent
_RESULTS = _HERE / "results.md"
_CHART = _HERE / "before_after.svg"

_CONVERSIONS = "kafka.server:type=BrokerTopicMetrics,name=ProduceMessageConversionsPerSec"

_FIRST_MEGABYTES = 40
"""Size of the first topic, or less if the second is smaller, so that a mover's JVM compiles its code."""

_SAMPLE_INTERVAL_S = 0.1

_SETTLE_S = 2.0
"""Time between the first topic's copy and the second's load, for the remaining work of a start."""

_MOVERS: dict[str, Mover] = {
    "mm1": MirrorMaker1Mover("MirrorMaker 1 (deep)"),
    "mm2": MirrorMaker2("MirrorMaker 2 (deep)"),
    "decoding": ShoalMirrorMaker("shoal mirror-maker (deep)", raw=False),
    "raw": ShoalMirrorMaker("shoal mirror-maker --use.raw.bytes", raw=True),
    "mirror": FollowingShoal("shoal mirror"),
}
_SHAPES = {
    shape.name: shape
    for shape in (
        *TOPICS,
        Shape("b256_lz4", "lz4", 256),
        # No mirror avoids these conversions: the destination's topic sets the codec.
        Shape("b256_lz4_to_gzip", "lz4", 256, stored_with="gzip"),
    )
}
_USUAL_SHAPES = ("b256_gzip", "b256_lz4", "b256_lz4_to_gzip")

_numbers = itertools.count(1)


@dataclass(frozen=True)
class _Bench:
    source: KafkaCluster
    destination: KafkaCluster
    jmx_port: int
    timeout_s: float

    def compare(self, shape: Shape, movers: Sequence[Mover], megabytes: int, repeat: int) -> list[Run]:
        """Let the movers copy a topic of one shape in turn, ``repeat`` times."""
        first, bulk = f"{shape.name}_first", f"{shape.name}_bulk"
        say(f"making {megabytes} MB of {shape.name}")
        load(self.source.bootstrap, shape, first, min(_FIRST_MEGABYTES, megabytes))
        size = load(self.source.bootstrap, shape, bulk, megabytes)
        # For all of its topics, since MirrorMaker 2 creates its own.
        _store_with(self.destination, shape.stored_with)
        runs = []
        for number, mover in itertools.product(range(1, repeat + 1), movers):
            run = self._run(mover, shape, first, bulk, size)
            say(f"{run.mover}, run {number}: {run.cpu_s_per_gb:.2f} CPU-s/GB in {run.seconds:.1f} s")
            runs.append(run)
        delete_topics(self.source, first, bulk)
        return runs

    def _run(self, mover: Mover, shape: Shape, made_first: str, made_bulk: str, size: int) -> Run:
        name = f"{shape.name}_run{next(_numbers)}"
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            job = Job(
                source=self.source.bootstrap,
                destination=self.destination.bootstrap,
                topic=name,
                copy=name,
                codec=shape.codec,
                directory=Path(directory),
                beside=f"{name}_first",
            )
            return self._copy(mover, job, shape, made_first, made_bulk, size)

    def _copy(self, mover: Mover, job: Job, shape: Shape, made_first: str, made_bulk: str, size: int) -> Run:
        assert job.beside is not None
        for topic in (job.topic, job.beside):
            create_topic(job.source, topic, PARTITIONS)
        if not isinstance(mover, MirrorMaker2):  # MirrorMaker 2 creates its own
            for topic in (job.topic, job.beside):
                create_topic(job.destination, topic, PARTITIONS)
        self._fill(made_first, job.beside)
        log = job.directory / "mover.log"
        with (
            mover.command(job) as command,
            running(command.arguments, log, command.environment) as (process, account),
        ):
            samples = _Samples(account, self.timeout_s, log)
            assert command.copy is not None
            copy_of_first = command.copy.removesuffix(job.topic) + job.beside

            def all_of(topic: str, copy: str) -> Callable[[], bool]:
                copied = all_copied(job.destination, copy, sum(end_offsets(job.source, topic)))

                def copied_or_ended() -> bool:
                    if process.poll() is not None:
                        raise MoverFailed(f"{mover.name} ended with {process.returncode}:\n{tail(log)}")
                    return copied()

                return copied_or_ended

            samples.until(all_of(job.beside, copy_of_first))
            settled_at = time.monotonic() + _SETTLE_S
            samples.until(lambda: time.monotonic() >= settled_at)
            conversions = self._conversions()  # exclude those of the first topic
            began, began_at = len(samples.taken) - 1, time.time()
            with _InBackground(lambda: self._fill(made_bulk, job.topic)) as filled:
                samples.until(filled)
            samples.until(all_of(job.topic, command.copy))
            ended_at = time.time()
        copies = [self.destination.partition_dir(command.copy, number) for number in range(PARTITIONS)]
        batches = [batch for found in dump_partitions(copies).values() for batch in found]
        log_of_gc = job.gc_log.read_text() if job.gc_log.exists() else ""
        run = Run(
            topic=shape.name,
            mover=mover.name,
            gigabytes=size / 1e9,
            samples=samples.since(began),
            gc_pauses_s=tuple(each.seconds for each in pauses(log_of_gc) if began_at <= each.at <= ended_at),
            batches=len(batches),
            batch_bytes=sum(batch.size for batch in batches),
            batch_records=sum(batch.count for batch in batches),
            conversions=self._conversions() - conversions,
        )
        delete_topics(self.source, job.topic, job.beside)
        delete_topics(self.destination, command.copy, copy_of_first)
        return run

    def _fill(self, made: str, topic: str) -> None:
        if not copy_topic(self.source.bootstrap, self.source.bootstrap, made, topic):
            raise MoverFailed(f"copying {made} to {topic} failed")

    def _conversions(self) -> int:
        """Return how many records the destination's broker has converted so far."""
        return read_count(self.jmx_port, _CONVERSIONS)


class _InBackground(AbstractContextManager[Callable[[], bool]]):
    """Call a function in a thread; provides a check whether it has returned, and raises its exception."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._call, name="fill")

    def _call(self) -> None:
        try:
            self._function()
        except BaseException as error:  # raised on exit
            self._error = error

    def __enter__(self) -> Callable[[], bool]:
        self._thread.start()
        return lambda: not self._thread.is_alive()

    def __exit__(self, *exc_info: object) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error


class _Samples:
    """CPU and memory of a mover's processes, ten times a second.

    Attributes:
        taken: The time by the monotonic clock, CPU-seconds so far, and resident bytes.
    """

    def __init__(self, account: Account, timeout_s: float, log: Path) -> None:
        self.taken: list[tuple[float, float, int]] = []
        self._account = account
        self._timeout_s = timeout_s
        self._log = log

    def until(self, condition: Callable[[], bool]) -> None:
        """Take samples until the condition holds.

        Raises:
            TimedOut: The condition did not hold within the time.
        """
        began = time.monotonic()
        while not condition():
            self._take()
            if time.monotonic() - began > self._timeout_s:
                raise TimedOut(f"the mover was still running after {self._timeout_s:g} s:\n{tail(self._log)}")
            time.sleep(_SAMPLE_INTERVAL_S)
        self._take()

    def since(self, began: int) -> tuple[tuple[float, float, int], ...]:
        """Return the samples from this one on: seconds and CPU-seconds since then, and memory."""
        at, cpu_s, _ = self.taken[began]
        return tuple((each - at, each_cpu_s - cpu_s, rss) for each, each_cpu_s, rss in self.taken[began:])

    def _take(self) -> None:
        self.taken.append((time.monotonic(), self._account.cpu().total_s, self._account.rss()))


def _store_with(cluster: KafkaCluster, compression_type: str) -> None:
    """Set how the cluster's only broker compresses topics without a ``compression.type`` of their own."""
    entry = ConfigEntry("compression.type", compression_type, incremental_operation=AlterConfigOpType.SET)
    (node_id,) = cluster.node_ids
    broker = ConfigResource(ConfigResource.Type.BROKER, str(node_id), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for altered in admin.incremental_alter_configs([broker]).values():
        altered.result()


def _heading(megabytes: int, repeat: int, load_before: float) -> str:
    multi_batch = f"{repeat} runs each: medians, with the least and the most in parentheses"
    times = "one run each" if repeat == 1 else multi_batch
    return "\n".join(
        [
            f"## Before and after, {time.strftime('%Y-%m-%d', time.gmtime())}",
            "",
            f"{machine()}; two Kafka {KAFKA_VERSION} brokers (KRaft) and the mover on this machine, "
            f"loopback; MirrorMaker 1 of Kafka {KAFKA_3_VERSION}, MirrorMaker 2 of {MIRROR_MAKER_2_VERSION}; "
            f"{versions('pyspark')}.",
            f"{megabytes} MB of records of 1,000 bytes in {PARTITIONS} partitions, made before; movers in "
            f"turn, {times}.",
            "Measured from the moment the topic begins to fill, with the mover at work already, until all "
            "of it is at the destination; a GB is one of uncompressed records.",
            "Load of the machine over a minute, before and after: "
            f"{load_before:.1f} and {os.getloadavg()[0]:.1f}.",
            "",
        ]
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.before_after", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--movers", nargs="+", choices=list(_MOVERS), default=list(_MOVERS))
    parser.add_argument("--topics", nargs="+", choices=list(_SHAPES), default=list(_USUAL_SHAPES))
    parser.add_argument("--megabytes", type=int, default=500, help="size of a topic in MB (default: 500)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each mover (default: 3)")
    parser.add_argument(
        "--timeout", type=float, default=600, help="timeout of a run in seconds (default: 600)"
    )
    parser.add_argument(
        "--append", action="store_true", help=f"append to {_RESULTS.name}, and draw {_CHART.name}"
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the chart into this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all runs with their samples as JSON")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    parsed = _parse(arguments)
    movers = [_MOVERS[name] for name in parsed.movers]
    load_before, jmx_port = os.getloadavg()[0], free_port()
    source, destination = (
        KafkaCluster(config=PATIENT, heap="1g", jvm=BENCH_JVM, broker_jvm=broker_jvm)
        for broker_jvm in ({}, {1: jmx_options(jmx_port)})
    )
    with start_in_parallel(source, destination):
        bench = _Bench(source, destination, jmx_port, parsed.timeout)
        runs = [
            run
            for name in parsed.topics
            for run in bench.compare(_SHAPES[name], movers, parsed.megabytes, parsed.repeat)
        ]
    text = _heading(parsed.megabytes, parsed.repeat, load_before) + "\n" + table(runs)
    print(text)
    if parsed.json:
        parsed.json.write_text(json.dumps([dataclasses.asdict(run) for run in runs], indent=1) + "\n")
    if parsed.svg:
        parsed.svg.write_text(chart(runs))
    if parsed.append:
        _CHART.write_text(chart(runs))
        with _RESULTS.open("a") as file:
            file.write(f"\n{text}\n\n![Before and after]({_CHART.name})\n")


if __name__ == "__main__":
    main()

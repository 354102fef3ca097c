"""A mirror that decodes (*deep*) beside one that copies whole batches (*shallow*): the row ``before_after``.

The charts are those of KIP-712 and of Pinterest's article: CPU, memory, garbage collection, batch sizes and
message conversions, before and after.

Each run is one mover between two brokers. The mover starts and warms up on a first topic. Then the bench
fills a second topic with prepared batches, as fast as the source accepts them. It measures the mover until
all of them are at the destination. The numbers therefore exclude the mover's start and the making of the
batches. Movers take turns. The filling and the brokers share the machine with the mover.
"""

import itertools
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from bench.account import Account, running
from bench.copy_loop import copy_topic
from bench.figures import CPU
from bench.in_threads import InThreads
from bench.measure import MoverFailed, all_copied, end_offsets
from bench.mirror_maker_2 import MirrorMaker2
from bench.mirror_makers import FollowingShoal, MirrorMaker1Mover, ShoalMirrorMaker
from bench.mover import Job, Mover
from bench.report import say
from bench.rows import PATIENT, Row, Settings, delete_topics, in_turn
from bench.runs import Section
from bench.topics import PARTITIONS, Shape, load
from rig import BENCH_JVM, KafkaCluster, TimedOut, create_topic, dump_partitions, start_in_parallel
from rig.jars import KAFKA_3_VERSION, MIRROR_MAKER_2_VERSION
from rig.jmx import jmx_options, read_count
from rig.ports import free_port
from rig.process import tail

__all__ = ["BEFORE_AFTER"]

_CONVERSIONS = "kafka.server:type=BrokerTopicMetrics,name=ProduceMessageConversionsPerSec"

_MEGABYTES = 500
_TIMEOUT_S = 600.0

_FIRST_MEGABYTES = 40
"""Size of the first topic, or less if the second is smaller, so that a mover's JVM compiles its code."""

_SAMPLE_INTERVAL_S = 0.1

_SETTLE_S = 2.0
"""Time between the first topic's copy and the second's load, for the remaining work of a start."""

_MOVERS: Sequence[Mover] = (
    MirrorMaker1Mover("MirrorMaker 1 (deep)"),
    MirrorMaker2("MirrorMaker 2 (deep)"),
    ShoalMirrorMaker("shoal mirror-maker (deep)", raw=False),
    ShoalMirrorMaker("shoal mirror-maker --use.raw.bytes", raw=True),
    FollowingShoal("shoal mirror"),
)
_SHAPES = (
    Shape("b256_gzip", "gzip", 256),
    Shape("b256_lz4", "lz4", 256),
    # No mirror avoids these conversions: the destination's topic sets the codec.
    Shape("b256_lz4_to_gzip", "lz4", 256, stored_with="gzip"),
)

#: A pause as ``-Xlog:gc:file=FILE:time`` logs it; what a collector does beside the program is none.
#: [2026-11-22T15:25:01.123+0000] GC(7) Pause Young (Normal) (G1 Evacuation Pause) 24M->5M(256M) 2.345ms
_PAUSE = re.compile(r"^\[(?P<at>[^]]+)\]\s*GC\(\d+\) Pause .*?(?P<ms>[\d.,]+)ms$", re.MULTILINE)

_numbers = itertools.count(1)


def _run(settings: Settings) -> Section:
    settings.clusters.close()
    megabytes = max(1, int(_MEGABYTES * settings.scale))
    jmx_port = free_port()
    source, destination = (
        KafkaCluster(config=PATIENT, heap="1g", jvm=BENCH_JVM, broker_jvm=broker_jvm)
        for broker_jvm in ({}, {1: jmx_options(jmx_port)})
    )
    with start_in_parallel(source, destination):
        bench = _Bench(source, destination, jmx_port)
        figures = {
            f"{shape.name}: {mover}": found
            for shape in _SHAPES
            for mover, found in bench.compare(shape, megabytes, settings.repeat).items()
        }
    text = (
        f"MirrorMaker 1 of Kafka {KAFKA_3_VERSION}, MirrorMaker 2 of {MIRROR_MAKER_2_VERSION}. "
        f"{megabytes} MB of records of 1,000 bytes in {PARTITIONS} partitions, made before. Measured from "
        "the moment the topic begins to fill, with the mover at work already, until all of it is at the "
        "destination."
    )
    return Section("Before and after", text, figures)


BEFORE_AFTER = Row(
    "before_after", "mirrors that decode beside mirrors of whole batches", 12, _run, compares_commits=False
)


@dataclass(frozen=True)
class _Bench:
    source: KafkaCluster
    destination: KafkaCluster
    jmx_port: int

    def compare(
        self, shape: Shape, megabytes: int, repeat: int
    ) -> Mapping[str, Mapping[str, Sequence[float]]]:
        """Let the movers copy a topic of one shape in turn."""
        first, bulk = f"{shape.name}_first", f"{shape.name}_bulk"
        say(f"making {megabytes} MB of {shape.name}")
        load(self.source.bootstrap, shape, first, min(_FIRST_MEGABYTES, megabytes))
        size = load(self.source.bootstrap, shape, bulk, megabytes)
        # For all of its topics, since MirrorMaker 2 creates its own.
        _store_with(self.destination, shape.stored_with)
        found: dict[str, dict[str, list[float]]] = {mover.name: {} for mover in _MOVERS}
        for turn, mover in in_turn(_MOVERS, repeat):
            quantities = self._run(mover, shape, first, bulk, size)
            say(f"{mover.name}, turn {turn + 1}: {quantities[CPU]:.2f} {CPU}")
            for name, value in quantities.items():
                found[mover.name].setdefault(name, []).append(value)
        delete_topics(self.source, first, bulk)
        return found

    def _run(
        self, mover: Mover, shape: Shape, made_first: str, made_bulk: str, size: int
    ) -> Mapping[str, float]:
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
            return self._copy(mover, job, made_first, made_bulk, size)

    def _copy(
        self, mover: Mover, job: Job, made_first: str, made_bulk: str, size: int
    ) -> Mapping[str, float]:
        assert job.beside is not None
        for topic in (job.topic, job.beside):
            create_topic(job.source, topic, PARTITIONS)
            if not isinstance(mover, MirrorMaker2):  # MirrorMaker 2 creates its own
                create_topic(job.destination, topic, PARTITIONS)
        self._fill(made_first, job.beside)
        log = job.directory / "mover.log"
        with (
            mover.command(job) as command,
            running(command.arguments, log, command.environment) as (process, account),
        ):
            use = _Use(account, log)
            copy_of_first = command.copy.removesuffix(job.topic) + job.beside

            def all_of(topic: str, copy: str) -> Callable[[], bool]:
                copied = all_copied(job.destination, copy, sum(end_offsets(job.source, topic)))

                def copied_or_ended() -> bool:
                    if process.poll() is not None:
                        raise MoverFailed(f"{mover.name} ended with {process.returncode}:\n{tail(log)}")
                    return copied()

                return copied_or_ended

            use.until(all_of(job.beside, copy_of_first))
            settled_at = time.monotonic() + _SETTLE_S
            use.until(lambda: time.monotonic() >= settled_at)
            conversions = self._conversions()  # exclude those of the first topic
            use.begin()
            began_at = time.time()
            with _Filling(lambda: self._fill(made_bulk, job.topic)) as filling:
                use.until(lambda: not filling.is_at_work)
            use.until(all_of(job.topic, command.copy))
            ended_at = time.time()
            seconds, cpu_s = use.seconds, use.cpu_s
        collections = job.gc_log.read_text() if job.gc_log.exists() else ""
        paused_s = [seconds for at, seconds in _pauses(collections) if began_at <= at <= ended_at]
        quantities = {
            CPU: cpu_s / (size / 1e9),
            "MB/s": size / 1e6 / seconds,
            "peak RSS, MB": use.peak_rss / 1e6,
            "GC pauses": len(paused_s),
            "GC, ms": 1000 * sum(paused_s),
            **self._batches(command.copy),
            "conversions": self._conversions() - conversions,
        }
        delete_topics(self.source, job.topic, job.beside)
        delete_topics(self.destination, command.copy, copy_of_first)
        return quantities

    def _fill(self, made: str, topic: str) -> None:
        if not copy_topic(self.source.bootstrap, self.source.bootstrap, made, topic):
            raise MoverFailed(f"copying {made} to {topic} failed")

    def _batches(self, copy: str) -> Mapping[str, float]:
        """Return the mean size of the batches at the destination."""
        copies = [self.destination.partition_dir(copy, number) for number in range(PARTITIONS)]
        batches = [batch for found in dump_partitions(copies).values() for batch in found]
        return {
            "KB a batch": sum(each.size for each in batches) / len(batches) / 1000,
            "records a batch": sum(each.count for each in batches) / len(batches),
        }

    def _conversions(self) -> int:
        """Return how many records the destination's broker has converted so far."""
        return read_count(self.jmx_port, _CONVERSIONS)


class _Filling(InThreads):
    """Calls a function in a thread."""

    def __init__(self, fill: Callable[[], None]) -> None:
        super().__init__()
        self._fill = fill
        self.begin()

    def work(self, *arguments: str) -> None:
        self._fill()


class _Use:
    """The CPU and the memory of a mover's processes from `begin` on, read ten times a second.

    Attributes:
        peak_rss: The most resident bytes.
    """

    def __init__(self, account: Account, log: Path) -> None:
        self._account = account
        self._log = log
        self.begin()

    def begin(self) -> None:
        """Begin again."""
        self._began_at = time.monotonic()
        self._began_cpu_s = self._account.cpu_s()
        self.peak_rss = self._account.rss()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began_at

    @property
    def cpu_s(self) -> float:
        return self._account.cpu_s() - self._began_cpu_s

    def until(self, condition: Callable[[], bool]) -> None:
        """Read until the condition holds.

        Raises:
            TimedOut: The condition did not hold within the time.
        """
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > _TIMEOUT_S:
                raise TimedOut(f"the mover was still running after {_TIMEOUT_S:g} s:\n{tail(self._log)}")
            self.peak_rss = max(self.peak_rss, self._account.rss())
            time.sleep(_SAMPLE_INTERVAL_S)


def _pauses(log: str) -> Iterator[tuple[float, float]]:
    """Yield the pauses of a JVM to collect garbage: the end as Unix time, and the seconds."""
    for found in _PAUSE.finditer(log):
        at = datetime.fromisoformat(found["at"]).timestamp()
        yield at, float(found["ms"].replace(",", ".")) / 1000


def _store_with(cluster: KafkaCluster, compression_type: str) -> None:
    """Set how the cluster's only broker compresses topics without a ``compression.type`` of their own."""
    entry = ConfigEntry("compression.type", compression_type, incremental_operation=AlterConfigOpType.SET)
    (node_id,) = cluster.node_ids
    broker = ConfigResource(ConfigResource.Type.BROKER, str(node_id), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for altered in admin.incremental_alter_configs([broker]).values():
        altered.result()

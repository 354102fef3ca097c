"""The command: ``python -m bench``, in the repository's root."""

import argparse
import itertools
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from confluent_kafka.admin import AdminClient

from bench.measure import MoverFailed, Usage, measure
from bench.mover import Job, Mover
from bench.movers import MOVERS
from bench.report import Result, heading, table
from bench.topics import PARTITIONS, TOPICS, USUAL_TOPICS, Shape, load
from rig import BENCH_JVM, KafkaCluster, digest_topic, two_clusters

RESULTS = Path(__file__).parent / "results.md"
_HEAP = "1g"

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Bench:
    """Two clusters, and the number of runs."""

    source: KafkaCluster
    destination: KafkaCluster
    repeat: int

    def compare(self, shape: Shape, movers: Sequence[Mover], small: int, large: int) -> list[Result]:
        """Run every mover on a small and a large topic of one shape; sizes in MB."""
        small_topic, large_topic = f"{shape.name}_small", shape.name
        small_bytes = self._load(shape, small_topic, small)
        large_bytes = self._load(shape, large_topic, large)
        wire_bytes = self._log_bytes(large_topic)
        results = []
        for mover in movers:
            result = Result(
                topic=shape.name,
                mover=mover.name,
                wire_bytes=wire_bytes,
                small_bytes=small_bytes,
                large_bytes=large_bytes,
                small=self._runs(mover, shape, small_topic, verify=True),
                large=self._runs(mover, shape, large_topic, verify=False),
            )
            _say(table([result]).splitlines()[-1])
            results.append(result)
        self._delete(self.source, small_topic, large_topic)
        return results

    def warm_up(self, shapes: Sequence[Shape], megabytes: int) -> None:
        """Let both brokers' JVMs compile their code first; otherwise, the first mover would pay for it."""
        for shape in shapes:
            for cluster in (self.source, self.destination):
                load(cluster.bootstrap, shape, f"{shape.name}_warm", megabytes)
                digest_topic(cluster.bootstrap, f"{shape.name}_warm")
                self._delete(cluster, f"{shape.name}_warm")

    def _load(self, shape: Shape, topic: str, megabytes: int) -> int:
        _say(f"loading {topic}, {megabytes} MB")
        return load(self.source.bootstrap, shape, topic, megabytes)

    def _log_bytes(self, topic: str) -> int:
        directories = [self.source.partition_dir(topic, partition) for partition in range(PARTITIONS)]
        return sum(segment.stat().st_size for path in directories for segment in path.glob("*.log"))

    def _runs(self, mover: Mover, shape: Shape, topic: str, verify: bool) -> Usage:
        return _median([self._run(mover, shape, topic, verify) for _ in range(self.repeat)])

    def _run(self, mover: Mover, shape: Shape, topic: str, verify: bool) -> Usage:
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            job = Job(
                source=self.source.bootstrap,
                destination=self.destination.bootstrap,
                topic=topic,
                copy=f"{topic}_copy{next(_numbers)}",
                codec=shape.codec,
                directory=Path(directory),
            )
            usage, copy = measure(mover, job, self.source, self.destination)
        if copy is not None:
            if verify and digest_topic(job.source, topic) != digest_topic(job.destination, copy):
                raise MoverFailed(f"{mover.name}: {copy} has other records than {topic}")
            self._delete(self.destination, copy)
        return usage

    @staticmethod
    def _delete(cluster: KafkaCluster, *topics: str) -> None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for deleted in admin.delete_topics(list(topics)).values():
            deleted.result()


def _median(runs: Sequence[Usage]) -> Usage:
    medians = {f.name: statistics.median(getattr(run, f.name) for run in runs) for f in fields(Usage)}
    return Usage(**medians)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parse() -> argparse.Namespace:
    shapes = [shape.name for shape in TOPICS]
    usual = [shape.name for shape in USUAL_TOPICS]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--movers", nargs="+", choices=list(MOVERS), default=list(MOVERS))
    parser.add_argument("--topics", nargs="+", choices=shapes, default=usual)
    parser.add_argument(
        "--megabytes", type=int, default=1000, help="size of the large topic in MB (default: 1000)"
    )
    parser.add_argument(
        "--small-megabytes", type=int, default=200, help="size of the small topic in MB (default: 200)"
    )
    parser.add_argument("--repeat", type=int, default=1, help="runs of each; the median counts (default: 1)")
    parser.add_argument("--append", action="store_true", help=f"append the table to bench/{RESULTS.name}")
    return parser.parse_args()


def main() -> None:
    arguments = _parse()
    movers = [MOVERS[name] for name in arguments.movers]
    shapes = [shape for shape in TOPICS if shape.name in arguments.topics]
    # If a broker lacks CPU for a while, the controller must not fence it: Kafka's own default.
    patient = {"broker.session.timeout.ms": 9000, "broker.heartbeat.interval.ms": 2000}
    with two_clusters(jvm=BENCH_JVM, heap=_HEAP, config=patient) as (source, destination):
        bench = Bench(source, destination, arguments.repeat)
        _say("warming up the brokers")
        bench.warm_up(shapes, arguments.small_megabytes)
        results = [
            result
            for shape in shapes
            for result in bench.compare(shape, movers, arguments.small_megabytes, arguments.megabytes)
        ]
    text = table(results)
    print(text)
    if arguments.append:
        head = heading(arguments.small_megabytes, arguments.megabytes, arguments.repeat)
        with RESULTS.open("a") as file:
            file.write(f"\n{head}\n{text}\n")


if __name__ == "__main__":
    main()

"""MirrorMaker 1, and ``shoal mirror-maker`` with its files and options: they keep the name of a topic."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.measure import count_records
from bench.mover import Command, Job
from bench.shoal_movers import Code, gc_log_of_spark
from rig import BENCH_JVM, create_topic, wait_until
from rig.cluster import java_properties
from rig.mirror_maker import mirror_maker_1

__all__ = ["MirrorMaker1Mover", "ShoalMirrorMaker"]


@dataclass(frozen=True)
class MirrorMaker1Mover:
    """``kafka.tools.MirrorMaker`` of Kafka 3.9, with the heap of its start script (256 MB).

    Its batches are as large as those of MirrorMaker 2 in `bench.mirror_maker_2`, and it has a stream for each
    partition. If a record has no key, it goes to any partition.
    """

    name: str = "MirrorMaker 1"

    @contextmanager
    def command(self, job: Job) -> Iterator[Command]:
        _create_copy(job)
        jvm = ["-Xmx256m", *BENCH_JVM, job.gc_log_option]
        arguments = mirror_maker_1(jvm, *_files(job), _options(job))
        yield Command([str(each) for each in arguments], copy=job.topic, ends_by_itself=False)


@dataclass(frozen=True)
class ShoalMirrorMaker:
    """``shoal mirror-maker``; without ``--use.raw.bytes`` it decodes each record."""

    name: str
    code: Code
    options: Sequence[str] = ()

    @contextmanager
    def command(self, job: Job) -> Iterator[Command]:
        _create_copy(job)
        consumer, producer = map(str, _files(job))
        files = ["--consumer.config", consumer, "--producer.config", producer]
        own = [*_options(job), *gc_log_of_spark(job), *self.options]
        yield Command(
            self.code.command("mirror-maker", *files, *own),
            copy=job.topic,
            ends_by_itself=False,
            environment=self.code.environment,
            directory=self.code.directory,
        )


def _create_copy(job: Job) -> None:
    """Create the copy; a broker may still have a deleted one of the same name."""
    create_topic(job.destination, job.topic, job.partitions)
    records = count_records(job.destination, job.topic)
    wait_until(lambda: not records(), f"an empty {job.topic}")


def _files(job: Job) -> tuple[Path, Path]:
    """Write the properties of the consumer and of the producer."""
    properties: Mapping[str, Mapping[str, object]] = {
        "consumer": {
            "bootstrap.servers": job.source,
            "group.id": job.copy,
            "auto.offset.reset": "earliest",
        },
        "producer": {
            "bootstrap.servers": job.destination,
            "compression.type": job.codec,
            "batch.size": 524_288,
            "linger.ms": 100,
        },
    }
    for name, each in properties.items():
        (job.directory / name).write_text(java_properties(each))
        (job.directory / name).chmod(0o600)
    return job.directory / "consumer", job.directory / "producer"


def _options(job: Job) -> list[str]:
    return ["--whitelist", job.topic, "--num.streams", str(job.partitions)]

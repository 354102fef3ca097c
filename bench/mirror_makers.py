"""MirrorMaker 1, and shoal's ``mirror-maker`` and ``mirror``: movers that do not end by themselves."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from bench.mover import Command, Job
from bench.topics import PARTITIONS
from rig import BENCH_JVM
from rig.cluster import java_properties
from rig.mirror_maker import mirror_maker_1
from rig.shoal import shoal_command

__all__ = ["FollowingShoal", "MirrorMaker1Mover", "ShoalMirrorMaker", "mirror_maker"]


@dataclass(frozen=True)
class MirrorMaker1Mover:
    """``kafka.tools.MirrorMaker`` of Kafka 3.9, with the heap of its start script (256 MB).

    Its batches are as large as those of MirrorMaker 2 in `bench.mirror_maker_2`, and it has a stream for each
    partition. If a record has no key, it goes to any partition, so copies are counted over all partitions.
    """

    name: str = "MirrorMaker 1"

    @contextmanager
    def command(self, job: Job) -> Iterator[Command]:
        jvm = ["-Xmx256m", *BENCH_JVM, job.gc_log_option]
        arguments = mirror_maker_1(jvm, *_files(job), _options(job))
        yield Command([str(each) for each in arguments], copy=job.copy, ends_by_itself=False)


@dataclass(frozen=True)
class ShoalMirrorMaker:
    """``shoal mirror-maker``, with the files and options of MirrorMaker 1.

    Attributes:
        raw: Copy batches as they are (``--use.raw.bytes``); otherwise decode each, and compress it again.
    """

    name: str
    raw: bool

    @contextmanager
    def command(self, job: Job) -> Iterator[Command]:
        yield mirror_maker(job, ["--use.raw.bytes"] if self.raw else [])


@dataclass(frozen=True)
class FollowingShoal:
    """``shoal mirror`` without ``--once``."""

    name: str = "shoal mirror"

    @contextmanager
    def command(self, job: Job) -> Iterator[Command]:
        between = ["--from", job.source, "--to", job.destination]
        yield _shoal(job, ["mirror", *between, "--topics", job.topics, "--group", _group(job)])


def mirror_maker(
    job: Job,
    options: Sequence[str],
    python: str = sys.executable,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Command:
    """Return the command of ``shoal mirror-maker`` with further options."""
    consumer, producer = _files(job)
    files = ["--consumer.config", str(consumer), "--producer.config", str(producer)]
    return _shoal(job, ["mirror-maker", *files, *_options(job), *options], python, environment)


def _shoal(
    job: Job,
    arguments: Sequence[str],
    python: str = sys.executable,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Command:
    # After -Xlog:disable on the command line, so that it takes precedence.
    gc_log = f"spark.driver.extraJavaOptions={job.gc_log_option}"
    return Command(
        shoal_command(*arguments, "--conf", gc_log, python=python),
        copy=job.copy,
        ends_by_itself=False,
        environment={**environment, "XDG_STATE_HOME": str(job.directory)},
    )


def _group(job: Job) -> str:
    """Return a group other than that of `bench.copy_loop`, which has the name of its copy."""
    return f"{job.copy}_mover"


def _files(job: Job) -> tuple[Path, Path]:
    """Write the properties of the consumer and of the producer."""
    properties: Mapping[str, Mapping[str, object]] = {
        "consumer": {
            "bootstrap.servers": job.source,
            "group.id": _group(job),
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
    return ["--whitelist", job.topics, "--num.streams", str(PARTITIONS)]

"""MirrorMaker 2: large batches, the topic's own codec, a task for each partition."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.mover import Command, Job
from rig import BENCH_JVM
from rig.cluster import java_properties
from rig.mirror_maker import mirror_maker_2, mirror_maker_2_properties

__all__ = ["MirrorMaker2"]

_aliases = itertools.count(1)


@dataclass(frozen=True)
class MirrorMaker2:
    """The dedicated MirrorMaker 2 process (``connect-mirror-maker.sh``), with that script's heap.

    MirrorMaker 2 keeps its positions in the destination, by the source's alias: each run has a new one.

    Attributes:
        linger_ms: Time for which its producers wait for their batches to fill.
        isolation_level: Its consumers' own. The others read committed, and so it does for a comparison.
    """

    name: str = "MirrorMaker 2, tuned"
    linger_ms: int = 100
    isolation_level: str = "read_committed"

    @contextmanager
    def command(self, job: Job) -> Iterator[Command]:
        alias = f"source{next(_aliases)}"
        properties = job.directory / "mm2.properties"
        properties.write_text(_properties(job, alias, self.linger_ms, self.isolation_level))
        arguments = mirror_maker_2(["-Xms256m", "-Xmx2g", *BENCH_JVM, job.gc_log_option], properties)
        yield Command([str(each) for each in arguments], copy=f"{alias}.{job.topic}", ends_by_itself=False)


def _properties(job: Job, alias: str, linger_ms: int, isolation_level: str) -> str:
    login = job.java_properties
    more: dict[str, object] = {
        **{f"{each}.{key}": login[key] for each in (alias, "destination") for key in login},
        f"{alias}.consumer.isolation.level": isolation_level,
        "tasks.max": job.partitions,
        "destination.producer.batch.size": 524_288,
        "destination.producer.linger.ms": linger_ms,
        "destination.producer.compression.type": job.codec,
    }
    return java_properties(mirror_maker_2_properties(job.reads_from, job.writes_to, job.topic, alias, more))

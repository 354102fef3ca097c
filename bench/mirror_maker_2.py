"""MirrorMaker 2: large batches, the topic's own codec, a task for each partition."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.mover import Command, Job
from rig import BENCH_JVM, java
from rig.cluster import LOG4J
from rig.jars import mirror_maker_2_class_path

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
        jvm = ["-Xms256m", "-Xmx2g", *BENCH_JVM, job.gc_log_option, f"-Dlog4j2.configurationFile={LOG4J}"]
        main_class = "org.apache.kafka.connect.mirror.MirrorMaker"
        arguments = [str(java()), *jvm, "-cp", mirror_maker_2_class_path(), main_class, str(properties)]
        yield Command(arguments, copy=f"{alias}.{job.topic}", ends_by_itself=False)


def _properties(job: Job, alias: str, linger_ms: int, isolation_level: str) -> str:
    return f"""
clusters = {alias}, destination
{alias}.bootstrap.servers = {job.reads_from}
destination.bootstrap.servers = {job.writes_to}
{_for_both(job, alias)}
{alias}.consumer.isolation.level = {isolation_level}
{alias}->destination.enabled = true
{alias}->destination.topics = {job.topics}
tasks.max = {job.partitions}

destination.producer.batch.size = 524288
destination.producer.linger.ms = {linger_ms}
destination.producer.compression.type = {job.codec}

replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
sync.topic.acls.enabled = false
"""


def _for_both(job: Job, alias: str) -> str:
    clusters = (alias, "destination")
    return "".join(
        f"{each}.{key} = {value}\n" for each in clusters for key, value in job.java_properties.items()
    )

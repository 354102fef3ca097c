"""
Archive and restore beside a loop that decodes each record and writes Parquet: the row ``archive``.

Each is a command that is measured from its start to its end, and so is the same command with a tenth of the
records. The difference of the two is the cost of further records: the start and the end of Spark cost as much
as some GB, and are in both.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cost import Topic, loaded
from bench.figures import CPU, FURTHER
from bench.measure import MoverFailed, at_work
from bench.mover import Command
from bench.movers import usual_codes
from bench.report import say
from bench.rows import Row, Settings, delete_topics
from bench.runs import Section
from bench.shoal_movers import Code
from bench.topics import B16
from rig import KafkaCluster, digest_topic

__all__ = ["ARCHIVE"]

_MEGABYTES = 1_000, 10_000
_TIMEOUT_S = 3_600.0


@dataclass(frozen=True)
class _Cost:
    cpu_s: float
    seconds: float


def _measure(what: str, command: Command, room: Path) -> _Cost:
    say(what)
    began_at = time.monotonic()
    with at_work(what, command, room) as runs:
        runs.await_end(_TIMEOUT_S)
        return _Cost(runs.account.cpu_s(), time.monotonic() - began_at)


def _write_parquet(source: KafkaCluster, topic: str) -> _Cost:
    with TemporaryDirectory(prefix="bench-") as directory:
        arguments = [sys.executable, "-m", "bench.parquet_loop", source.bootstrap, topic, directory]
        return _measure("loop to Parquet", Command(arguments, topic), Path(directory))


def _archive_and_restore(
    code: Code, clusters: tuple[KafkaCluster, KafkaCluster], topic: str
) -> tuple[_Cost, _Cost]:
    source, destination = (each.bootstrap for each in clusters)
    with TemporaryDirectory(prefix="bench-") as directory:
        room = Path(directory)
        archive, own = str(room / "archive"), {"TMPDIR": directory, **code.environment}

        def mirror(between: Sequence[str]) -> Command:
            options = ["--topics", topic, "--once"]
            return Command(code.command("mirror", *options, *between), topic, environment=own)

        costs = (
            _measure(f"archive, {code.name}", mirror(["--from", source, "--to", archive]), room),
            _measure(f"restore, {code.name}", mirror(["--from", archive, "--to", destination]), room),
        )
    if digest_topic(destination, topic) != digest_topic(source, topic):
        raise MoverFailed(f"restore, {code.name}: {topic} has other records at {destination}")
    delete_topics(clusters[1], topic)
    return costs


def _run(settings: Settings) -> Section:
    clusters = settings.clusters.pair(settings.scale)
    topics = few, many = [loaded(clusters[0], B16, each * settings.scale) for each in _MEGABYTES]
    costs: dict[str, list[Sequence[_Cost]]] = defaultdict(list)
    for _ in range(settings.repeat):
        costs["confluent-kafka to Parquet"].append(
            [_write_parquet(clusters[0], each.name) for each in topics]
        )
        for code in usual_codes(settings.before):
            pairs = [_archive_and_restore(code, clusters, each.name) for each in topics]
            costs[f"archive, {code.name}"].append([archive for archive, _ in pairs])
            costs[f"restore, {code.name}"].append([restore for _, restore in pairs])
    delete_topics(clusters[0], *(each.name for each in topics))
    return _section(few, many, costs)


def _section(few: Topic, many: Topic, costs: Mapping[str, Sequence[Sequence[_Cost]]]) -> Section:
    further = many.gigabytes - few.gigabytes
    figures = {
        name: {
            CPU: [large.cpu_s / many.gigabytes for _, large in turns],
            FURTHER: [(large.cpu_s - small.cpu_s) / further for small, large in turns],
            "wire MB/s a core": [1000 * many.wire_gigabytes / large.cpu_s for _, large in turns],
            "MB/s": [1000 * many.gigabytes / large.seconds for _, large in turns],
        }
        for name, turns in costs.items()
    }
    text = (
        f"{many.gigabytes:.1f} GB of batches of 16 records with lz4, to a local disk; whole commands, with "
        f"Spark's start. A further GB costs a part of the difference to {few.gigabytes:.1f} GB."
    )
    return Section("Archive and restore", text, figures)


ARCHIVE = Row(
    "archive", "archive and restore of batches of 16 records, beside a loop that writes Parquet", 28, _run
)

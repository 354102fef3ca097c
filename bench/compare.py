"""The movers side by side on one topic: a row for each shape of batches."""

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.figures import Figure, Figures, Key, Ratio
from bench.measure import BEGINS_AT, GIGABYTE, MoverFailed, Window, measure
from bench.mover import Job, Listeners, Mover
from bench.movers import MIRROR_MAKER_2
from bench.report import markdown, say
from bench.rows import Row, Section, Settings, delete_topics, in_turn
from bench.topics import RECORD_BYTES, TOPICS, Shape, load
from rig import KafkaCluster, digest_topic
from rig.read import PartitionDigest

__all__ = ["COMPARISONS", "CPU", "CPU_OF_WIRE", "MEMORY", "Topic", "compare", "loaded"]

CPU = "CPU-s/GB"
CPU_OF_WIRE = "CPU-s/wire GB"
MEMORY = "PSS, MB"

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Topic:
    """A loaded topic of the source.

    Attributes:
        gigabytes: Uncompressed.
        wire_gigabytes: Its batches, as they are stored and sent.
        records: Number of its records, without markers of transactions.
    """

    name: str
    shape: Shape
    gigabytes: float
    wire_gigabytes: float
    records: int


def loaded(source: KafkaCluster, shape: Shape, megabytes: float) -> Topic:
    """Load a topic of a shape."""
    name = f"{shape.name}_{next(_numbers)}"
    say(f"loading {name}, {megabytes:g} MB")
    size = load(source.bootstrap, shape, name, megabytes)
    directories = [source.partition_dir(name, partition) for partition in range(shape.partitions)]
    stored = sum(segment.stat().st_size for path in directories for segment in path.glob("*.log"))
    return Topic(name, shape, size / GIGABYTE, stored / GIGABYTE, size // RECORD_BYTES)


def compare(
    clusters: tuple[KafkaCluster, KafkaCluster],
    topic: Topic,
    movers: Sequence[Mover],
    repeat: int,
    begins_at: float = BEGINS_AT,
    listeners: Listeners | None = None,
) -> dict[str, list[Window]]:
    """Let the movers copy a topic in turn; return their windows by their names.

    Args:
        begins_at: The part of the records that is not measured.
        listeners: The addresses that the movers get instead of the clusters' own.

    Raises:
        MoverFailed: A mover failed, or its first copy has other records.
    """
    source, destination = clusters
    expected: dict[int, PartitionDigest] = {}
    windows: dict[str, list[Window]] = {mover.name: [] for mover in movers}
    for turn, mover in in_turn(movers, repeat):
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            job = Job(
                source.bootstrap,
                destination.bootstrap,
                topic=topic.name,
                copy=f"{topic.name}_copy{next(_numbers)}",
                codec=topic.shape.codec,
                directory=Path(directory),
                partitions=topic.shape.partitions,
                records=topic.records,
                listeners=listeners,
            )
            window, copy = measure(mover, job, source, destination, begins_at=begins_at)
        windows[mover.name].append(window)
        say(
            f"{topic.shape.name}, {mover.name}, turn {turn + 1}: "
            f"{window.cpu_s / window.part / topic.gigabytes:.2f} {CPU} in {window.seconds:.1f} s, "
            f"yardstick {window.yardstick_ms:.2f} ms"
        )
        if copy is None:
            continue
        if turn == 0:
            expected = expected or digest_topic(source.bootstrap, topic.name)
            if digest_topic(destination.bootstrap, copy) != expected:
                raise MoverFailed(f"{mover.name}: {copy} has other records than {topic.name}")
        delete_topics(destination, copy)
    return windows


_HEAD = (
    "mover",
    "MB/s",
    CPU,
    CPU_OF_WIRE,
    "of it JVM",
    "of it the busiest other process",
    "source broker",
    "destination broker",
    "start, s",
    "start, CPU-s",
    MEMORY,
    "yardstick, ms",
    f"{MIRROR_MAKER_2.name}, costs",
)


def _run(shape: Shape, settings: Settings) -> Section:
    clusters = settings.clusters.pair(settings.scale)
    topic = loaded(clusters[0], shape, shape.megabytes * settings.scale)
    windows = compare(clusters, topic, list(settings.movers.values()), settings.repeat)
    delete_topics(clusters[0], topic.name)
    figures = _figures(topic, windows)
    text = (
        f"{topic.gigabytes * 1000:,.0f} MB in batches of {shape.records_per_batch:,} records of 1,000 bytes, "
        f"{shape.codec}, {topic.wire_gigabytes / topic.gigabytes:.0%} of it on the wire, "
        f"{shape.partitions} partitions.\n\n{_table(topic, windows, figures)}"
    )
    return Section(f"Movers, {shape.name}", text, figures)


def _figures(topic: Topic, windows: Mapping[str, Sequence[Window]]) -> Figures:
    found: Figures = {}
    for mover, turns in windows.items():
        quantities = {
            CPU: [each.cpu_s / each.part / topic.gigabytes for each in turns],
            CPU_OF_WIRE: [each.cpu_s / each.part / topic.wire_gigabytes for each in turns],
            MEMORY: [each.pss / 1e6 for each in turns],
        }
        found |= {Key(topic.shape.name, mover, name): Figure(values) for name, values in quantities.items()}
    return found


def _table(topic: Topic, windows: Mapping[str, Sequence[Window]], figures: Figures) -> str:
    peer = figures.get(Key(topic.shape.name, MIRROR_MAKER_2.name, CPU))
    rows = []
    for mover, turns in windows.items():
        cpu = figures[Key(topic.shape.name, mover, CPU)]

        def per_gb(quantity: str, turns: Sequence[Window] = turns) -> str:
            return f"{Figure([getattr(each, quantity) / each.part / topic.gigabytes for each in turns]):.2f}"

        def plain(quantity: str, spec: str, turns: Sequence[Window] = turns) -> str:
            figure = Figure([getattr(each, quantity) for each in turns])
            return format(figure, spec) if any(figure.turns) else ""

        speed = Figure([each.part * topic.gigabytes * 1000 / each.seconds for each in turns])
        rows.append(
            (
                mover,
                f"{speed:.0f}",
                f"**{cpu:.2f}**",
                f"{figures[Key(topic.shape.name, mover, CPU_OF_WIRE)]:.2f}",
                per_gb("jvm_cpu_s"),
                per_gb("task_cpu_s"),
                per_gb("source_cpu_s"),
                per_gb("destination_cpu_s"),
                plain("start_s", ".1f"),
                plain("start_cpu_s", ".1f"),
                f"{figures[Key(topic.shape.name, mover, MEMORY)]:.0f}" if any(e.pss for e in turns) else "",
                plain("yardstick_ms", ".2f"),
                str(Ratio.of(peer, cpu)) if peer is not None and mover != MIRROR_MAKER_2.name else "",
            )
        )
    return markdown(_HEAD, rows)


_ABOUT = {
    "b16_lz4": ("16 records of 1 KB in a batch, lz4", 6),
    "b256_gzip": ("256 records in a batch, gzip", 6),
    "b1024_lz4": ("1,024 records in a batch, lz4", 5),
    "b1_lz4": ("1 record in a batch, lz4", 5),
}

COMPARISONS = [
    Row(shape.name, f"movers: {about}", minutes, partial(_run, shape))
    for shape in TOPICS
    if shape.name in _ABOUT
    for about, minutes in [_ABOUT[shape.name]]
]

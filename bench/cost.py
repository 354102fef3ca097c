"""The cost of movers side by side: a row for each shape of batches, over TLS, and of transactions.

A mirror runs for weeks, and a JVM compiles its code in the first half minute. So each mover copies enough for
that, and only the second half of the records is measured. The brokers pay for what a mover sends them, and so
their CPU stands beside the mover's.
"""

import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.figures import CPU, Figures, costs_as_much
from bench.measure import GIGABYTE, MoverFailed, Window, measure
from bench.mover import Job, Listeners, Mover
from bench.movers import MIRROR_MAKER_2
from bench.report import say
from bench.rows import Row, Settings, delete_topics, in_turn
from bench.runs import Section
from bench.topics import B1, B16, B256, B1024, RECORD_BYTES, Shape, load
from rig import KafkaCluster, digest_topic
from rig.read import PartitionDigest

__all__ = ["COSTS", "Topic", "compare", "copies", "figures_of", "loaded"]

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

    def per_gb(self, turns: Sequence[Window], *quantities: str) -> list[float]:
        """Return the sum of quantities of windows for each uncompressed gigabyte, by turn."""
        sums = [sum(float(getattr(turn, each)) for each in quantities) for turn in turns]
        return [each / turn.part / self.gigabytes for each, turn in zip(sums, turns, strict=True)]

    def speed(self, turns: Sequence[Window], *, on_wire: bool = False) -> list[float]:
        """Return the megabytes a second of each turn."""
        size = self.wire_gigabytes if on_wire else self.gigabytes
        return [turn.part * size * 1000 / turn.seconds for turn in turns]


def loaded(source: KafkaCluster, shape: Shape, megabytes: float) -> Topic:
    """Load a topic of a shape."""
    name = f"{shape.name}_{next(_numbers)}"
    say(f"loading {name}, {megabytes:g} MB")
    size = load(source.bootstrap, shape, name, megabytes)
    directories = [source.partition_dir(name, partition) for partition in range(shape.partitions)]
    stored = sum(segment.stat().st_size for path in directories for segment in path.glob("*.log"))
    return Topic(name, shape, size / GIGABYTE, stored / GIGABYTE, size // RECORD_BYTES)


def copies(
    clusters: tuple[KafkaCluster, KafkaCluster],
    topic: Topic,
    movers: Sequence[Mover],
    repeat: int,
    listeners: Listeners | None = None,
) -> Iterator[tuple[Mover, Window, str]]:
    """Let the movers copy a topic in turn; yield each with its window and its copy, which is then deleted.

    Args:
        listeners: The addresses that the movers get instead of the clusters' own.

    Raises:
        MoverFailed: A mover failed.
    """
    source, destination = clusters
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
            window, copy = measure(mover, job, source, destination)
        (cost,) = topic.per_gb([window], "cpu_s")
        say(f"{topic.shape.name}, {mover.name}, turn {turn + 1}: {cost:.2f} {CPU} in {window.seconds:.1f} s")
        yield mover, window, copy
        delete_topics(destination, copy)


def compare(
    clusters: tuple[KafkaCluster, KafkaCluster],
    topic: Topic,
    movers: Sequence[Mover],
    repeat: int,
    listeners: Listeners | None = None,
) -> dict[str, list[Window]]:
    """Let the movers copy a topic as `copies` does; return their windows by their names.

    Raises:
        MoverFailed: A mover failed, or its first copy has other records.
    """
    source, destination = clusters
    windows: dict[str, list[Window]] = {mover.name: [] for mover in movers}
    expected: dict[int, PartitionDigest] = {}
    for mover, window, copy in copies(clusters, topic, movers, repeat, listeners):
        if not windows[mover.name]:
            expected = expected or digest_topic(source.bootstrap, topic.name)
            if digest_topic(destination.bootstrap, copy) != expected:
                raise MoverFailed(f"{mover.name}: {copy} has other records than {topic.name}")
        windows[mover.name].append(window)
    return windows


def figures_of(topic: Topic, windows: Mapping[str, Sequence[Window]]) -> Figures:
    """Return the figures of the movers' windows."""
    found = {}
    peer = windows.get(MIRROR_MAKER_2.name)
    for mover, turns in windows.items():
        cpu = topic.per_gb(turns, "cpu_s")
        quantities = {
            CPU: cpu,
            "source broker": topic.per_gb(turns, "source_cpu_s"),
            "destination broker": topic.per_gb(turns, "destination_cpu_s"),
            "all three": topic.per_gb(turns, "cpu_s", "source_cpu_s", "destination_cpu_s"),
            "MB/s": topic.speed(turns),
            "PSS, MB": [turn.pss / 1e6 for turn in turns],
        }
        if peer is not None and mover != MIRROR_MAKER_2.name:
            costs = zip(topic.per_gb(peer, "cpu_s"), cpu, strict=True)
            quantities[costs_as_much("MirrorMaker 2")] = [theirs / ours for theirs, ours in costs]
        found[mover] = quantities
    return found


@dataclass(frozen=True)
class _Cost:
    """One row.

    Attributes:
        megabytes: Enough for half a minute of MirrorMaker 2.
        about: One line for ``--help``.
        minutes: How long three turns take.
        tls: Whether the movers connect to both clusters over TLS.
    """

    name: str
    shape: Shape
    megabytes: int
    about: str
    minutes: float
    tls: bool = False


_ROWS = (
    _Cost("b16_lz4", B16, 4000, "16 records of 1 KB in a batch, lz4", 9),
    # Compression takes the peers so long that a fourth of the size is enough.
    _Cost("b256_gzip", B256, 1000, "256 records in a batch, gzip", 8),
    _Cost("b1024_lz4", B1024, 4000, "1,024 records in a batch, lz4", 8),
    _Cost("b1_lz4", B1, 2000, "1 record in a batch, lz4", 11),
    _Cost("tls", B16, 4000, "16 records, lz4, TLS at both ends", 8, tls=True),
    _Cost(
        "transactions", replace(B16, batches_per_transaction=100), 4000,
        "16 records, lz4, in committed transactions of 100 batches a partition", 7,
    ),
)  # fmt: skip


def _run(row: _Cost, settings: Settings) -> Section:
    clusters = settings.clusters.pair(settings.scale)
    topic = loaded(clusters[0], row.shape, row.megabytes * settings.scale)
    listeners = settings.clusters.tls() if row.tls else None
    windows = compare(clusters, topic, list(settings.movers.values()), settings.repeat, listeners)
    delete_topics(clusters[0], topic.name)
    text = (
        f"{topic.gigabytes * 1000:,.0f} MB, {row.about}; {topic.wire_gigabytes / topic.gigabytes:.0%} of it "
        f"on the wire, {row.shape.partitions} partitions. Measured from half of the records to the last."
    )
    return Section(f"Cost: {row.about}", text, figures_of(topic, windows))


COSTS = [Row(each.name, f"cost: {each.about}", each.minutes, partial(_run, each)) for each in _ROWS]

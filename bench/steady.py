"""The whole cost of a mover in steady state: for each shape of batches, over TLS, and of transactions.

A mirror runs for weeks, and a JVM compiles its code in the first half minute. So each mover copies enough for
that, and only the second half of the records is measured. The brokers pay for what a mover sends them, and so
their CPU stands beside the mover's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bench.compare import CPU, MEMORY, Topic, compare, loaded
from bench.figures import Figure, Figures, Key, Ratio
from bench.measure import Window
from bench.movers import MIRROR_MAKER_2
from bench.report import markdown
from bench.rows import Row, Section, Settings, delete_topics
from bench.topics import TOPICS, Shape

__all__ = ["ALL_THREE", "STEADY"]

ALL_THREE = "CPU-s/GB, mover and both brokers"

_BEGINS_AT = 0.5
#: The others are no movers of users: a part of shoal, and the bytes without any work.
_MOVERS = ("mm2", "confluent", "shoal", "shoal-pure", "shoal-before")
_SHAPES = {shape.name: shape for shape in TOPICS}


@dataclass(frozen=True)
class _Steady:
    """One row.

    Attributes:
        shape: The batches, and how many: MirrorMaker 2 copies for half a minute or more.
        about: One line for ``--help``.
        minutes: How long three turns take.
        tls: Whether the movers connect to both clusters over TLS.
    """

    name: str
    shape: Shape
    about: str
    minutes: float
    tls: bool = False


def _steady(name: str, megabytes: int) -> Shape:
    return replace(_SHAPES[name], megabytes=megabytes)


_ROWS = (
    _Steady("steady_b16_lz4", _steady("b16_lz4", 4000), "16 records in a batch, lz4", 7),
    # Compression takes the peers so long that a fourth of the size is enough.
    _Steady("steady_b256_gzip", _steady("b256_gzip", 1000), "256 records in a batch, gzip", 6),
    _Steady("steady_b1024_lz4", _steady("b1024_lz4", 4000), "1,024 records in a batch, lz4", 6),
    _Steady("steady_b1_lz4", _steady("b1_lz4", 2000), "1 record in a batch, lz4", 9),
    _Steady("steady_tls", _steady("b16_lz4", 4000), "16 records, lz4, TLS at both ends", 8, tls=True),
    _Steady(
        "steady_transactions",
        replace(_steady("b16_lz4", 4000), name="b16_lz4_transactions", batches_per_transaction=100),
        "16 records, lz4, in committed transactions of 100 batches a partition",
        7,
    ),
)

_HEAD = (
    "mover",
    CPU,
    "source broker",
    "destination broker",
    "all three",
    "MB/s",
    MEMORY,
    "yardstick, ms",
    f"{MIRROR_MAKER_2.name}, costs",
    "with both brokers",
)


def _run(row: _Steady, settings: Settings) -> Section:
    clusters = settings.clusters.pair(settings.scale)
    movers = [mover for name, mover in settings.movers.items() if name in _MOVERS]
    topic = loaded(clusters[0], row.shape, row.shape.megabytes * settings.scale)
    listeners = settings.clusters.tls() if row.tls else None
    windows = compare(clusters, topic, movers, settings.repeat, begins_at=_BEGINS_AT, listeners=listeners)
    delete_topics(clusters[0], topic.name)
    figures = _figures(row.name, topic, windows)
    text = (
        f"{topic.gigabytes * 1000:,.0f} MB, {row.about}; {topic.wire_gigabytes / topic.gigabytes:.0%} of it "
        f"on the wire, {row.shape.partitions} partitions. Measured from half of the records to the last.\n\n"
        f"{_table(row.name, topic, windows, figures)}"
    )
    return Section(f"Steady state, {row.about}", text, figures)


def _per_gb(topic: Topic, turns: Sequence[Window], *quantities: str) -> Figure:
    return Figure(
        [sum(getattr(turn, each) for each in quantities) / turn.part / topic.gigabytes for turn in turns]
    )


def _figures(row: str, topic: Topic, windows: Mapping[str, Sequence[Window]]) -> Figures:
    found: Figures = {}
    for mover, turns in windows.items():
        found[Key(row, mover, CPU)] = _per_gb(topic, turns, "cpu_s")
        found[Key(row, mover, ALL_THREE)] = _per_gb(
            topic, turns, "cpu_s", "source_cpu_s", "destination_cpu_s"
        )
        found[Key(row, mover, MEMORY)] = Figure([turn.pss / 1e6 for turn in turns])
    return found


def _table(row: str, topic: Topic, windows: Mapping[str, Sequence[Window]], figures: Figures) -> str:
    rows = []
    for mover, turns in windows.items():
        ratios = [
            str(Ratio.of(peer, figures[Key(row, mover, quantity)]))
            for quantity in (CPU, ALL_THREE)
            if (peer := figures.get(Key(row, MIRROR_MAKER_2.name, quantity))) is not None
        ]
        speed = Figure([turn.part * topic.gigabytes * 1000 / turn.seconds for turn in turns])
        rows.append(
            (
                mover,
                f"**{figures[Key(row, mover, CPU)]:.2f}**",
                f"{_per_gb(topic, turns, 'source_cpu_s'):.2f}",
                f"{_per_gb(topic, turns, 'destination_cpu_s'):.2f}",
                f"**{figures[Key(row, mover, ALL_THREE)]:.2f}**",
                f"{speed:.0f}",
                f"{figures[Key(row, mover, MEMORY)]:.0f}",
                f"{Figure([turn.yardstick_ms for turn in turns]):.2f}",
                *(ratios if mover != MIRROR_MAKER_2.name and ratios else ("", "")),
            )
        )
    return markdown(_HEAD, rows)


STEADY = [Row(each.name, f"steady state: {each.about}", each.minutes, partial(_run, each)) for each in _ROWS]

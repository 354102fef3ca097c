"""The ways of a mirror compared with each other, in the same turn: the row ``copy_path``.

TLS and transactions compare with the plain way of the same batches, and ``--rebatch`` with the mirror that
does without it. Each is a whole ``shoal mirror --once``, of which the second half of the records counts.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bench.cost import Topic, compare, loaded
from bench.figures import CPU, RATIO, Figures
from bench.measure import Window
from bench.mover import Command, Job, Listeners
from bench.movers import usual_codes
from bench.rows import Row, Settings, delete_topics, in_turn
from bench.runs import Section
from bench.shoal_movers import Code, Shoal
from bench.topics import TOPICS, Shape

__all__ = ["COPY_PATH"]

_B16 = next(shape for shape in TOPICS if shape.name == "b16_lz4")
_B1 = next(shape for shape in TOPICS if shape.name == "b1_lz4")
_PLAIN, _ONE_RECORD = "plain", "one record, uncompressed"


@dataclass(frozen=True)
class _Way:
    """A way of a mirror.

    Attributes:
        base: The way that it compares with; None for one that others compare with.
        megabytes: A second of the brokers' work, at least.
        tls: Which clusters have TLS: none, the destination, or both.
        options: Further options of the command.
    """

    name: str
    shape: Shape
    megabytes: int
    base: str | None = None
    tls: str = "none"
    options: Sequence[str] = ()


_TRANSACTIONS = replace(_B16, name="b16_lz4_tx", batches_per_transaction=100)
_UNCOMPRESSED = replace(_B1, name="b1_none", codec="none")
#: ``--rebatch 64k`` makes such batches of it, and cannot cost less than their copy.
_JOINED = replace(_UNCOMPRESSED, name="b60_none", records_per_batch=60)

_WAYS = (
    _Way(_PLAIN, _B16, 2000),
    _Way("TLS at the destination", _B16, 2000, _PLAIN, "destination"),
    _Way("TLS at both ends", _B16, 2000, _PLAIN, "both"),
    _Way("committed transactions", _TRANSACTIONS, 2000, _PLAIN),
    _Way(_ONE_RECORD, _UNCOMPRESSED, 1500),
    _Way("60 records, uncompressed", _JOINED, 1500, _ONE_RECORD),
    _Way("one record, --rebatch 64k", _UNCOMPRESSED, 1500, _ONE_RECORD, options=("--rebatch", "64k")),
    _Way("one record, --rebatch 64k:lz4", _UNCOMPRESSED, 1500, _ONE_RECORD, options=("--rebatch", "64k:lz4")),
)


@dataclass(frozen=True)
class _WayOf:
    """A mover: some code of shoal on a way."""

    code: Code
    way: _Way
    listeners: Listeners | None

    @property
    def name(self) -> str:
        return f"{self.way.name}, {self.code.name}"

    @contextmanager
    def command(self, job: Job) -> Iterator[Command]:
        with Shoal(self.code, self.way.options).command(replace(job, listeners=self.listeners)) as command:
            yield command


def _run(settings: Settings) -> Section:
    clusters = settings.clusters.pair(settings.scale)
    shapes = {way.shape: way.megabytes for way in _WAYS}
    topics = {shape: loaded(clusters[0], shape, size * settings.scale) for shape, size in shapes.items()}
    movers = [
        _WayOf(code, way, _listeners(settings, way)) for way in _WAYS for code in usual_codes(settings.before)
    ]
    windows: dict[str, list[Window]] = defaultdict(list)
    for _, mover in in_turn(movers, settings.repeat):
        windows[mover.name] += compare(clusters, topics[mover.way.shape], [mover], 1)[mover.name]
    delete_topics(clusters[0], *(topic.name for topic in topics.values()))
    text = (
        "Batches of 16 records with lz4, and of one record without compression. TLS and transactions (a "
        "marker behind 100 batches of a partition) compare with the plain way, --rebatch with one record. "
        "60 records are what --rebatch 64k makes of them. Measured from half of the records to the last."
    )
    return Section("The ways of a mirror", text, _figures(movers, topics, windows))


def _listeners(settings: Settings, way: _Way) -> Listeners | None:
    if way.tls == "none":
        return None
    tls = settings.clusters.tls()
    if way.tls == "both":
        return tls
    source, _ = settings.clusters.pair()
    return replace(tls, source=source.bootstrap, source_is_plain=True)


def _figures(
    movers: Sequence[_WayOf], topics: dict[Shape, Topic], windows: dict[str, list[Window]]
) -> Figures:
    costs = {
        (mover.way.name, mover.code.name): topics[mover.way.shape].per_gb(windows[mover.name], "cpu_s")
        for mover in movers
    }
    figures = {}
    for mover in movers:
        cost = costs[mover.way.name, mover.code.name]
        figures[mover.name] = {CPU: cost}
        if mover.way.base is not None:
            base = costs[mover.way.base, mover.code.name]
            figures[mover.name][RATIO] = [own / other for own, other in zip(cost, base, strict=True)]
    return figures


COPY_PATH = Row("copy_path", "TLS at one end and at both, transactions, and --rebatch, as ratios", 20, _run)

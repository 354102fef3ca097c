"""The ways of a mirror compared with each other, in the same turn: the row ``copy_path``.

TLS and transactions compare with the plain way of the same batches, and ``--rebatch`` with the mirror that
does without it. Each is a whole ``shoal mirror --once``, of which the second half of the records counts.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bench.cost import compare, loaded
from bench.figures import CPU, RATIO
from bench.measure import Window
from bench.movers import usual_codes
from bench.report import say
from bench.rows import Row, Settings, delete_topics, in_turn
from bench.runs import Section
from bench.shoal_movers import Shoal
from bench.topics import B1, B16, Shape

__all__ = ["COPY_PATH"]

_PLAIN, _ONE_RECORD = "plain", "one record, uncompressed"


@dataclass(frozen=True)
class _Way:
    """A way of a mirror.

    Attributes:
        megabytes: A second of the brokers' work, at least.
        base: The way that it compares with; None for one that others compare with.
        tls: Which clusters have TLS; None for none.
        options: Further options of the command.
    """

    name: str
    shape: Shape
    megabytes: int
    base: str | None = None
    tls: Literal["destination", "both"] | None = None
    options: Sequence[str] = ()


_TRANSACTIONS = replace(B16, name="b16_lz4_tx", batches_per_transaction=100)
_UNCOMPRESSED = replace(B1, name="b1_none", codec="none")
#: ``--rebatch 64k`` makes such batches of it, and cannot cost less than their copy.
_JOINED = replace(_UNCOMPRESSED, name="b60_none", records_per_batch=60)

_WAYS = (
    _Way(_PLAIN, B16, 2000),
    _Way("TLS at the destination", B16, 2000, _PLAIN, "destination"),
    _Way("TLS at both ends", B16, 2000, _PLAIN, "both"),
    _Way("committed transactions", _TRANSACTIONS, 2000, _PLAIN),
    _Way(_ONE_RECORD, _UNCOMPRESSED, 1500),
    _Way("60 records, uncompressed", _JOINED, 1500, _ONE_RECORD),
    _Way("one record, --rebatch 64k", _UNCOMPRESSED, 1500, _ONE_RECORD, options=("--rebatch", "64k")),
    _Way("one record, --rebatch 64k:lz4", _UNCOMPRESSED, 1500, _ONE_RECORD, options=("--rebatch", "64k:lz4")),
)


def _run(settings: Settings) -> Section:
    clusters = settings.clusters.pair(settings.scale)
    shapes = {way.shape: way.megabytes for way in _WAYS}
    topics = {shape: loaded(clusters[0], shape, size * settings.scale) for shape, size in shapes.items()}
    movers = [(way, code) for way in _WAYS for code in usual_codes(settings.before)]
    windows: dict[tuple[str, str], list[Window]] = defaultdict(list)
    for _, (way, code) in in_turn(movers, settings.repeat):
        say(way.name)
        listeners = settings.clusters.tls(way.tls) if way.tls else None
        (found,) = compare(clusters, topics[way.shape], [Shoal(code, way.options)], 1, listeners).values()
        windows[way.name, code.name] += found
    delete_topics(clusters[0], *(topic.name for topic in topics.values()))
    costs = {
        (way.name, code.name): topics[way.shape].per_gb(windows[way.name, code.name], "cpu_s")
        for way, code in movers
    }
    figures = {}
    for way, code in movers:
        cost = costs[way.name, code.name]
        figures[f"{way.name}, {code.name}"] = {CPU: cost}
        if way.base is not None:
            base = costs[way.base, code.name]
            figures[f"{way.name}, {code.name}"][RATIO] = [
                own / other for own, other in zip(cost, base, strict=True)
            ]
    text = (
        "Batches of 16 records with lz4, and of one record without compression. TLS and transactions (a "
        "marker behind 100 batches of a partition) compare with the plain way, --rebatch with one record. "
        "60 records are what --rebatch 64k makes of them. Measured from half of the records to the last."
    )
    return Section("The ways of a mirror", text, figures)


COPY_PATH = Row("copy_path", "TLS at one end and at both, transactions, and --rebatch, as ratios", 20, _run)

"""The aims, as data, and which of them a run has met."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.compare import CPU, MEMORY
from bench.far import SPEED_FROM_AFAR
from bench.figures import LEAST_TURNS, Figure, Figures, Key, Ratio
from bench.growth import PARTITIONS_OF_GROWTH
from bench.lag import CPU_OF_A_CORE
from bench.movers import MIRROR_MAKER_2
from bench.report import markdown
from bench.verify_speed import SPEED as VERIFY_SPEED

__all__ = ["AIMS", "Aim", "Bound", "Times", "against_before", "for_readme", "table", "verdict"]


@dataclass(frozen=True)
class Bound:
    """A bound of the median of one figure."""

    text: str
    key: Key
    at_most: float | None = None
    at_least: float | None = None
    spec: str = ".2f"

    def measured(self, figures: Figures) -> str | None:
        figure = figures.get(self.key)
        return None if figure is None else format(figure, self.spec)

    def is_met(self, figures: Figures) -> bool | None:
        median = figures[self.key].median
        return (self.at_most is None or median <= self.at_most) and (
            self.at_least is None or median >= self.at_least
        )


@dataclass(frozen=True)
class Times:
    """How many times higher one figure is than another."""

    text: str
    higher: Key
    lower: Key
    at_least: float | None = None
    at_most: float | None = None

    def measured(self, figures: Figures) -> str | None:
        return str(self._ratio(figures)) if {self.higher, self.lower} <= figures.keys() else None

    def is_met(self, figures: Figures) -> bool | None:
        ratio = self._ratio(figures)
        if len(ratio.turns) < LEAST_TURNS:
            return None
        decided = [ratio.median] if ratio.is_quotable else ratio.turns
        found = {self._is_within(each) for each in decided}
        return found.pop() if len(found) == 1 else None

    def _is_within(self, ratio: float) -> bool:
        return (self.at_least is None or ratio >= self.at_least) and (
            self.at_most is None or ratio <= self.at_most
        )

    def _ratio(self, figures: Figures) -> Ratio:
        return Ratio.of(figures[self.higher], figures[self.lower])


Aim = Bound | Times
"""Each says what was measured, None if nothing was, and whether it is met, None if the runs do not agree."""


_NATIVE, _PURE, _BEFORE = "native", "pure Python", "before"


def _cpu(topic: str, native: float, pure: float, times: float | None) -> list[Aim]:
    ours, plain = Key(topic, f"shoal, {_NATIVE}", CPU), Key(topic, f"shoal, {_PURE}", CPU)
    aims: list[Aim] = [
        Bound(f"{topic}: at most {native:g} {CPU}, Spark included", ours, at_most=native),
        Bound(f"{topic}, pure Python: at most {pure:g} {CPU}, Spark included", plain, at_most=pure),
    ]
    if times is not None:
        peer = Key(topic, MIRROR_MAKER_2.name, CPU)
        aims.append(Times(f"{topic}: at most 1/{times:g} of MirrorMaker 2", peer, ours, at_least=times))
    return aims


def _verify(topic: str, native: float, pure: float) -> list[Aim]:
    return [
        Bound(
            f"`shoal verify`, {topic}, {path}: at least {aim:g} {VERIFY_SPEED}",
            Key("verify", f"{topic}, {path}", VERIFY_SPEED),
            at_least=aim,
            spec=".0f",
        )
        for path, aim in ((_NATIVE, native), (_PURE, pure))
    ]


def _growth() -> list[Aim]:
    def key(partitions: int) -> Key:
        return Key("growth", f"copy loop, {_NATIVE}, {partitions} partitions", CPU)

    return [
        Times(f"{each:,} partitions: at most 1.5 times the CPU of 64", key(each), key(64), at_most=1.5)
        for each in PARTITIONS_OF_GROWTH
        if each != 64
    ]


def _at_most(row: str, mover: str, aims: Sequence[tuple[str, str, float, str]]) -> list[Aim]:
    """Return the upper bounds of one mover in a row: text, quantity, bound and format."""
    return [
        Bound(text, Key(row, mover, quantity), at_most=bound, spec=spec)
        for text, quantity, bound, spec in aims
    ]


_SHOAL = f"shoal, {_NATIVE}"
_FLAT = "the last GBs against the first"

AIMS: Sequence[Aim] = [
    *_cpu("b16_lz4", 0.9, 2.0, 20),
    *_cpu("b256_gzip", 0.45, 0.6, 100),
    *_cpu("b1024_lz4", 0.35, 0.5, 22),
    *_cpu("b1_lz4", 6, 25, None),
    *_at_most("b16_lz4", _SHOAL, [("memory of all processes at work: at most 700 MB", MEMORY, 700, ".0f")]),
    *_verify("b16_lz4", 1000, 350),
    *_verify("b1024_lz4", 2000, 1000),
    *_at_most(
        "lag",
        _SHOAL,
        [
            ("lag at 200 records/s: p99 at most 6 ms", "p99, ms", 6, ".1f"),
            ("lag at 200 records/s: the longest at most 100 ms", "longest, ms", 100, ".1f"),
            ("at 200 records/s at most 6 % of a core", CPU_OF_A_CORE, 6, ".1f"),
        ],
    ),
    *_at_most(
        "start",
        f"{_NATIVE}, first start",
        [("first start: first batch after at most 7 s", "first batch, s", 7, ".1f")],
    ),
    *_at_most(
        "start",
        f"{_NATIVE}, second start",
        [
            ("second start: first batch after at most 4 s", "first batch, s", 4, ".1f"),
            ("second start: at most 5 CPU-s until then", "CPU-s until then", 5, ".1f"),
        ],
    ),
    *_growth(),
    *_at_most(
        "aligning",
        "with positions",
        [
            ("aligning 1,024 partitions: at most 3 s", "s", 3, ".1f"),
            ("aligning 1,024 partitions: at most 2 CPU-s", "CPU-s", 2, ".1f"),
        ],
    ),
    *_at_most(
        "size", _NATIVE, [("flat over size: the last third at most 1.15 times the first", _FLAT, 1.15, ".2f")]
    ),
    Bound(
        "one partition whose source is 80 ms away: at least 110 wire MB/s",
        Key("far", f"far source: {_SHOAL} --fetch-buffer-bytes 32m", SPEED_FROM_AFAR),
        at_least=110,
        spec=".0f",
    ),
]


def verdict(aim: Aim, figures: Figures) -> str:
    """Return ``met``, ``missed``, or the reason why neither can be said."""
    if aim.measured(figures) is None:
        return "not measured"
    return {True: "met", False: "**missed**", None: "undecided: too few runs, or they differ"}[
        aim.is_met(figures)
    ]


def table(figures: Figures) -> str:
    """Return a Markdown table of all aims."""
    rows = [(aim.text, aim.measured(figures) or "", verdict(aim, figures)) for aim in AIMS]
    return markdown(("aim", "measured", ""), rows)


def for_readme(figures: Figures) -> str:
    """Return the table of the README: a ratio is in it only if three runs repeat within 15 %."""
    topics = dict.fromkeys(key.row for key in figures if key.quantity == CPU and key.row != "growth")
    movers = dict.fromkeys(key.mover for key in figures if key.quantity == CPU and key.row in topics)
    rows = []
    for topic in topics:
        peer = figures.get(Key(topic, MIRROR_MAKER_2.name, CPU))
        rows.append((topic, *(_readme_cell(figures.get(Key(topic, each, CPU)), peer) for each in movers)))
    return markdown(("batches", *movers), rows)


def _readme_cell(figure: Figure | None, peer: Figure | None) -> str:
    if figure is None:
        return ""
    if peer is None or peer is figure:
        return f"{figure.median:.2f}"
    ratio = Ratio.of(peer, figure)
    return f"{figure.median:.2f} (1/{ratio.median:.3g})" if ratio.is_quotable else f"{figure.median:.2f}"


_MORE_IS_BETTER = {VERIFY_SPEED, SPEED_FROM_AFAR}
_SLOWER_FROM = 1.05
"""Two runs of the same code differ by as much."""


def against_before(figures: Figures) -> str:
    """Return a table of this commit's figures beside those of the other commit's shoal.

    A figure is worse if it is so in each turn, and by more than 5 % at the median.
    """
    rows = []
    for before in (key for key in figures if _BEFORE in key.mover):
        for path in (_NATIVE, _PURE):
            now = before._replace(mover=before.mover.replace(_BEFORE, path))
            if now not in figures or before.quantity.startswith("yardstick"):
                continue
            ratio = Ratio.of(figures[now], figures[before])
            better = (
                Ratio([1 / each for each in ratio.turns]) if before.quantity in _MORE_IS_BETTER else ratio
            )
            rows.append(
                (
                    *now,
                    f"{figures[before]:.2f}",
                    f"{figures[now]:.2f}",
                    f"{Figure(ratio.turns):.2f} times",
                    _change(better),
                )
            )
    return markdown(("row", "mover", "quantity", "before", "now", "now against before", ""), rows)


def _change(ratio: Ratio) -> str:
    if len(ratio.turns) < LEAST_TURNS:
        return "too few runs"
    if ratio.median > _SLOWER_FROM and min(ratio.turns) > 1:
        return "**worse**"
    if ratio.median < 1 / _SLOWER_FROM and max(ratio.turns) < 1:
        return "better"
    return "the same"

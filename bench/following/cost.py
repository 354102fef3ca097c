"""The CPU that the groups cost a mirror.

Two mirrors copy the same topics side by side, and the groups follow one of them. The difference of their CPU
in the same minute is the cost of the groups: while no group moves, while each commits every five seconds, and
while records come, too.
"""

import itertools
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.figures import Figure
from bench.following.groups import await_coordinators, commit, committed, delete_groups
from bench.following.lines import Line
from bench.following.load import Size, producing
from bench.following.mirrors import RunningMirror, mirroring
from bench.following.tally import Position
from bench.following.translation import bounds_of
from bench.measure import count_records
from bench.report import say
from rig import KafkaCluster, create_topic, wait_until
from rig.load import load_values

__all__ = ["measure_cost"]

_AT_MOST_PERCENT = 2
_RECORDS = 400
_FIRST_BELOW = 50
_COPIES_S = 900.0
_RECORDS_PER_S = 500

#: The beginnings of their copies' names.
_MIRRORS = ("without", "with")

_IDLE = "idle"
_COMMITTING = "all committing every 5 s"
_READING = f"all reading {_RECORDS_PER_S} records/s, and committing every 5 s"
_TRANSACTIONAL_RECORDS_PER_S = 100
_TRANSACTIONS = (
    f"all reading {_TRANSACTIONAL_RECORDS_PER_S} records/s of transactions, and committing every 5 s"
)

#: The default of a consumer's ``auto.commit.interval.ms``.
_COMMIT_INTERVAL_S = 5.0

#: Longer than the time between two translations.
_QUIET_S = 25.0


@dataclass(frozen=True)
class _Window:
    """The usage of both mirrors in the same time."""

    seconds: float
    without_s: float
    with_s: float

    @property
    def percent(self) -> float:
        """The difference, as a part of one core."""
        return 100 * (self.with_s - self.without_s) / self.seconds


@dataclass(frozen=True)
class _Bench:
    source: KafkaCluster
    destination: KafkaCluster
    without: RunningMirror
    with_groups: RunningMirror
    window_s: float

    def measure(self) -> _Window:
        """Measure both mirrors for a while."""
        began, before = time.monotonic(), (self.without.cpu_s(), self.with_groups.cpu_s())
        time.sleep(self.window_s)  # the time itself is the purpose
        after = (self.without.cpu_s(), self.with_groups.cpu_s())
        without_s, with_s = (later - earlier for earlier, later in zip(before, after, strict=True))
        return _Window(time.monotonic() - began, without_s, with_s)


def measure_cost(
    clusters: str,
    source: KafkaCluster,
    destination: KafkaCluster,
    sizes: Sequence[Size],
    window_s: float,
    repeat: int,
) -> list[Line]:
    """Return the lines of one pair of clusters.

    Args:
        sizes: The sizes to measure: they differ in their groups alone.
        window_s: How long each measurement takes.
        repeat: Number of measurements.
    """
    topics, regex = sizes[0].topics, sizes[0].topics_regex
    say(f"{clusters}: topics for the cost of groups, {sizes[0].partitions:,} partitions")
    _load(source.bootstrap, topics)
    for name, (topic, partitions) in itertools.product(_MIRRORS, topics.items()):
        create_topic(destination.bootstrap, f"{name}.{topic}", partitions)
    await_coordinators(destination.bootstrap, f"{_MIRRORS[0]}.{next(iter(topics))}")
    with tempfile.TemporaryDirectory(prefix="bench-cost-") as path:

        def mirror(name: str, *options: str) -> AbstractContextManager[RunningMirror]:
            renamed = ("--topics", regex, "--rename", f"(.*)={name}.\\1", "--group", f"bench.{name}")
            return mirroring(source.bootstrap, destination.bootstrap, Path(path), name, *renamed, *options)

        with mirror(_MIRRORS[0]) as without, mirror(_MIRRORS[1], "--groups", "app-.*") as with_groups:
            bench = _Bench(source, destination, without, with_groups, window_s)
            _await_copies(bench, topics)
            lines = [line for size in sizes for line in _of_size(bench, clusters, size, repeat)]
            without.stop()
            with_groups.stop()
    return lines


def _load(bootstrap: str, topics: Mapping[str, int]) -> None:
    """Fill each partition with a batch of small records."""
    for topic, partitions in topics.items():
        create_topic(bootstrap, topic, partitions)
        now_ms = int(time.time() * 1000)
        records = (
            (number, now_ms, f"{topic} {number} {record}")
            for number in range(partitions)
            for record in range(_RECORDS)
        )
        load_values(bootstrap, topic, "lz4", _RECORDS, records, partitions)


def _await_copies(bench: _Bench, topics: Mapping[str, int]) -> None:
    copies = {
        count_records(bench.destination.bootstrap, f"{name}.{topic}"): _RECORDS * partitions
        for name in _MIRRORS
        for topic, partitions in topics.items()
    }

    def are_copied() -> bool:
        bench.without.check()
        bench.with_groups.check()
        return all(count() == records for count, records in copies.items())

    wait_until(are_copied, "the copies of both mirrors", _COPIES_S, interval_s=2)


def _of_size(bench: _Bench, clusters: str, size: Size, repeat: int) -> Iterator[Line]:
    positions = _positions(size)
    groups = sorted({each.group for each in positions})
    commit(bench.source.bootstrap, positions)

    def have_followed() -> bool:
        bench.with_groups.check()
        return len(committed(bench.destination.bootstrap, groups)) == len(positions)

    wait_until(have_followed, "the groups at the destination", _COPIES_S, interval_s=5)
    time.sleep(_QUIET_S)
    about = f"{len(groups):,} groups with {len(positions):,} offsets of {size.partitions:,} partitions"
    say(f"{clusters}: {about}")
    windows: dict[str, list[_Window]] = {each: [] for each in (_IDLE, _COMMITTING, _READING, _TRANSACTIONS)}

    def measure(state: str) -> None:
        window = bench.measure()
        windows[state].append(window)
        say(f"{state}: {window.percent:.2f} % of a core")

    for _ in range(repeat):
        measure(_IDLE)
        source = bench.source.bootstrap
        with _Committing(source, size, positions, to_the_end=False):
            measure(_COMMITTING)
        for state, rate in ((_READING, _RECORDS_PER_S), (_TRANSACTIONS, _TRANSACTIONAL_RECORDS_PER_S)):
            with (
                producing(source, size.topics, rate, in_transactions=state == _TRANSACTIONS),
                _Committing(source, size, positions, to_the_end=True),
            ):
                measure(state)
    for state, measured in windows.items():
        cost, whole = (
            Figure([each.percent for each in measured]),
            Figure([100 * each.with_s / each.seconds for each in measured]),
        )
        yield Line(
            f"{about}, {state}: % of a core (of the whole mirror)",
            clusters,
            f"{cost:.2f} ({whole.median:.1f})",
            aim=f"at most {_AT_MOST_PERCENT}",
            is_met=cost.median <= _AT_MOST_PERCENT,
        )
    for cluster in (bench.source, bench.destination):
        delete_groups(cluster.bootstrap, groups)


def _positions(size: Size) -> list[Position]:
    """Return offsets near the start of each partition, so that the groups can move."""
    rng = random.Random(3)
    return [
        Position(f"app-{group}", (topic, number), rng.randrange(_FIRST_BELOW))
        for group in range(size.groups)
        for topic in size.topics_of(group)
        for number in range(size.topics[topic])
    ]


class _Committing:
    """Lets each group commit every few seconds, as consumers do that read a topic.

    They read one more record of each partition each time, or all records up to the end.
    """

    def __init__(
        self, bootstrap: str, size: Size, positions: Sequence[Position], *, to_the_end: bool
    ) -> None:
        self._bootstrap = bootstrap
        self._size = size
        self._offsets = {(each.group, each.place): each.offset for each in positions}
        self._to_the_end = to_the_end
        self._failures: list[BaseException] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="commits")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()
        if self._failures:
            raise self._failures[0]

    def _run(self) -> None:
        due = time.monotonic()
        for turn in itertools.count():
            if self._over.wait(max(0.0, due - time.monotonic())):
                return
            try:
                self._commit(turn)
            except BaseException as error:  # raised on exit
                self._failures.append(error)
                return
            due += _COMMIT_INTERVAL_S

    def _commit(self, turn: int) -> None:
        ends = bounds_of(self._bootstrap, self._size.topics) if self._to_the_end else {}
        moved = []
        for group in range(self._size.groups):
            names = self._size.topics_of(group)
            topic = names[turn % len(names)]
            for number in range(self._size.topics[topic]):
                key = f"app-{group}", (topic, number)
                self._offsets[key] = ends[topic, number][1] if ends else self._offsets[key] + 1
                moved.append(Position(*key, self._offsets[key]))
        commit(self._bootstrap, moved)

"""The cut-over of many partitions and groups: seconds from the last record to the certificate.

A mirror runs, producers send records and transactions, and some groups have consumers that read them. Then
``shoal cutover`` begins. When its gate *quiet* waits, the producers stop, and then the consumers. The time
counts from the last acknowledgement of the source to the end of the command. Afterwards confluent-kafka reads
both clusters, and each group's offset is compared.
"""

import random
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from bench.following.groups import commit, committed
from bench.following.lines import Line
from bench.following.load import Size, producing
from bench.following.mirrors import environment_in, mirroring
from bench.following.tally import Position, Tally, tally
from bench.following.translation import bounds_of, pairs_between
from bench.measure import MoverFailed
from bench.report import say
from rig import (
    KafkaCluster,
    load_aborted_transaction,
    load_committed_transaction,
    load_plain,
    wait_until,
)
from rig.load import random_records
from rig.shoal import Shoal

__all__ = ["measure_cutover"]

_AT_MOST_S = 60
_GATES_S = 900
_RECORDS_PER_S = 500

#: Some of the groups are read by consumers until the cut.
_CONSUMERS = 5


@dataclass(frozen=True)
class _Cut:
    """A cut-over.

    Attributes:
        seconds: From the last acknowledged record to the end of the command.
        outcome: The last object that ``shoal cutover --json`` printed.
    """

    seconds: float
    outcome: Mapping[str, Any]

    @property
    def gates(self) -> str:
        """The seconds of each gate, as text."""
        return ", ".join(f"{each['gate']} {each['elapsed_s']:.1f}" for each in self.outcome["gates"])


def measure_cutover(clusters: str, source: KafkaCluster, destination: KafkaCluster, size: Size) -> list[Line]:
    """Return the lines of one pair of clusters.

    Raises:
        MoverFailed: The mirror failed, or a gate did not open.
        CopyDiffers: The copies have other records than the source.
    """
    say(f"{clusters}: topics to move, {size.partitions:,} partitions")
    _load(source.bootstrap, size)
    positions = _idle_positions(source.bootstrap, size)
    commit(source.bootstrap, positions)
    with tempfile.TemporaryDirectory(prefix="bench-cutover-") as path:
        directory = Path(path)
        options = ("--topics", size.topics_regex, "--groups", "app-.*", "--sync=configs")
        with mirroring(source.bootstrap, destination.bootstrap, directory, "mirror", *options) as mirror:
            cut = _cut_over(source, destination, size, directory)
            mirror.check()
            mirror.stop()
    say(f"cut over in {cut.seconds:.1f} s: {cut.gates}")
    found, offsets = _compare(source, destination, size)
    return _lines(clusters, size, cut, found, offsets)


def _load(bootstrap: str, size: Size) -> None:
    """Fill the topics, with transactions at their ends, so that offsets differ in each partition."""
    megabytes = max(1, size.megabytes // len(size.topics))
    rng = random.Random(0)
    for topic, partitions in size.topics.items():
        load_plain(bootstrap, topic, "lz4", 16, megabytes * 1_000_000, partitions)
        some = {number: random_records(rng, 3, 100) for number in range(partitions)}
        load_committed_transaction(bootstrap, topic, some, transactional_id=topic)
        load_aborted_transaction(bootstrap, topic, some, transactional_id=topic)


def _idle_positions(bootstrap: str, size: Size) -> list[Position]:
    """Draw the offsets of the groups that have no consumers."""
    rng = random.Random(1)
    bounds = bounds_of(bootstrap, size.topics)
    return [
        Position(_name(group), (topic, number), rng.randint(*bounds[topic, number]))
        for group in range(min(_CONSUMERS, size.groups), size.groups)
        for topic in size.topics_of(group)
        for number in range(size.topics[topic])
    ]


def _name(group: int) -> str:
    return f"app-{group}"


def _cut_over(source: KafkaCluster, destination: KafkaCluster, size: Size, directory: Path) -> _Cut:
    topics = {_name(group): size.topics_of(group) for group in range(min(_CONSUMERS, size.groups))}
    with (
        producing(source.bootstrap, size.topics, _RECORDS_PER_S) as producers,
        _consuming(source.bootstrap, topics) as consumers,
    ):
        wait_until(consumers.have_read, "the consumers' first commits", 300)
        arguments = (
            *("cutover", "--from", source.bootstrap, "--to", destination.bootstrap),
            *("--topics", size.topics_regex, "--groups", "app-.*", "--timeout", f"{_GATES_S}", "--json"),
            *("--certificate", str(directory / "certificate.json")),
        )
        with Shoal(*arguments, environment=environment_in(directory)) as cutover:
            cutover.wait_for(lambda event: event.get("gate") == "quiet", 2 * _GATES_S)
            producers.stop()
            stopped_at = time.monotonic()
            consumers.stop()
            say("producers and consumers have stopped")
            outcome = cutover.wait(_GATES_S)
            seconds = time.monotonic() - stopped_at
    if cutover.exit_code != 0 or not outcome:
        raise MoverFailed(
            f"shoal cutover ended with {cutover.exit_code}: {outcome.get('problem', cutover.stderr[-5000:])}"
        )
    return _Cut(seconds, outcome)


class _Consuming:
    """Consumers that read and commit, each of its own group, in a thread."""

    def __init__(self, bootstrap: str, topics: Mapping[str, Sequence[str]]) -> None:
        self._over = threading.Event()
        self._read: set[str] = set()
        self._names = set(topics)
        self._threads = [
            threading.Thread(target=self._run, args=(bootstrap, group, names), name=group)
            for group, names in topics.items()
        ]
        for thread in self._threads:
            thread.start()

    def have_read(self) -> bool:
        """Whether each group has read something."""
        return self._read == self._names

    def stop(self) -> None:
        """Leave the groups, after a last commit."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, bootstrap: str, group: str, topics: Sequence[str]) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1000,
                "log_level": 0,
            }
        )
        consumer.subscribe(list(topics))
        try:
            while not self._over.is_set():
                if consumer.consume(500, timeout=0.5):
                    self._read.add(group)
        finally:
            consumer.close()


@contextmanager
def _consuming(bootstrap: str, topics: Mapping[str, Sequence[str]]) -> Iterator[_Consuming]:
    consuming = _Consuming(bootstrap, topics)
    try:
        yield consuming
    finally:
        consuming.stop()


def _compare(source: KafkaCluster, destination: KafkaCluster, size: Size) -> tuple[Tally, int]:
    """Compare all groups' offsets at both clusters; return their number, too."""
    say("reading both sides")
    pairs = pairs_between(source.bootstrap, destination.bootstrap, size.topics)
    groups = [_name(group) for group in range(size.groups)]
    here = committed(source.bootstrap, groups)
    positions = [Position(group, place, offset) for (group, place), offset in here.items()]
    return tally(positions, committed(destination.bootstrap, groups), pairs), len(positions)


def _lines(clusters: str, size: Size, cut: _Cut, found: Tally, offsets: int) -> list[Line]:
    moved = f"cut-over of {size.partitions:,} partitions and {size.groups:,} groups with {offsets:,} offsets"
    return [
        Line(
            f"{moved}: seconds after the last record ({cut.gates})",
            clusters,
            f"{cut.seconds:.1f}",
            aim=f"at most {_AT_MOST_S}",
            is_met=cut.seconds <= _AT_MOST_S,
        ),
        Line(
            "its groups: records read twice, missed, and offsets that are not there",
            clusters,
            f"{found.read_twice:,}, {found.missed:,}, {found.without:,}",
            aim="0, 0, 0",
            is_met=found.is_exact,
        ),
    ]

"""Translated offsets of random positions over all kinds of batches, and MirrorMaker 2's of the same ones.

A mirror of shoal and one of MirrorMaker 2 copy the same topics at the same time, while these grow. Then
groups commit offsets at the source, half of them anywhere in the log and half near its end. Both mirrors
bring them to the destination. confluent-kafka reads all records of both clusters, and so shows for each
position how many of them a consumer reads twice or misses.
"""

import random
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

import shoal
from bench.following.batch_kinds import BatchKinds, Source
from bench.following.groups import commit, committed, draw
from bench.following.lines import Line
from bench.following.mirrors import MM2_ALIAS, environment_in, mirror_maker_2, mirroring
from bench.following.tally import Pair, Place, Position, Tally, pair_of, tally
from bench.measure import MoverFailed, count_records
from bench.report import say
from rig import KafkaCluster, create_topic, read_topic, wait_until
from rig.shoal import hasty, run_shoal
from shoal.mirroring.sync.report import GroupsReport

__all__ = ["POSITIONS", "Found", "bounds_of", "lines_of", "measure_translation", "pairs_between"]

POSITIONS = 10_000

#: Half of the positions lie so many offsets behind the end at most: the default of MirrorMaker 2's
#: ``offset.lag.max``, up to which it is made to be exact.
_NEAR = 100

_SHOAL, _PEER = "shoal", "MirrorMaker 2"

#: The names of the groups begin with these.
_KINDS = {"anywhere": "anywhere in the log", "near": f"at most {_NEAR} before the end"}

_INTERVAL_S = 10
"""The time between two translations of both mirrors, by shoal's default."""

#: MirrorMaker 2 finds groups, starts its task again, and writes. Every minute it may know offsets better
#: (Connect's ``offset.flush.interval.ms``); then nothing changes any more.
_SETTLES_S = 120.0
_SETTLED_S = 80.0
_COPIES_S = 1200.0


@dataclass(frozen=True)
class Found:
    """The offsets of all positions at the destination, compared.

    Attributes:
        ours: Those of shoal, by the beginning of the groups' names.
        theirs: Those of MirrorMaker 2; empty if it did not run.
        called_exact: The positions that shoal itself calls exact.
    """

    ours: Mapping[str, Tally]
    theirs: Mapping[str, Tally]
    called_exact: Mapping[str, int]


def measure_translation(
    clusters: str,
    source: Source,
    destination: KafkaCluster,
    make: Callable[[], BatchKinds],
    count: int,
    *,
    with_peer: bool,
    on_group: Callable[[str, str, str, Tally], object] = lambda *_: None,
) -> list[Line]:
    """Return the lines of one pair of clusters.

    Args:
        clusters: The name of the pair.
        make: Creates the topics at the source.
        count: Number of positions.
        with_peer: Whether to run MirrorMaker 2, too.
        on_group: Receives the name of the pair, that of a mirror, a group, and what was found for it.

    Raises:
        CopyDiffers: A mirror has not copied the records of the source.
    """
    say(f"{clusters}: topics of every kind of batch")
    kinds = make()
    for topic in kinds.complete:
        for copy in (topic, f"{MM2_ALIAS}.{topic}"):
            create_topic(destination.bootstrap, copy, kinds.partitions[topic])
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-following-")))
        if with_peer:
            topics, groups = "kinds[.].*", "(anywhere|near)-.*"
            peer = mirror_maker_2(source.bootstrap, destination.bootstrap, topics, groups, _INTERVAL_S)
            stack.enter_context(peer)
        _mirror(source, destination, kinds, directory)
        say(f"{clusters}: reading both sides")
        pairs = pairs_between(source.bootstrap, destination.bootstrap, kinds.partitions)
        positions = _positions(source.bootstrap, kinds.partitions, count)
        commit(source.bootstrap, positions)
        report = _translate(source, destination)
        found = {_SHOAL: _compare(destination.bootstrap, positions, pairs)}
        if with_peer:
            found[_PEER] = _of_mirror_maker_2(source, destination, kinds, positions, pairs)
    for mirror, compared in found.items():
        for group in sorted({each.group for each in positions}):
            on_group(clusters, mirror, group, compared.of([group]))
    sums = {
        mirror: {kind: compared.of(_of_kind(positions, kind)) for kind in _KINDS}
        for mirror, compared in found.items()
    }
    return lines_of(clusters, Found(sums[_SHOAL], sums.get(_PEER, {}), _called_exact(report)))


def _of_kind(positions: Sequence[Position], kind: str) -> set[str]:
    return {each.group for each in positions if each.group.startswith(kind)}


def _mirror(source: Source, destination: KafkaCluster, kinds: BatchKinds, directory: Path) -> None:
    """Copy the topics while they grow, and the rest with another start of the mirror."""
    say("mirroring topics that grow")
    selected = ("--topics", "kinds.*")
    program = hasty(commit_interval_s=0.5)  # more milestones
    with mirroring(
        source.bootstrap, destination.bootstrap, directory, "mirror", *selected, program=program
    ) as mirror:
        kinds.grow()
        mirror.check()
        mirror.stop()
    between = ("--from", source.bootstrap, "--to", destination.bootstrap)
    command = ("mirror", *between, *selected, "--once", "--json")
    ended = run_shoal(*command, environment=environment_in(directory), timeout_s=1800)
    if ended.returncode != 0:
        raise MoverFailed(f"shoal mirror ended with {ended.returncode}:\n{ended.stderr[-5000:]}")


def _translate(source: Source, destination: KafkaCluster) -> GroupsReport:
    began = time.monotonic()
    report = shoal.translate_offsets(
        source.bootstrap, destination.bootstrap, "kinds.*", "(anywhere|near)-.*", apply=True, on_warning=say
    )
    say(f"translated and committed in {time.monotonic() - began:.1f} s: {dict(report.counts)}")
    return report


def _called_exact(report: GroupsReport) -> dict[str, int]:
    exact = [
        each.group
        for group in report.groups
        for each in group.offsets
        if each.exactness is not None and each.exactness.value == "exact"
    ]
    return {kind: sum(group.startswith(kind) for group in exact) for kind in _KINDS}


def _positions(bootstrap: str, topics: Mapping[str, int], count: int) -> list[Position]:
    rng = random.Random(count)
    bounds = bounds_of(bootstrap, topics)
    half = count // 2
    return [
        *draw(rng, bounds, count - half, "anywhere"),
        *draw(rng, bounds, half, "near", _NEAR),
    ]


def bounds_of(bootstrap: str, topics: Mapping[str, int]) -> dict[Place, tuple[int, int]]:
    """Return the first offset and the end of each partition."""
    places = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    starts, ends = (
        admin.list_offsets(dict.fromkeys(places, spec), request_timeout=60)
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    )
    return {
        (each.topic, each.partition): (starts[each].result().offset, ends[each].result().offset)
        for each in places
    }


def pairs_between(
    source: str, destination: str, topics: Collection[str], prefix: str = "", *, with_times: bool = True
) -> dict[Place, Pair]:
    """Read topics and their copies with a consumer, and compare them.

    Args:
        prefix: The beginning of the copies' names.
        with_times: Whether timestamps are compared.

    Raises:
        CopyDiffers: A copy has other records.
    """
    pairs = {}
    for topic in topics:
        copies = read_topic(destination, prefix + topic)
        for number, records in read_topic(source, topic).items():
            pairs[topic, number] = pair_of(records, copies[number], with_times=with_times)
    return pairs


@dataclass(frozen=True)
class _Compared:
    """The positions of all groups, their offsets at the destination, and the records of both sides."""

    positions: Sequence[Position]
    there: Mapping[tuple[str, Place], int]
    pairs: Mapping[Place, Pair]

    def of(self, groups: Collection[str]) -> Tally:
        """Return the sums over some groups."""
        some = [each for each in self.positions if each.group in groups]
        return tally(some, self.there, self.pairs)


def _compare(
    destination: str, positions: Sequence[Position], pairs: Mapping[Place, Pair], prefix: str = ""
) -> _Compared:
    there = committed(destination, {each.group for each in positions})
    return _Compared(positions, _at_copies(there, prefix), pairs)


def _at_copies(offsets: Mapping[tuple[str, Place], int], prefix: str) -> dict[tuple[str, Place], int]:
    """Return offsets by the places at the source; those of other copies are left out."""
    return {
        (group, (topic.removeprefix(prefix), number)): offset
        for (group, (topic, number)), offset in offsets.items()
        if topic.startswith(f"{prefix}kinds.")
    }


def _of_mirror_maker_2(
    source: Source,
    destination: KafkaCluster,
    kinds: BatchKinds,
    positions: Sequence[Position],
    pairs: Mapping[Place, Pair],
) -> _Compared:
    prefix = f"{MM2_ALIAS}."
    say("waiting for MirrorMaker 2's copies")
    copies = {
        count_records(destination.bootstrap, prefix + topic): sum(
            len(pairs[topic, number].source) for number in range(partitions)
        )
        for topic, partitions in kinds.partitions.items()
    }

    def are_copied() -> bool:
        return all(count() >= records for count, records in copies.items())

    wait_until(are_copied, "MirrorMaker 2's copies", _COPIES_S, interval_s=2)
    compared = pairs_between(
        source.bootstrap, destination.bootstrap, kinds.partitions, prefix, with_times=False
    )
    groups = {each.group for each in positions}
    began = changed = time.monotonic()
    before = committed(destination.bootstrap, groups)

    def is_settled() -> bool:
        nonlocal before, changed
        found = committed(destination.bootstrap, groups)
        if found != before:
            before, changed = found, time.monotonic()
            say(f"MirrorMaker 2 has committed {len(found):,} offsets")
        now = time.monotonic()
        return now - began >= _SETTLES_S and now - changed >= _SETTLED_S

    wait_until(is_settled, "MirrorMaker 2's checkpoints", _COPIES_S, interval_s=5)
    return _compare(destination.bootstrap, positions, compared, prefix)


def lines_of(clusters: str, found: Found) -> list[Line]:
    """Return four lines for each kind of groups."""
    lines = []
    for kind, text in _KINDS.items():
        ours, theirs = found.ours[kind], found.theirs.get(kind)
        positions = f"{ours.positions:,} positions of {ours.groups:,} groups {text}"
        exact = f"{ours.exact:,} ({found.called_exact[kind]:,} called exact)"
        is_honest = ours.is_exact and found.called_exact[kind] == ours.exact
        both = [ours, *([theirs] if theirs is not None else [])]
        cells = [
            (f"{positions}: exact", [exact, *(f"{each.exact:,}" for each in both[1:])], is_honest),
            (
                f"{text}: records read twice (most at one position)",
                [f"{each.read_twice:,} ({each.most_twice:,})" for each in both],
                ours.read_twice == 0,
            ),
            (f"{text}: records missed", [f"{each.missed:,}" for each in both], ours.missed == 0),
            (
                f"{text}: positions without an offset (groups without any)",
                [f"{each.without:,} ({each.groups_without:,})" for each in both],
                ours.without == 0,
            ),
        ]
        aims = [f"{ours.positions:,}", "0", "0", "0"]
        for (figure, values, is_met), aim in zip(cells, aims, strict=True):
            peer = values[1] if len(values) > 1 else ""
            lines.append(Line(figure, clusters, values[0], peer, aim, is_met))
    return lines

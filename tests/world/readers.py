"""
Consumers that stop at one embedded cluster and go on at the other, and the mirror's rounds over their groups.

They only read the logs and commit, so that a trial takes a second, and things happen at moments that no
process could hit.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from unittest.mock import patch

from rig.judge import Stay, Verdict, judge
from shoal.client.cluster import Cluster
from shoal.client.group_offsets import CommittedValue
from shoal.errors import ShoalError
from shoal.mirroring.model.follow_options import GroupSelection
from shoal.mirroring.model.offset_map import Exactness
from shoal.mirroring.sync import groups as rounds
from shoal.mirroring.sync.commit import commit_translations
from shoal.mirroring.sync.groups import GroupSync
from shoal.mirroring.sync.report import Action, Direction, GroupOffset, Mark
from shoal_broker import Broker
from shoal_broker.api_error import ApiError
from shoal_broker.clock import now_ms
from shoal_broker.coordination.group import CommittedOffset
from tests.world.clusters import TOPIC
from tests.world.contents import places_in
from tests.world.control import Killed

from .history import Written

if TYPE_CHECKING:
    from .tasks import TaskWorld

__all__ = ["Reader", "Readers", "are_exact", "forget_group", "is_done"]

#: A group continues at an offset of its own, which nothing has translated.
_OWN = frozenset({Action.RETURNED, Action.FURTHER})
#: A consumer can go on at an offset with one of these.
_DONE = frozenset({Action.WRITTEN, Action.UNCHANGED, *_OWN})

#: The metadata of consumers: none, or some that begin like the position of a mirror.
_METADATA = ("", 'shoal1{"consumer": 1}')

#: Attempts at the last move, after all faults.
_LAST_MOVES = 3


@dataclass(slots=True)
class _Reading:
    """The stays of a group in a partition, up to a reset by an operator."""

    #: The place of the first record that it has to read.
    first: int = 0
    stays: list[Stay] = field(default_factory=list)


class Reader:
    """
    A group with its consumer, which is at one cluster.

    Attributes:
        is_at_source: Where the consumer is.
        readings: The readings by partition; the last one continues.
        may_leave: Whether the consumer still changes the cluster.

    """

    def __init__(self, name: str, world: TaskWorld, metadata: str) -> None:
        """Create a group; its consumer commits metadata of its own."""
        self.name = name
        self.is_at_source = True
        self.readings = [[_Reading()] for _ in world.partitions]
        self.may_leave = True
        self._metadata = metadata
        self._world = world
        self._is_exact: dict[int, bool] = {}
        self._undone: Sequence[GroupOffset] = ()

    @property
    def here(self) -> Broker:
        """A broker of the cluster where the consumer is."""
        return self._node(at_source=self.is_at_source)

    @property
    def other(self) -> Broker:
        """A broker of the other cluster."""
        return self._node(at_source=not self.is_at_source)

    def _node(self, *, at_source: bool) -> Broker:
        return (self._world.source if at_source else self._world.destination).nodes[0]

    def offsets(self, broker: Broker) -> dict[int, CommittedOffset]:
        """Return the group's offsets at a broker, by partition."""
        found = broker.groups.read(self.name, lambda group: dict(group.offsets))
        return {number: committed for (_, number), committed in found.items()}

    def is_own(self, broker: Broker, number: int) -> bool:
        """Whether the group has an offset at a broker that no translation moves backwards."""
        there = self.offsets(broker).get(number)
        if there is None:
            return False
        value = CommittedValue(there.offset, there.metadata, 0)
        return not any(Mark.read(value, each.cluster_id) for each in (self.here, self.other))

    def reset(self, number: int, offset: int) -> None:
        """Let an operator set the group's offset of a partition where it is."""
        self._commit(number, offset)
        self._begin(number, offset)

    def begin_again(self) -> None:
        """Begin at the first record of a source topic that was created again, without an offset."""
        for number in range(len(self.readings)):
            self._begin(number, 0)

    def expire(self, broker: Broker, number: int) -> None:
        """Let the offset of one partition expire at a broker."""
        there = self.offsets(broker).get(number)
        if there is not None:
            broker.groups.commit(self.name, {(TOPIC, number): there._replace(committed_at_ms=0)})
            broker.forget_old_offsets()

    def read(self, dice: random.Random, most: int | None, *, commits_all: bool) -> None:
        """
        Read some records of each partition, or all, and commit.

        Args:
            most: Number of records of each partition; None for all.
            commits_all: Commit also where nothing was read, as Java's consumer does.

        """
        committed = self.offsets(self.here)
        for number in range(len(self.readings)):
            begin = committed[number].offset if number in committed else 0
            records = self._readable(number, begin)
            read = records[:most]
            log_start = self.here.log(TOPIC, number).log_start_offset
            if begin < log_start and (read or commits_all):
                # Retention was faster than the consumer.
                begin = log_start
                self._begin(number, begin)
            exact = self._is_exact.get(number, True)
            keys = [each.content.value for _, each in read]
            where = "source" if self.is_at_source else "destination"
            self.readings[number][-1].stays.append(Stay(where, exact, keys))
            behind = read[-1][0] + 1 if read else begin
            if len(read) == len(records) and dice.random() < 0.5:
                # The consumer has passed markers and aborted records, too.
                behind = max(behind, self.here.log(TOPIC, number).last_stable_offset)
            if read or commits_all:
                self._commit(number, behind)

    def _commit(self, number: int, offset: int) -> None:
        """Commit as a consumer or an operator does: without shoal's mark."""
        committed = CommittedOffset(offset, -1, self._metadata, now_ms())
        self.here.groups.commit(self.name, {(TOPIC, number): committed})

    def _begin(self, number: int, offset: int) -> None:
        """Begin a new reading at an offset of the cluster where the group is."""
        left, expected = self._readable(number, offset), self._expected(number)
        if left:
            first = expected.index(left[0][1].content.value)
        elif self.is_at_source:
            first = len(expected)
        else:
            copied = self._readable(number, 0)
            first = expected.index(copied[-1][1].content.value) + 1 if copied else 0
        self.readings[number].append(_Reading(first))

    def _expected(self, number: int) -> list[bytes | None]:
        records = self._world.partitions[number].records
        return [each.content.value for each in records if each.is_shown]

    def _readable(self, number: int, begin: int) -> Sequence[tuple[int, Written]]:
        """Return offsets and records that a consumer reads from an offset on."""
        log, partition = self.here.log(TOPIC, number), self._world.partitions[number]
        if self.is_at_source:
            found = [
                (each.offset, each) for each in partition.of_this_topic if each.is_shown and each.is_there
            ]
        else:
            written = {each.content.value: each for each in partition.records}
            found = [
                (offset, written[content.value])
                for offset, content in places_in(log)
                if content.value in written
            ]
        return [each for each in found if begin <= each[0] < log.last_stable_offset]

    # Moves

    def move(self, *, apply: bool) -> bool:
        """Change the cluster if the other one has the group's offsets; return whether it has."""
        if not self.may_leave or not self.offsets(self.here):
            return False
        direction = Direction.FORWARD if self.is_at_source else Direction.REVERSE
        with ExitStack() as connections, suppress(ShoalError):
            sync = _rounds_of(self._world, re.escape(self.name), direction, connections)
            report = sync.round({TOPIC: TOPIC}, apply=apply or direction is Direction.REVERSE)
            offsets = [each for found in report.groups for each in found.offsets]
            self._undone = [each for each in offsets if not is_done(each)]
            if not offsets or self._undone:
                return False
            self._is_exact = are_exact(offsets)
            self.is_at_source = not self.is_at_source
            committed = self.offsets(self.here)
            for number in range(len(self.readings)):
                if number not in self._is_exact:
                    # The group begins where it was before, or at the first record.
                    self._begin(number, committed[number].offset if number in committed else 0)
            return True
        return False

    def finish(self, dice: random.Random) -> Iterator[str]:
        """Go to the destination if the group is not there, and read to the end; yield why it cannot."""
        if self.is_at_source and self.offsets(self.here):
            has_moved = any(self.move(apply=True) for _ in range(_LAST_MOVES))
            # A partition that was emptied before the mirror came has no position. It has no records.
            if not has_moved and {each.action for each in self._undone} != {Action.NO_POSITION}:
                yield f"{self.name} cannot move: {self._undone}"
                return
        self.read(dice, None, commits_all=True)

    def verdict(self, *, to_end: bool) -> Verdict:
        """Judge all stays, but for those in a partition that cannot continue without its operator."""
        found = Verdict()
        for number, readings in enumerate(self.readings):
            if number in self._world.blocked:
                continue
            expected = self._expected(number)
            lost = set(expected).difference(each.value for each in self._world.copied(number))
            for each in readings:
                is_last = to_end and each is readings[-1]
                verdict = judge(expected, each.stays, each.first, to_end=is_last, lost=lost)
                found += verdict.of(f"{self.name}, partition {number}")
        return found


class Readers:
    """
    All groups of a world, and the mirror's rounds over them.

    Attributes:
        groups: The groups, each with one consumer.

    """

    def __init__(self, world: TaskWorld, count: int) -> None:
        self.groups = [Reader(f"reader-{number}", world, _METADATA[number % 2]) for number in range(count)]
        self._world = world
        self._connections = ExitStack()
        self._sync: GroupSync | None = None

    def follow(self, meanwhile: Callable[[], object] | None = None) -> None:
        """
        Run a round of the mirror; if it fails, the next one has to try again.

        Args:
            meanwhile: Called at each translation of the round, before it commits any.

        """

        def happen(_: GroupOffset) -> None:
            if meanwhile is not None:
                meanwhile()

        with suppress(ShoalError):
            if self._sync is None:
                self._sync = _rounds_of(self._world, "reader-.*", Direction.FORWARD, self._connections)
            self._sync.round({TOPIC: TOPIC}, apply=True, prove=happen if meanwhile else None)

    def die_at_commit(self, *, before: bool) -> None:
        """Kill the mirror just before the first commit of a round, or just behind it."""

        def dying(cluster: Cluster, group: str, rows: Sequence[GroupOffset]) -> list[GroupOffset]:
            if not before:
                commit_translations(cluster, group, rows)
            raise Killed

        with patch.object(rounds, "commit_translations", dying), suppress(Killed):
            self.follow()
        self.close()

    def close(self) -> None:
        """Close the mirror's connections; the next round has others, as of a new process."""
        self._connections.close()
        self._sync = None

    def check(self, *, to_end: bool) -> None:
        """Add to the world's problems what is wrong with any group's reading."""
        for each in self.groups:
            if to_end:
                self._world.problems += each.finish(self._world.dice)
            self._world.problems += each.verdict(to_end=to_end).details


def are_exact(offsets: Iterable[GroupOffset]) -> dict[int, bool]:
    """Return whether a consumer reads nothing again from its translated offset, by partition."""
    return {
        each.partition.partition: each.action in _OWN or each.exactness is Exactness.EXACT for each in offsets
    }


def _rounds_of(world: TaskWorld, groups: str, direction: Direction, connections: ExitStack) -> GroupSync:
    """Return the rounds of one process. Faults can tell its connections from those of tasks."""
    settings = world.brokers.settings
    source = connections.enter_context(Cluster(replace(settings.source, client_id="rounds")))
    return GroupSync(
        source,
        connections.enter_context(Cluster(settings.destination)),
        settings,
        GroupSelection(groups),
        direction=direction,
    )


def forget_group(broker: Broker, name: str) -> None:
    """Delete a group, if it is there."""
    with suppress(ApiError):
        broker.groups.delete(name)


def is_done(offset: GroupOffset) -> bool:
    """Whether a consumer can go on there: a translation that is ahead of the mirror becomes exact later."""
    return offset.action in _DONE and offset.exactness is not Exactness.AHEAD

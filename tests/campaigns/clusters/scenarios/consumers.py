"""Consumers that stop at one broker and go on at the other, while their groups, too, get faults.

The consumers of the trials between real clusters are Kafka's (`..consumers`). These only read the logs and
commit, so that a trial takes a second, and things happen at moments that no process could hit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from unittest.mock import patch

from rig.judge import Stay, Verdict, judge
from shoal.client.cluster import Cluster
from shoal.error_codes import ErrorCode
from shoal.errors import ShoalError
from shoal.mirroring.model.group_selection import GroupSelection
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.offset_map import Exactness
from shoal.mirroring.sync import groups as rounds
from shoal.mirroring.sync.commit import Outcome, ToCommit, commit_translations
from shoal.mirroring.sync.groups import GroupSync
from shoal.mirroring.sync.mark import Mark
from shoal.mirroring.sync.offset_rules import Action, Direction
from shoal.mirroring.sync.report import GroupOffset, GroupsReport
from shoal.mirroring.sync.taken import SourceTaken
from shoal.protocol.apis import ApiKey
from shoal.protocol.offset_fetch import CommittedValue
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from shoal_broker.api_error import ApiError
from shoal_broker.clock import now_ms
from shoal_broker.coordination.group import CommittedOffset
from tests import batches
from tests.two_brokers import Content, Killed, batches_of, content_of, lists_no_groups, lose_tail

from ..arena import Side
from .promises import Findings, exact_or_stopped
from .scenario import FOREIGN, Scenario
from .stage import Stage, recreate_source

__all__ = ["ConsumersMove", "ConsumersOfDamagedCopies"]

_NAMES = "reader-.*"

#: Errors of a coordinator that moves, and of one whose group has just got a member.
_REFUSALS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
)

#: A consumer can go on at an offset with one of these.
_DONE = frozenset({Action.WRITTEN, Action.UNCHANGED, Action.RETURNED, Action.FURTHER})
_OWN = frozenset({Action.RETURNED, Action.FURTHER})

#: Attempts at the last move, after all faults.
_LAST_MOVES = 3


@dataclass
class _Reading:
    """The stays of a group in a partition, up to a reset by an operator.

    Attributes:
        first: The place of the first record that it has to read.
    """

    first: int = 0
    stays: list[Stay] = field(default_factory=list)


class _Group:
    """A group with its consumer, which is at one cluster.

    Attributes:
        readings: The readings by partition; the last one continues.
        may_leave: Whether the consumer still changes the cluster.
    """

    def __init__(self, name: str, partitions: int) -> None:
        self.name = name
        self.side = Side.SOURCE
        self.readings = [[_Reading()] for _ in range(partitions)]
        self.is_exact: dict[int, bool] = {}
        self.may_leave = True

    def offsets(self, broker: Broker) -> dict[int, CommittedOffset]:
        """Return the group's offsets at a broker, by partition."""
        found = broker.groups.read(self.name, lambda group: dict(group.offsets))
        return {number: committed for (_, number), committed in found.items()}

    def commit(self, broker: Broker, topic: str, number: int, offset: int) -> None:
        """Commit as a consumer or an operator does: without shoal's mark."""
        broker.groups.commit(self.name, {(topic, number): CommittedOffset(offset, -1, "", now_ms())})

    def begin(self, stage: Stage, number: int, offset: int) -> None:
        """Begin a new reading at an offset of the cluster where the group is."""
        left = _readable(stage, self.side, number, offset)
        ever = stage.partitions[number].ever
        if left:
            first = ever.index(left[0][1])
        elif self.side is Side.SOURCE:
            first = len(ever)
        else:
            copied = _readable(stage, self.side, number, 0)
            first = ever.index(copied[-1][1]) + 1 if copied else 0
        self.readings[number].append(_Reading(first))

    def read(self, stage: Stage, most: int | None, *, commits_all: bool) -> None:
        """Read some records of each partition, or all, and commit.

        Args:
            most: Number of records of each partition; None for all.
            commits_all: Commit also where nothing was read, as Java's consumer does.
        """
        broker = _broker(stage, self.side)
        committed = self.offsets(broker)
        for number in range(len(stage.partitions)):
            begin = committed[number].offset if number in committed else 0
            records = _readable(stage, self.side, number, begin)
            read = records[:most]
            log_start = broker.log(stage.topic, number).log_start_offset
            if begin < log_start and (read or commits_all):
                # Retention was faster than the consumer.
                begin = log_start
                self.begin(stage, number, begin)
            exact = self.is_exact.get(number, True)
            self.readings[number][-1].stays.append(
                Stay(self.side.value, exact, [content for _, content in read])
            )
            behind = begin
            if read:
                behind = read[-1][0] + 1
            if len(read) == len(records) and stage.dice.random() < 0.5:
                # The consumer has passed markers and aborted records, too.
                behind = max(behind, broker.log(stage.topic, number).last_stable_offset)
            if read or commits_all:
                self.commit(broker, stage.topic, number, behind)


class ConsumersMove(Scenario):
    name = "consumers that switch clusters while groups, offsets and coordinators change"

    def begin(self, stage: Stage) -> None:
        partitions = len(stage.partitions)
        self._groups = [_Group(f"reader-{number}", partitions) for number in range(stage.dice.randint(2, 4))]
        self._follower = _Follower(stage)
        self.moves = 0

    def round(self, stage: Stage) -> None:
        dice = stage.dice
        for group in self._groups:
            if dice.random() < 0.6:
                group.read(stage, dice.choice([0, 1, dice.randint(1, 12)]), commits_all=dice.random() < 0.4)
        stage.task()
        for _ in range(dice.randint(0, 2)):
            self._follow(stage)
        if dice.random() < 0.4:
            self._something_happens(stage, dice.choice(self._groups))
        for group in self._groups:
            if dice.random() < 0.5:
                self._move(stage, group, apply=dice.random() < 0.5)

    def broken_promises(self, stage: Stage, stopped: Collection[int]) -> list[str]:
        self._follower.close()
        problems = []
        for group in self._groups:
            problems += self._last_stay(stage, group)
            for number, readings in enumerate(group.readings):
                if number not in stopped:
                    for found in self._verdicts(stage, number, readings):
                        problems += found.of(f"{group.name}, partition {number}").details
        return problems

    def _verdicts(self, stage: Stage, number: int, readings: Sequence[_Reading]) -> Iterator[Verdict]:
        expected = stage.partitions[number].ever
        lost = set(expected).difference(self.copy(stage, number))
        for each in readings:
            yield judge(expected, each.stays, each.first, to_end=each is readings[-1], lost=lost)

    def _last_stay(self, stage: Stage, group: _Group) -> list[str]:
        has_begun = bool(group.offsets(_broker(stage, group.side)))
        if group.side is Side.SOURCE and has_begun:
            for _ in range(_LAST_MOVES):
                if self._move(stage, group, apply=True):
                    break
            else:
                # A partition that was emptied before the mirror came has no position. It has no records.
                undone = {each.action for each in self._seen if not _is_done(each)}
                if undone == {Action.NO_POSITION}:
                    group.read(stage, None, commits_all=True)
                    return []
                return [f"{group.name} cannot move: {self._seen}"]
        group.read(stage, None, commits_all=True)
        return []

    # The mirror's rounds

    def _follow(self, stage: Stage) -> None:
        """Run a round of the mirror, with a fault or without."""
        dice = stage.dice
        broker = dice.choice([stage.source, stage.destination])
        match dice.randrange(8):
            case 0:
                drop = dice.choice(["before", "within", "after"])
                stage.destination.faults.add(ApiKey.OFFSET_COMMIT, drop=drop)  # type: ignore[arg-type]
            case 1:
                stage.destination.faults.add(ApiKey.OFFSET_COMMIT, error=dice.choice(_REFUSALS))
            case 2:
                lists_no_groups(broker)
            case 3:
                broker.faults.add(ApiKey.LIST_GROUPS, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            case 4:
                broker.faults.add(ApiKey.OFFSET_FETCH, error=ErrorCode.NOT_COORDINATOR)
            case 5:
                self._follower.is_killed_at_commit(stage, before=dice.random() < 0.5)
                return
        self._follower.round()

    def _something_happens(self, stage: Stage, group: _Group) -> None:
        """Let an operator or time change a group; never where this would have to repeat or skip records."""
        dice, topic = stage.dice, stage.topic
        number = dice.randrange(len(stage.partitions))
        here, other = _broker(stage, group.side), _broker(stage, _other(group.side))
        match dice.randrange(5):
            case 0:
                with suppress(ApiError):  # it never was there
                    other.groups.delete(group.name)
            case 1 | 2:
                _expire(group, other, topic, number)
            case 3 if group.side is Side.SOURCE and not _is_own(group, other, number):
                offset = dice.randint(0, here.log(topic, number).last_stable_offset)
                group.commit(here, topic, number, offset)
                group.begin(stage, number, offset)
            case 4 if group.side is Side.DESTINATION:
                # A mirror that follows the group undoes a reset backwards, as is documented.
                present = group.offsets(here).get(number)
                first = 0 if present is None else present.offset
                offset = dice.randint(first, here.log(topic, number).log_end_offset)
                group.commit(here, topic, number, offset)
                group.begin(stage, number, offset)
                group.may_leave = False

    # Moves

    def _move(self, stage: Stage, group: _Group, *, apply: bool) -> bool:
        """Change the cluster if the other one has the group's offsets; return whether it has."""
        if not group.may_leave or not group.offsets(_broker(stage, group.side)):
            return False
        direction = Direction.FORWARD if group.side is Side.SOURCE else Direction.REVERSE
        is_applied = apply or direction is Direction.REVERSE
        with _Rounds(stage, re.escape(group.name), direction) as command:
            report = command.round(apply=is_applied)
        offsets = [each for found in report.groups for each in found.offsets] if report else []
        self._seen = offsets
        if not offsets or not all(map(_is_done, offsets)):
            return False
        group.is_exact = {
            each.partition.partition: each.action in _OWN or each.exactness is Exactness.EXACT
            for each in offsets
        }
        group.side = _other(group.side)
        committed = group.offsets(_broker(stage, group.side))
        for number in range(len(stage.partitions)):
            if number not in group.is_exact:
                # The group begins where it was before, or at the first record.
                group.begin(stage, number, committed[number].offset if number in committed else 0)
        self.moves += 1
        return True


class ConsumersOfDamagedCopies(ConsumersMove):
    """The groups move at the end: until then a translation is only as exact as it says."""

    name = "consumers that switch clusters after incidents of their topics"
    stops = (r"",)

    def promise(self, found: Findings) -> list[str]:
        return exact_or_stopped(found)

    def begin(self, stage: Stage) -> None:
        super().begin(stage)
        stage.set(continue_on=frozenset(IncidentKind))

    def round(self, stage: Stage) -> None:
        dice = stage.dice
        for group in self._groups:
            if dice.random() < 0.6:
                group.read(stage, dice.choice([0, 1, dice.randint(1, 12)]), commits_all=False)
        stage.task()
        for _ in range(dice.randint(0, 2)):
            self._follow(stage)
        if dice.random() < 0.4:
            self._damage(stage, dice.randrange(len(stage.partitions)))

    def copy(self, stage: Stage, number: int) -> list[Content]:
        return [each for each in super().copy(stage, number) if each.value != FOREIGN]

    def _damage(self, stage: Stage, number: int) -> None:
        dice = stage.dice
        partition = stage.partitions[number]
        match dice.randrange(4):
            case 0:
                recreate_source(stage)
                for group in self._groups:
                    for each in range(len(stage.partitions)):
                        group.begin(stage, each, 0)
            case 1:
                found = batches_of(stage.destination.log(stage.topic, number))
                if found:
                    lost = found[-dice.randint(1, min(3, len(found)))]
                    lose_tail(stage.destination, stage.topic, lost.header.base_offset, number)
            case 2:
                log = stage.destination.log(stage.topic, number)
                log.store(memoryview(batches.batch([FOREIGN] * 2, base_offset=log.log_end_offset)))
            case 3:
                log = partition.history.log
                start = dice.randint(log.log_start_offset, log.last_stable_offset)
                log.delete_records(start)
                partition.keeps(lambda _, record: _offset_of(record) >= start)


class _Rounds:
    """Rounds of one process, with connections of its own."""

    def __init__(self, stage: Stage, groups: str, direction: Direction) -> None:
        self._connections = ExitStack()
        settings = stage.brokers.settings
        source = self._connections.enter_context(Cluster(settings.source))
        destination = self._connections.enter_context(Cluster(settings.destination))
        self._topics = {stage.topic: stage.topic}
        self._sync = GroupSync(
            source,
            destination,
            settings.group,
            GroupSelection(groups),
            lambda partition: SourceTaken(source, partition, settings),
            direction=direction,
            patience_s=0.1,
        )

    def __enter__(self) -> _Rounds:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._connections.close()

    def round(self, *, apply: bool) -> GroupsReport | None:
        """Run a round; None if it failed, and the next one has to try again."""
        with suppress(ShoalError):
            return self._sync.round(self._topics, apply=apply)
        return None


class _Follower:
    """The rounds of a mirror that is killed and starts again."""

    def __init__(self, stage: Stage) -> None:
        self._rounds = _Rounds(stage, _NAMES, Direction.FORWARD)

    def round(self) -> None:
        self._rounds.round(apply=True)

    def is_killed_at_commit(self, stage: Stage, *, before: bool) -> None:
        """Kill the mirror just before the first commit of a round, or just behind it; start it again."""

        def dying(
            cluster: Cluster, group: str, offsets: Iterable[ToCommit], *, patience_s: float
        ) -> dict[TopicPartition, Outcome]:
            if not before:
                commit_translations(cluster, group, offsets, patience_s=patience_s)
            raise Killed

        with patch.object(rounds, "commit_translations", dying), suppress(Killed):
            self.round()
        self.close()
        self._rounds = _Rounds(stage, _NAMES, Direction.FORWARD)

    def close(self) -> None:
        self._rounds.__exit__()


def _broker(stage: Stage, side: Side) -> Broker:
    return stage.source if side is Side.SOURCE else stage.destination


def _other(side: Side) -> Side:
    return Side.DESTINATION if side is Side.SOURCE else Side.SOURCE


def _readable(stage: Stage, side: Side, number: int, begin: int) -> Sequence[tuple[int, Content]]:
    """Return the records that a consumer reads from an offset on, with their offsets."""
    if side is Side.SOURCE:
        history = stage.partitions[number].history
        begin = max(begin, history.log.log_start_offset)
        found = [(_offset_of(each), each) for each in history.committed]
    else:
        log = stage.destination.log(stage.topic, number)
        found = [
            (offset, each)
            for offset, each in enumerate(content_of(log), log.log_start_offset)
            if each.value != FOREIGN
        ]
    return [each for each in found if each[0] >= begin]


def _offset_of(record: Content) -> int:
    """Return the source offset of a record, which its value has."""
    return int((record.value or b"").rsplit(b" ", 1)[-1])


def _is_own(group: _Group, broker: Broker, number: int) -> bool:
    """Whether a group has an offset at a broker that no translation moves backwards."""
    there = group.offsets(broker).get(number)
    return there is not None and Mark.read(CommittedValue(there.offset, there.metadata, 0)) is None


def _expire(group: _Group, broker: Broker, topic: str, number: int) -> None:
    """Let the offset of one partition expire."""
    there = group.offsets(broker).get(number)
    if there is not None:
        broker.groups.commit(group.name, {(topic, number): there._replace(committed_at_ms=0)})
        broker.groups.forget_old_offsets()


def _is_done(offset: GroupOffset) -> bool:
    return offset.action in _DONE and offset.exactness is not Exactness.AHEAD

"""
Two embedded clusters between which producers move with each cut, and the mirror that goes there and back.

Every record has a place in the order in which producers wrote, wherever they were then. Both clusters have
each record once, in this order, as far as the mirror has come. A late writer is an excuse, and so is a log
that has lost the record.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from rig.judge import judge_copy
from shoal.errors import ConfigError
from shoal.mirroring.cutover.certificate import Certificate
from shoal.mirroring.model.incidents import IncidentKind
from shoal_broker import Broker
from tests.world.batches import Content
from tests.world.clusters import TOPIC, TwoBrokers, recreate
from tests.world.contents import batches_of, content_of_batch
from tests.world.control import Killed, Watched, incidents_of
from tests.world.history import ABORT, COMMIT, LedHistory, Written
from tests.world.logs import lose_tail
from tests.world.waiting import wait_until
from tests.world.way_back import WayBack, certificate_of, reversed_brokers

__all__ = ["Cut", "CutSetup", "CutWorld"]

#: The groups of the mirrors there and back.
_GROUPS = ("mirror", "back")


@dataclass(frozen=True, slots=True)
class CutSetup:
    """The properties of a world before its first step."""

    nodes: int = 1
    partitions: int = 1
    several_in_a_request: bool = False


@dataclass(slots=True)
class Cut:
    """
    A certified cut.

    Attributes:
        group: The group of the mirror that led there.
        gone: The partitions of which a log is not that of the cut any more, up to there.

    """

    group: str
    certificate: Certificate
    gone: set[int] = field(default_factory=set)


class CutWorld:
    """
    Two clusters, the producers at one of them, and the mirror to the other.

    Attributes:
        dice: Draws what events do not.
        mirror: The mirror that runs, with its two clusters.
        written: The records of each partition, in the order in which producers wrote them.
        cuts: All certified cuts.
        are_there: Whether the producers are at the mirror's destination, since a cut.
        behind_cut: The records that they have written there.
        late: The records that a producer wrote at the mirror's source after those.
        brought: Those of the former that are back already, by a way back of only some partitions.
        begun_again: The copies, by the cluster's id and the partition, that had no record and no position: a
            mirror begins them at its start (guarantees.md), with late records, too.
        lost: The records that a cluster need not have, by its id: it lost them, or cannot get them.
        shorter: The logs that have lost what was acknowledged, by the cluster's id and the partition.
        problems: Sentences about what is wrong.
        compared: The most records of copies that were compared at a time.

    """

    def __init__(self, setup: CutSetup, dice: random.Random, brokers: TwoBrokers) -> None:
        self.dice = dice
        self.mirror = brokers
        brokers.topic(TOPIC, setup.partitions)
        self.written: list[list[Written]] = [[] for _ in range(setup.partitions)]
        self.cuts: list[Cut] = []
        self.are_there = False
        self.behind_cut: set[Content] = set()
        self.late: set[Content] = set()
        self.brought: set[Content] = set()
        self.begun_again: set[tuple[str, int]] = set()
        self.lost: dict[str, set[Content]] = {each.cluster_id: set() for each in self._brokers}
        self.shorter: set[tuple[str, int]] = set()
        self.problems: list[str] = []
        self.compared = 0
        self._made = 0
        self._way_back: WayBack | None = None
        self._incidents: set[IncidentKind] = set()
        self._stops: list[str] = []

    @classmethod
    @contextmanager
    def started(cls, setup: CutSetup, dice: random.Random) -> Iterator[Self]:
        """Start both clusters."""
        with TwoBrokers.started(setup.nodes, multi_batch=setup.several_in_a_request) as brokers:
            yield cls(setup, dice, brokers)

    def expect(self, event: str, incidents: Sequence[IncidentKind], stops: Sequence[str]) -> None:
        """Note what an event explains; late writes explain any stop."""
        if self.cuts:
            self._incidents.update(incidents)
            self._stops += stops

    @property
    def _brokers(self) -> tuple[Broker, Broker]:
        return self.mirror.source, self.mirror.destination

    # Producers

    def write(self, *, late: bool = False) -> None:
        """Write to all partitions where the producers are; late ones are where they were before the cut."""
        is_there = self.are_there and not late
        if late and not self.behind_cut:
            self.are_there = False  # no producer has written behind the cut: it is given up
        for number, written in enumerate(self.written):
            history = LedHistory(self._brokers[is_there].log(TOPIC, number))
            for _ in range(self.dice.randint(1, 3)):
                self._write(history)
            written += history.records
            if is_there:
                self.behind_cut.update(each.content for each in history.records)
            elif self.behind_cut:
                self.late.update(each.content for each in history.records)

    def _write(self, history: LedHistory) -> None:
        values = [self._value() for _ in range(self.dice.randint(1, 4))]
        match self.dice.randrange(4):
            case 0:
                history.begin(values).marker(COMMIT)
            case 1:
                history.begin(values).marker(ABORT)
            case _:
                history.store(history.batch(values), shown=True)

    def _value(self) -> bytes:
        self._made += 1
        return b"value %d" % self._made

    # Losses behind a cut

    def lose_tail(self, broker: Broker, number: int) -> None:
        """Let an unclean election take the last batches of a log."""
        log = broker.log(TOPIC, number)
        if found := batches_of(log):
            lost_from = found[-self.dice.randint(1, min(3, len(found)))].header.base_offset
            with self._losing(broker, number):
                after = lose_tail(broker, TOPIC, lost_from, number)
                after.delete_records(min(log.log_start_offset, after.log_end_offset))
            self._is_shorter(broker, number, after.log_end_offset)

    def delete_records(self, broker: Broker, number: int) -> None:
        """Let retention delete some records of a log, or all."""
        log = broker.log(TOPIC, number)
        start, end = log.log_start_offset, log.last_stable_offset
        with self._losing(broker, number):
            log.delete_records(self.dice.choice([self.dice.randint(start, end), end]))

    def create_again(self, broker: Broker) -> None:
        """Let an operator delete the topic and create it again, perhaps with all groups' offsets in it."""
        with_offsets = self.dice.random() < 0.5
        numbers = range(len(self.written))
        with self._losing(broker, *numbers):
            recreate(broker, TOPIC, with_offsets=with_offsets)
        for number in numbers:
            self._is_shorter(broker, number, -1)

    def _is_shorter(self, broker: Broker, number: int, end: int) -> None:
        """Note that a log has lost what it had from an offset on."""
        self.shorter.add((broker.cluster_id, number))
        for cut in self.cuts:
            at_cut = cut.certificate.partitions[number]
            is_at_source = cut.certificate.source.cluster_id == broker.cluster_id
            if end < (at_cut.source if is_at_source else at_cut.destination).end:
                cut.gone.add(number)

    @contextmanager
    def _losing(self, broker: Broker, *numbers: int) -> Iterator[None]:
        """Note the records that logs lose within the block, and those that the other cluster cannot get."""
        nodes = (*self.mirror.sources.nodes, *self.mirror.destinations.nodes)
        wait_until(lambda: not any(node.server.connections for node in nodes))
        (other,) = (each for each in self._brokers if each is not broker)
        before = {content for number in numbers for _, content in self._records(broker, number)}
        yield
        here, there = (
            {content for number in numbers for _, content in self._records(each, number)}
            for each in (broker, other)
        )
        # A transaction that has lost its marker is open again.
        is_open = {
            content
            for number in numbers
            for offset, content in self._records(broker, number)
            if offset >= broker.log(TOPIC, number).last_stable_offset
        }
        self.lost[broker.cluster_id] |= (before - here) | is_open
        self.lost[other.cluster_id] |= (before - here - there) | is_open

    # Mirrors

    def run(self, control: Watched | None = None) -> bool:
        """Run a task up to the present ends; return whether it has copied all."""
        control = control or Watched()
        copy = self.mirror.destination
        self.begun_again |= {
            (copy.cluster_id, number)
            for number in range(len(self.written))
            if self.mirror.committed(TOPIC, number) is None
            and self._end(copy, number) > 0
            and not self._records(copy, number)
        }
        try:
            result = self.mirror.run(self.mirror.ranges(TOPIC), control)
        except Killed:
            return False
        incidents = incidents_of(control)
        reasons = [each.reason for each in result.stopped] or [each[1] for each in incidents]
        kinds = {IncidentKind(each[0]) for each in incidents}
        unexplained = [each for each in reasons if not any(part in each for part in self._stops)]
        if unexplained and not self.behind_cut and not (kinds and kinds <= self._incidents):
            self.problems.append(f"a mirror stopped, and nothing explains it: {unexplained}")
        return result.complete and not reasons

    def certify(self) -> None:
        """Certify a cut, behind which the producers go to the mirror's destination."""
        if not self.behind_cut and self.run():
            self.cuts.append(Cut(self.mirror.settings.group, certificate_of(self.mirror)))
            self.are_there = True

    def go_back(self, choose: Callable[[Sequence[Cut]], Cut]) -> None:
        """Start the mirror that goes the other way, with a certificate of a cut of the one that runs."""
        group = self.mirror.settings.group
        if not (mine := [each for each in self.cuts if each.group == group]):
            return
        cut = choose(mine)
        certificate = cut.certificate
        other = reversed_brokers(self.mirror, _GROUPS[group == _GROUPS[0]])
        is_current = certificate.partitions == mine[-1].certificate.partitions and self.are_there
        gone = cut.gone | {each for each in range(len(self.written)) if self._begins_behind(cut, each)}
        way_back = WayBack(self.mirror, other, certificate)
        try:
            begun = way_back.begin()
        except ConfigError as error:
            if is_current and not (self.late or gone):
                self.problems.append(f"the way back was refused, and nothing explains it: {error}")
            return
        if wrong := gone.intersection(begun):
            self.problems.append(f"partitions {wrong} go back to a cut that a log does not have any more")
        for number in begun:
            at_cut, end = certificate.partitions[number].source.end, self._end(self.mirror.source, number)
            if end != at_cut:
                self.problems.append(f"partition {number} goes back to a cut at {at_cut}, and ends at {end}")
        # One with the position of an earlier life has to find out by itself that it is not its turn.
        is_its_turn = is_current and not (self.late or gone)
        if is_its_turn or other.run(other.ranges(TOPIC)).stopped == ():
            self.mirror, self.are_there, self.behind_cut, self.brought = other, False, set(), set()
            self._way_back = way_back
        else:  # some partitions may have gone back
            self.brought |= self.behind_cut

    def _begins_behind(self, cut: Cut, number: int) -> bool:
        """Whether records behind a cut are deleted where the producers are."""
        at_cut = cut.certificate.partitions[number].destination
        return self.mirror.destination.log(TOPIC, number).log_start_offset > at_cut.end

    def start_again(self) -> None:
        """Start the mirror as it was started before: with the certificate that it has begun with."""
        if self._way_back is None:
            return
        try:
            begun = self._way_back.begin()
        except ConfigError as error:
            if not self.shorter:  # a topic that is created again has no position any more
                self.problems.append(f"a second start was refused: {error}")
            return
        if begun:
            self.problems.append(f"partitions {begun} begin at their cut once more")

    def end_faults(self) -> None:
        """Let all brokers answer as they should."""
        for node in (*self.mirror.sources.nodes, *self.mirror.destinations.nodes):
            node.faults.clear()

    @staticmethod
    def _end(broker: Broker, number: int) -> int:
        return broker.log(TOPIC, number).log_end_offset

    # The judge

    def check(self, *, is_complete: bool = False) -> None:
        """Compare both clusters with what producers wrote, of which a complete mirror lacks nothing."""
        for number, written in enumerate(self.written):
            self._check_position(number)
            # The other mirror brings back what is behind a cut, and none brings late records.
            begins_again = (self._brokers[1].cluster_id, number) in self.begun_again
            may_come = self.brought, self.late if begins_again else set()
            not_there = self.behind_cut - may_come[0], self.late - may_come[1]
            for broker, absent, perhaps in zip(self._brokers, not_there, may_come, strict=True):
                due = [each for each in written if each.content not in absent]
                may_lack = self.lost[broker.cluster_id] | perhaps
                there = self._records(broker, number)
                verdict = judge_copy(
                    [(each.offset, each.content) for each in due],
                    there,
                    least=is_complete * max((n for n, each in enumerate(due, 1) if each.is_shown), default=0),
                    may_lack=[
                        place
                        for place, each in enumerate(due)
                        if not each.is_shown or each.content in may_lack
                    ],
                )
                where = f"{broker.cluster_id}, partition {number}"
                self.problems += [f"{where}: {each}" for each in verdict.details]
                self.compared = max(self.compared, len(there))

    def _check_position(self, number: int) -> None:
        position = self.mirror.committed(TOPIC, number)
        end = self._end(self.mirror.destination, number)
        is_shorter = (self.mirror.destination.cluster_id, number) in self.shorter
        if position is not None and position.destination_offset > end and not is_shorter:
            self.problems.append(f"partition {number}: {position} is ahead of the copy, which ends at {end}")

    @staticmethod
    def _records(broker: Broker, number: int) -> list[tuple[int, Content]]:
        log = broker.log(TOPIC, number)
        return [
            (offset, content)
            for each in batches_of(log)
            if not each.header.is_control
            for offset, content in content_of_batch(each.view)
            if offset >= log.log_start_offset
        ]

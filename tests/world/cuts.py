"""
Two embedded clusters between which producers move with each cut, and the mirror that goes there and back.

Every record has a place in the order in which producers wrote, wherever they were then. Both clusters have
each record once, in this order, as far as the mirror has come; a late writer is the only excuse.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from rig.judge import judge_copy
from shoal.errors import ConfigError
from shoal.mirroring.cutover.certificate import Certificate
from shoal.mirroring.model.incidents import IncidentKind
from shoal_broker import Broker
from tests.world.batches import Content
from tests.world.clusters import TOPIC, TwoBrokers
from tests.world.contents import batches_of, content_of_batch
from tests.world.control import Killed, Watched, incidents_of
from tests.world.history import ABORT, COMMIT, History, Written
from tests.world.way_back import WayBack, certificate_of, reversed_brokers

__all__ = ["CutSetup", "CutWorld"]

#: The groups of the mirrors there and back.
_GROUPS = ("mirror", "back")


@dataclass(frozen=True, slots=True)
class CutSetup:
    """The properties of a world before its first step."""

    nodes: int = 1
    partitions: int = 1
    several_in_a_request: bool = False


class CutWorld:
    """
    Two clusters, the producers at one of them, and the mirror to the other.

    Attributes:
        dice: Draws what events do not.
        mirror: The mirror that runs, with its two clusters.
        written: The records of each partition, in the order in which producers wrote them.
        certificates: All cuts, each with the mirror that led there.
        are_there: Whether the producers are at the mirror's destination, since a cut.
        behind_cut: The records that they have written there.
        late: The records that a producer wrote at the mirror's source after those.
        problems: Sentences about what is wrong.
        compared: The most records of copies that were compared at a time.

    """

    def __init__(self, setup: CutSetup, dice: random.Random, brokers: TwoBrokers) -> None:
        self.dice = dice
        self.mirror = brokers
        brokers.topic(TOPIC, setup.partitions)
        self.written: list[list[Written]] = [[] for _ in range(setup.partitions)]
        self.certificates: list[tuple[str, Certificate]] = []
        self.are_there = False
        self.behind_cut: set[Content] = set()
        self.late: set[Content] = set()
        self.problems: list[str] = []
        self.compared = 0
        self._made = 0
        self._way_back: WayBack | None = None

    @classmethod
    @contextmanager
    def started(cls, setup: CutSetup, dice: random.Random) -> Iterator[Self]:
        """Start both clusters."""
        with TwoBrokers.started(setup.nodes, multi_batch=setup.several_in_a_request) as brokers:
            yield cls(setup, dice, brokers)

    def expect(self, event: str, incidents: Sequence[IncidentKind], stops: Sequence[str]) -> None:
        """Do nothing: late writes alone explain a stop."""

    # Producers

    def write(self, *, late: bool = False) -> None:
        """Write to all partitions where the producers are; late ones are where they were before the cut."""
        is_there = self.are_there and not late
        if late and not self.behind_cut:
            self.are_there = False  # no producer has written behind the cut: it is given up
        for number, written in enumerate(self.written):
            history = History(
                (self.mirror.destination if is_there else self.mirror.source).log(TOPIC, number)
            )
            for _ in range(self.dice.randint(1, 3)):
                self._write(history)
            written += history.records
            if is_there:
                self.behind_cut.update(each.content for each in history.records)
            elif self.behind_cut:
                self.late.update(each.content for each in history.records)

    def _write(self, history: History) -> None:
        values = [self._value() for _ in range(self.dice.randint(1, 4))]
        match self.dice.randrange(4):
            case 0:
                history.begin(values).marker(COMMIT)
            case 1:
                history.begin(values).marker(ABORT)
            case _:
                batch = history.batch(values, leader_epoch=history.log.leader_epoch)
                history.store(batch, shown=True)

    def _value(self) -> bytes:
        self._made += 1
        return b"value %d" % self._made

    # Mirrors

    def run(self, control: Watched | None = None) -> bool:
        """Run a task up to the present ends; return whether it has copied all."""
        control = control or Watched()
        try:
            result = self.mirror.run(self.mirror.ranges(TOPIC), control)
        except Killed:
            return False
        reasons = [each.reason for each in result.stopped] or [each[1] for each in incidents_of(control)]
        if reasons and not self.behind_cut:
            self.problems.append(f"a mirror stopped, and no producer wrote behind a cut: {reasons}")
        return result.complete and not reasons

    def certify(self) -> None:
        """Certify a cut, behind which the producers go to the mirror's destination."""
        if not self.behind_cut and self.run():
            self.certificates.append((self.mirror.settings.group, certificate_of(self.mirror)))
            self.are_there = True

    def go_back(self, choose: Callable[[Sequence[Certificate]], Certificate]) -> None:
        """Start the mirror that goes the other way, with a certificate of a cut of the one that runs."""
        group = self.mirror.settings.group
        if not (mine := [each for of, each in self.certificates if of == group]):
            return
        certificate = choose(mine)
        other = reversed_brokers(self.mirror, _GROUPS[group == _GROUPS[0]])
        is_current = certificate.partitions == mine[-1].partitions and self.are_there and not self.late
        way_back = WayBack(self.mirror, other, certificate)
        try:
            begun = way_back.begin()
        except ConfigError as error:
            if is_current:
                self.problems.append(f"the way back was refused, and no producer wrote late: {error}")
            return
        for number in begun:
            cut, end = certificate.partitions[number].source.end, self._end(self.mirror.source, number)
            if end != cut:
                self.problems.append(f"partition {number} goes back to a cut at {cut}, and ends at {end}")
        # One with the position of an earlier life has to find out by itself that it is not its turn.
        if is_current or other.run(other.ranges(TOPIC)).stopped == ():
            self.mirror, self.are_there, self.behind_cut = other, False, set()
            self._way_back = way_back

    def start_again(self) -> None:
        """Start the mirror as it was started before: with the certificate that it has begun with."""
        if self._way_back is not None and (begun := self._way_back.begin()):
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
            foreign = (self.mirror.source, self.behind_cut), (self.mirror.destination, self.late)
            for broker, not_there in foreign:
                due = [each for each in written if each.content not in not_there]
                there = self._records(broker, number)
                verdict = judge_copy(
                    [(each.offset, each.content) for each in due],
                    there,
                    least=is_complete * max((n for n, each in enumerate(due, 1) if each.is_shown), default=0),
                    may_lack=[place for place, each in enumerate(due) if not each.is_shown],
                )
                where = f"{broker.cluster_id}, partition {number}"
                self.problems += [f"{where}: {each}" for each in verdict.details]
                self.compared = max(self.compared, len(there))

    def _check_position(self, number: int) -> None:
        position = self.mirror.committed(TOPIC, number)
        end = self._end(self.mirror.destination, number)
        if position is not None and position.destination_offset > end:
            self.problems.append(f"partition {number}: {position} is ahead of the copy, which ends at {end}")

    @staticmethod
    def _records(broker: Broker, number: int) -> list[tuple[int, Content]]:
        batches = batches_of(broker.log(TOPIC, number))
        return [
            place for each in batches if not each.header.is_control for place in content_of_batch(each.view)
        ]

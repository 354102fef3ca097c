"""The judge of copies between real clusters, after every step: what can be seen from outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient

from rig.judge import Verdict, compare
from rig.read import read_topic
from rig.record import Record
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.position import MirrorPosition
from shoal.topic_partition import TopicPartition

from .arena import Side
from .world import ClustersWorld

__all__ = ["Copy", "check"]


def check(world: ClustersWorld) -> Verdict:
    """Compare the copies with the source, and with what the mirror says; add problems to the world."""
    verdict = Verdict()
    for topic, positions in _positions(world).items():
        source = world.topics.read(topic)
        copies = _read_copy(world.arena.bootstrap(Side.DESTINATION), topic)
        for number in sorted({*source, *copies}):
            name, copy = f"{topic}-{number}", copies.get(number, [])
            of_partition = Copy(
                now=world.topics.due(topic, number, source.get(number, [])),
                mirrored=world.topics.mirrored_before(topic, number, copy),
                copy=copy,
                position=positions.get(number),
                reached=world.reached.get(TopicPartition(topic, number), 0),
                has_stopped=name in world.stopped,
                was_created_again=world.topics.was_created_again and topic == world.setup.topic,
                continues=world.continues,
                has_counted=world.was_killed or (name, IncidentKind.SOURCE_RESET) in world.incidents,
                at_least_once=world.setup.at_least_once,
            )
            verdict += of_partition.verdict().of(name)
            world.problems += [f"{name}: {each}" for each in of_partition.problems()]
    world.problems += world.topics.problems
    return verdict


def _positions(world: ClustersWorld) -> dict[str, dict[int, MirrorPosition]]:
    found: dict[str, dict[int, MirrorPosition]] = {topic: {} for topic in world.topics.names}
    for (topic, number), committed in world.positions.await_read().items():
        position = MirrorPosition.from_committed(committed)
        if position is not None and topic in found:
            found[topic][number] = position
    return found


def _read_copy(bootstrap: str, topic: str) -> Mapping[int, Sequence[Record]]:
    """Read a topic of the destination; if it does not exist, it has no records."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return read_topic(bootstrap, topic) if topic in admin.list_topics(timeout=30).topics else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A partition of the destination, and what the mirror has said of it.

    A copy is right if it has the first records of the source, each once and in order. It must have all that
    the position promises, and all up to where a mirror has copied everything.

    Attributes:
        now: The records of the source that a mirror has to copy.
        copy: The records of the destination.
        mirrored: The records of a deleted topic with which the copy begins.
        position: The committed position.
        reached: The source offset up to which a mirror has copied all; 0 if none has.
        has_stopped: Whether the partition had stopped then.
        was_created_again: Whether the topic was deleted, and created again.
        continues: Whether the mirror may continue then.
        has_counted: Whether the mirror has told of an incident, or may have been killed before it could.
        at_least_once: Whether records may be there again.
    """

    now: Sequence[Record]
    copy: Sequence[Record]
    mirrored: Sequence[Record] = ()
    position: MirrorPosition | None = None
    reached: int = 0
    has_stopped: bool = False
    was_created_again: bool = False
    continues: bool = False
    has_counted: bool = False
    at_least_once: bool = False

    def verdict(self) -> Verdict:
        """Compare each record that is due, or is there."""
        least = self._promised
        if self.reached and not self.has_stopped:
            least = max(least, len(self.mirrored) + self._before(self.reached))
        ours = [*self.mirrored, *self.now]
        return compare({0: ours}, {0: self.copy}, at_least_once=self.at_least_once, least=least)

    @property
    def _promised(self) -> int:
        """How many of the first records the position promises."""
        if self.position is None or self.was_created_again:
            return 0
        return self._before(self.position.source_offset)

    def _before(self, offset: int) -> int:
        return sum(each.offset < offset for each in self.now)

    def problems(self) -> Iterator[str]:
        """Yield what is wrong besides the records themselves."""
        if not self.was_created_again:
            yield from self._misplaced()
        elif self.mirrored and len(self.copy) > len(self.mirrored):
            if not self.continues:
                yield "it has records of the former topic and of the new one, and may only stop"
            elif not self.has_counted:
                yield "it continued in a topic that was created again, and counted no incident"

    def _misplaced(self) -> Iterator[str]:
        """Compare the map with the places of the records: it is never ahead of the destination's log.

        If records may be there again, more of them may be before a place.
        """
        if self.position is None:
            return
        # A log of a mirror alone has no gaps.
        end = self.copy[-1].offset + 1 if self.copy else 0
        if self.position.destination_offset > end:
            yield f"the position {self.position.destination_offset} is ahead of the copy, which ends at {end}"
            return
        for source, place, _ in self.position.offsets.milestones:
            copied, promised = sum(each.offset < place for each in self.copy), self._before(source)
            if copied < promised or (copied > promised and not self.at_least_once):
                yield (
                    f"the map says that source offset {source} is at {place}: {copied} records are before "
                    f"it, not {promised}"
                )

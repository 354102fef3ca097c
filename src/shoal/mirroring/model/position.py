"""
A committed position: a map from destination offsets to source offsets, which is ahead of the log.

The map leads to all that is copied, and to all that the mirror is about to write. So a task that resumes
looks up the end of the copy's log, and reads no record of either side (docs/architecture.md).

The next source offset is the group's committed offset, as Kafka's tools show it. The commit's metadata has
everything else: ``shoal4`` and a JSON object. Brokers accept at most 4,096 bytes
(``offset.metadata.max.bytes``). A position has about 400, its runs ahead up to 2,000 if the source has
transactions or compaction, and its milestones the rest. A shoal reads no other layout than its own.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...client.committed_offsets import Committed
from ...errors import ConfigError
from ...json_values import typed
from .first_start import FirstStart
from .offset_map import OffsetMap, Stretch
from .runs import Run, edges_of, pieces_of, read_runs, run_at, runs_to_json

__all__ = [
    "SEQUENCES",
    "MirrorPosition",
    "ProducerIdentity",
    "is_another_topic",
    "is_position",
    "topic_id_of",
]

#: The prefix of the JSON. The number is the version of its layout.
_ANY_VERSION = "shoal"
PREFIX = _ANY_VERSION + "4"

#: The whole form of all layouts, also of later ones.
_FORM = re.compile(_ANY_VERSION + r"\d{1,4}(\{.*\})", re.DOTALL)
#: The values that each layout has.
_VALUES = frozenset({"destination", "producer", "origin", "topics"})

#: The most characters of the metadata. The map of a position that would have more is thinned further.
_MOST_CHARACTERS = 3_500

#: A sequence has 31 bits. 0 follows the largest one.
SEQUENCES = 2**31


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """
    The producer that writes to a destination partition.

    Attributes:
        producer_id: The producer id from the destination's InitProducerId, one for each partition.
        base: The destination offset that has sequence 0; 0 if there are no other writers. Below 0 if the
            destination lost records and the sequences continued.

    """

    producer_id: int
    producer_epoch: int
    base: int = 0

    def sequence(self, destination_offset: int) -> int:
        """Return the sequence of a batch at a destination offset: its distance from the base, modulo 2^31."""
        return (destination_offset - self.base) % SEQUENCES

    @property
    def sequence_is_offset(self) -> bool:
        """Whether sequences equal offsets, as a broker requires that compares the two."""
        return self.base % SEQUENCES == 0

    def moved(self, by: int) -> ProducerIdentity:
        """Return the same producer with its next sequence at an offset that is larger by ``by``."""
        return replace(self, base=self.base + by)


@dataclass(frozen=True, slots=True)
class MirrorPosition:
    """
    Everything before ``source_offset`` is at the destination, before ``destination_offset``.

    Attributes:
        source_offset: The next source offset to mirror.
        destination_offset: The destination offset of its first record.
        identity: The producer that writes to the destination partition.
        origin: The ``(source offset, destination offset)`` at which the mirror of this partition began.
        source_topic_id: The id of the source topic, as text; None if the cluster has no topic ids.
        destination_topic_id: The id of the destination topic, or None.
        source_leader_epoch: The leader epoch of the last batch before ``source_offset`` at the source
            (KIP-320); -1 if the batch has none.
        rules: The digest of :func:`~shoal.mirroring.model.copy_options.copy_rules`.
        first_start: The mirror's first start; None if no driver has given one.
        milestones: The offset map up to the last commit or incident.
        begin: The destination offset of the copy's first record; all before it belongs to others. A new one
            begins behind each incident.
        plan: The runs that begin at ``destination_offset`` or behind it: what the mirror is about to write.
        before_cut: The map of the mirror's former life, up to the cut at which this one begins
            (:mod:`...cutover.failback`); None if there is none, or if it holds no more.
        is_plain: Whether a mirror with at-least-once delivery has it: nothing leads to what it wrote behind.

    """

    source_offset: int
    destination_offset: int
    identity: ProducerIdentity
    origin: tuple[int, int]
    source_topic_id: str | None
    destination_topic_id: str | None
    rules: str
    milestones: OffsetMap
    source_leader_epoch: int = -1
    first_start: FirstStart | None = None
    begin: int = 0
    plan: tuple[Run, ...] = ()
    before_cut: OffsetMap | None = None
    is_plain: bool = False

    @property
    def here(self) -> Run:
        """The run that the position itself begins; its epoch is that of the record before it."""
        return Run(self.destination_offset, self.source_offset, self.source_leader_epoch)

    def run_at(self, destination: int) -> Run:
        """Return the run that leads to a destination offset at the position or behind it."""
        return run_at(self.here, self.plan, destination)

    def pieces(self, begin: int, end: int) -> list[Run]:
        """Return the runs of a range of destination offsets; the first begins with the range."""
        return pieces_of(self.here, self.plan, begin, end)

    def leads_as(self, other: MirrorPosition, begin: int, end: int) -> bool:
        """Whether another map of the same writer leads from each offset of a range to the same record."""
        return (
            other.identity == self.identity
            and other.destination_offset <= begin
            and other.pieces(begin, end) == self.pieces(begin, end)
        )

    # Other positions

    def leading_to(self, runs: Iterable[tuple[Run, int]]) -> MirrorPosition:
        """
        Return the map that leads to records, each run of them without a gap up to an offset.

        Where it leads elsewhere, their run begins. The runs behind that are void: the source is cut otherwise
        now.
        """
        here, plan = self.here, list(self.plan)
        for run, end in runs:
            before = plan[-1] if plan else here
            if before.destination > run.destination:
                before = run_at(here, plan, run.destination)
                pieces = pieces_of(here, plan, run.destination, end)
                if all(run.source_at(each.destination) == each.source for each in pieces):
                    # The same records, perhaps of another epoch: what lies behind them stays.
                    if any(each.leader_epoch != run.leader_epoch for each in pieces):
                        plan = _with_epoch(here, plan, run, end)
                    continue
                if any(run.destination < each.destination < end for each in plan):
                    plan = [each for each in plan if each.destination <= run.destination]
            if before.source_at(run.destination) != run.source or before.leader_epoch != run.leader_epoch:
                while plan and plan[-1].destination >= run.destination:
                    plan.pop()
                plan.append(run)
        return replace(self, plan=tuple(plan))

    def passing_over(self, source_offset: int, leader_epoch: int) -> MirrorPosition:
        """Return the position behind source offsets that are not mirrored, and after a leader epoch."""
        source_offset = max(source_offset, self.source_offset)
        if source_offset == self.source_offset and leader_epoch == self.source_leader_epoch:
            return self
        edges = [(each, self.destination_offset) for each in (self.source_offset, source_offset)]
        return replace(
            self,
            source_offset=source_offset,
            source_leader_epoch=leader_epoch,
            milestones=self.milestones.passed(edges if source_offset > self.source_offset else ()),
        )

    def at(self, destination: int) -> MirrorPosition:
        """
        Return the position at an offset behind this one, such as the end of the copy's log.

        The source continues behind the record before the end. Runs behind the end stay: a late request may
        still write what they describe.
        """
        if destination == self.destination_offset:
            return self
        run = self.run_at(destination - 1)
        passed = [each for each in self.plan if each.destination < destination]
        return replace(
            self,
            source_offset=run.source_at(destination),
            source_leader_epoch=run.leader_epoch,
            destination_offset=destination,
            plan=self.plan[len(passed) :],
            milestones=self.milestones.passed(edges_of(self.here, passed)),
        )

    @property
    def offsets(self) -> OffsetMap:
        """The offset map up to this position."""
        return self.milestones.reached(self.source_offset, self.destination_offset)

    @property
    def all_offsets(self) -> OffsetMap:
        """The offset map with that of the former life in front. No mirror resumes by it: groups alone do."""
        return self.offsets.behind(self.before_cut)

    def with_milestone(self) -> MirrorPosition:
        """Return the position as the newest milestone of its offset map."""
        return replace(self, milestones=self.offsets)

    def moved(self, stretch: Stretch = Stretch.BROKEN, **changes: Any) -> MirrorPosition:
        """
        Return a position that no acknowledged record led to.

        Args:
            stretch: How far the offsets in between are trusted.
            changes: Attributes and their new values.

        """
        after = replace(self, **changes)
        offsets = self.offsets.reached(after.source_offset, after.destination_offset, stretch)
        return replace(after, milestones=offsets)

    def to_committed(self, most_characters: int = _MOST_CHARACTERS) -> Committed:
        """
        Return the offset and the metadata to commit, with the position as the newest milestone.

        Args:
            most_characters: The map is thinned down to two milestones until the metadata has no more. Then
                the map of the former life goes.

        """
        offsets = self.offsets
        metadata = self._to_metadata(offsets)
        while len(metadata) > most_characters and len(offsets.milestones) > 2:
            offsets = offsets.with_at_most(max(2, len(offsets.milestones) - 4))
            metadata = self._to_metadata(offsets)
        if len(metadata) > most_characters and self.before_cut is not None:
            metadata = replace(self, before_cut=None)._to_metadata(offsets)
        return Committed(self.source_offset, metadata)

    def _to_metadata(self, offsets: OffsetMap) -> str:
        values: dict[str, Any] = {
            "destination": self.destination_offset,
            "producer": [self.identity.producer_id, self.identity.producer_epoch, self.identity.base],
            "origin": self.origin,
            "topics": [self.source_topic_id, self.destination_topic_id],
            "source_epoch": self.source_leader_epoch,
            "rules": self.rules,
            "map": offsets.to_json_object(),
            "begin": self.begin,
            "plan": runs_to_json(self.here, self.plan),
        }
        if self.first_start is not None:
            values["first"] = self.first_start.to_json_object()
        if self.before_cut is not None:
            values["before_cut"] = self.before_cut.to_json_object()
        if self.is_plain:
            values["plain"] = True
        return PREFIX + json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_committed(cls, committed: Committed) -> MirrorPosition | None:
        """
        Read a position from a committed offset; None if the offset has no metadata of shoal's.

        Raises:
            ConfigError: The metadata is shoal's but unreadable. Without it, the mirror could copy everything
                again.

        """
        if not committed.metadata.startswith(_ANY_VERSION):
            return None
        try:
            if committed.metadata.startswith(PREFIX):
                values = json.loads(committed.metadata[len(PREFIX) :])
                return cls._from_values(committed.offset, values)
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise ConfigError(
            f"the group holds a position of another version of shoal ({committed.metadata[:60]!r}). "
            "Mirror with that version, or with another group into empty topics"
        )

    @classmethod
    def _from_values(cls, source_offset: int, values: dict[str, Any]) -> MirrorPosition:
        producer_id, producer_epoch, base = values["producer"]
        origin_source, origin_destination = values["origin"]
        source_topic_id, destination_topic_id = (
            None if each is None else typed(str, each) for each in values["topics"]
        )
        before_cut, first = values.get("before_cut"), values.get("first")
        position = cls(
            source_offset,
            _offset(values["destination"]),
            ProducerIdentity(
                _offset(producer_id), _number(producer_epoch, 0, 15), _number(base, -(2**63), 63)
            ),
            (_offset(origin_source), _offset(origin_destination)),
            source_topic_id,
            destination_topic_id,
            typed(str, values["rules"]),
            OffsetMap.from_json_object(values["map"]),
            _number(values["source_epoch"], -1, 31),
            None if first is None else FirstStart.from_json_object(first),
            _offset(values["begin"]),
            before_cut=None if before_cut is None else OffsetMap.from_json_object(before_cut),
            is_plain=typed(bool, values.get("plain", False)),
        ).with_milestone()
        return replace(position, plan=read_runs(position.here, values["plan"]))


def _with_epoch(here: Run, plan: Sequence[Run], run: Run, end: int) -> list[Run]:
    """Return a plan with a run up to an offset, and behind it what was planned there."""
    behind = run_at(here, plan, end)
    return [
        *(each for each in plan if each.destination < run.destination),
        run,
        Run(end, behind.source_at(end), behind.leader_epoch),
        *(each for each in plan if each.destination > end),
    ]


def is_position(metadata: str) -> bool:
    """
    Whether metadata have the whole form of a mirror's position, in the layout of any version.

    A consumer may commit metadata that begin likewise, such as ``shoal-team consumer 3``.
    """
    match = _FORM.fullmatch(metadata) if metadata.startswith(_ANY_VERSION) else None
    if match is None:
        return False
    try:
        values = json.loads(match[1])
    except (ValueError, RecursionError):
        return False
    return isinstance(values, dict) and values.keys() >= _VALUES


def is_another_topic(then: str | None, now: str | uuid.UUID | None) -> bool:
    """Whether a topic was created again since it had an id; without the id of both, nothing shows that."""
    return bool(then and now and then != str(now))


def topic_id_of(text: str | None) -> uuid.UUID | None:
    """Return the topic id in a position; None if there is none, or if the text is not an id."""
    try:
        return None if text is None else uuid.UUID(text)
    except ValueError:
        return None


def _number(value: Any, low: int, bits: int) -> int:
    """Check that a number fits into its field of the protocol, since other programs may commit, too."""
    number = typed(int, value)
    if not low <= number < 1 << bits:
        raise ValueError(f"{number} is out of range")
    return number


def _offset(value: Any) -> int:
    return _number(value, 0, 63)

"""
The outcome of a round: each offset of each group, the mark of those that are committed, and the totals.

An offset without a mark is one of a consumer or an operator, and shoal never moves it backwards. The same is
true of a mark beside another offset: its committer had read shoal's metadata. The cluster's id says where the
offset was read, since shoal does not send it back.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

from ...client.group_offsets import CommittedValue
from ...client.groups import EMPTY_STATES, GroupType
from ...json_report import as_json
from ...topic_partition import TopicPartition
from ..model.offset_map import Exactness, Translation

__all__ = [
    "Action",
    "Commits",
    "Direction",
    "GroupOffset",
    "GroupReport",
    "GroupsReport",
    "Mark",
    "OffsetProof",
]

_PREFIX = "translated-by-shoal/1 "
_MARK = re.compile(
    re.escape(_PREFIX) + r"(\S+) (\d{1,19}) (\d{1,19}) (exact|ahead|at-least)(?: (.*))?",
    re.DOTALL,
)

#: In place of the id of a cluster before Kafka 0.10.1.
_NO_CLUSTER_ID = "-"


class Mark(NamedTuple):
    """
    The metadata of a translated offset.

    They read ``translated-by-shoal/1 CLUSTER OFFSET TRANSLATION EXACTNESS``, and behind a space follows the
    metadata that the group's consumer committed. If a broker does not allow metadata of this length, the mark
    stands alone.

    Attributes:
        cluster_id: The id of the cluster whose group was read.
        offset: The offset that the group had committed there.
        translation: The offset to which the metadata belongs.
        exactness: How exact the translation is.
        passed_on: The metadata that the group had committed there; empty if the broker refused them.

    """

    cluster_id: str
    offset: int
    translation: int
    exactness: Exactness
    passed_on: str = ""

    @classmethod
    def of(cls, cluster_id: str | None, committed: CommittedValue, translation: Translation) -> Mark:
        """Return the mark of a translation; metadata that is itself a mark is passed on without it."""
        inner = _read(committed.metadata)
        passed_on = committed.metadata if inner is None else inner.passed_on
        return cls(cluster_id or _NO_CLUSTER_ID, committed.offset, *translation, passed_on)

    @classmethod
    def read(cls, committed: CommittedValue, cluster_id: str | None) -> Mark | None:
        """Read the mark of a committed offset; None if shoal did not translate it from this cluster."""
        mark = _read(committed.metadata)
        ours = committed.offset, cluster_id or _NO_CLUSTER_ID
        return mark if mark is not None and (mark.translation, mark.cluster_id) == ours else None

    @property
    def alone(self) -> str:
        """The metadata to commit, without that of the consumer."""
        exactness = self.exactness.value.replace(" ", "-")
        return f"{_PREFIX}{self.cluster_id} {self.offset} {self.translation} {exactness}"

    def to_metadata(self) -> str:
        """Return the metadata to commit, with that of the consumer."""
        return f"{self.alone} {self.passed_on}" if self.passed_on else self.alone

    def was_committed_as(self, found: Mark) -> bool:
        """Whether a commit of this mark leaves the one that was found; a broker may allow it alone only."""
        return found[:4] == self[:4] and found.passed_on in (self.passed_on, "")


@lru_cache(maxsize=100_000)  # an idle group shows the same mark in each round
def _read(metadata: str) -> Mark | None:
    if not metadata.startswith(_PREFIX):
        return None
    match = _MARK.fullmatch(metadata)
    if match is None:
        return None
    cluster_id, offset, translation, exactness, passed_on = match.groups()
    known = Exactness(exactness.replace("-", " "))
    return Mark(cluster_id, int(offset), int(translation), known, passed_on or "")


class Direction(enum.Enum):
    """From which cluster offsets are read. The value is the word in reports."""

    #: From the source to the destination, as the records go.
    FORWARD = "forward"
    #: From the destination back to the source.
    REVERSE = "reverse"


class Action(enum.Enum):
    """The treatment of an offset. The value is the word in tables and reports."""

    #: The translation is to be committed.
    WRITE = "to be committed"
    #: The translation was committed.
    WRITTEN = "committed"
    #: The commit had no answer, or one that does not say whether it was done.
    UNCONFIRMED = "unconfirmed"
    #: The other cluster has it already.
    UNCHANGED = "unchanged"
    #: The group has members at the other cluster.
    ACTIVE = "active there"
    #: Another program committed a later offset at the other cluster.
    FURTHER = "further there"
    #: Shoal brought the offset from the other cluster.
    RETURNED = "came from there"
    #: The partition is not one that the mirror copies.
    NOT_MIRRORED = "not mirrored"
    #: The mirror has no position of the partition.
    NO_POSITION = "no position"
    #: A broker refuses to read or to commit it.
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class OffsetProof:
    """
    The comparison of the next record at both clusters.

    Attributes:
        is_same: Whether a consumer reads the same record next; None if that cannot be seen now.
        detail: A phrase about the two records.

    """

    is_same: bool | None
    detail: str


#: The group and the partition of an offset.
_Place: TypeAlias = tuple[str, TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """
    One committed offset of a group.

    Attributes:
        partition: The partition at the cluster that was read.
        committed: The offset at the cluster that was read.
        action: The treatment of the offset.
        detail: A phrase with the reason, if the action needs one.
        counterpart: The partition at the other cluster; None if it is not mirrored.
        translated: The offset at the other cluster; None without a translation.
        exactness: How exact the translation is.
        present: The offset that the other cluster had; None if it had none.
        lag: How far it is behind the end there; None if that was not asked for.
        proof: The comparison of the next record, if it was asked for.
        begins_late: Whether the other cluster lacks the records from the offset on, and the translation is
            its first record behind them.
        may_pass: Whether the commit may succeed in a later round.
        mark: The metadata to commit with the translation; None if nothing is to be committed.

    """

    group: str
    partition: TopicPartition
    committed: int
    action: Action
    detail: str = ""
    counterpart: TopicPartition | None = None
    translated: int | None = None
    exactness: Exactness | None = None
    present: int | None = None
    lag: int | None = None
    proof: OffsetProof | None = None
    begins_late: bool = False
    may_pass: bool = False
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class GroupReport:
    """
    One group.

    Attributes:
        type: The protocol of its members, at the cluster that was read.
        offsets: Its offsets, by partition.
        problem: The reason why none of its offsets was translated; empty if there is none.
        has_failed: Whether the problem is an error of a broker, and no property of the group.
        may_pass: Whether a later round may do without the problem.
        is_left_out: Whether the problem is that it has no offsets of consumers. Nothing waits for it.

    """

    name: str
    type: GroupType
    state: str
    offsets: Sequence[GroupOffset] = ()
    problem: str = ""
    has_failed: bool = False
    may_pass: bool = False
    is_left_out: bool = False

    @property
    def is_active(self) -> bool:
        """Whether the group has members at the cluster that was read, as far as its state shows."""
        return self.state not in EMPTY_STATES

    @property
    def sentence(self) -> str:
        """The problem, with the group's name."""
        how = "is left out" if self.is_left_out else "does not follow"
        return f"group {self.name!r} {how}: {self.problem}"


@dataclass(frozen=True)
class GroupsReport:
    """
    All groups of a round.

    Attributes:
        direction: From which cluster offsets were read.
        groups: The selected groups, by name.
        warnings: Sentences about groups that the round could not see.
        elapsed_s: How long the round took.
        may_list_more: Whether a broker did not list its groups for a reason that may pass.

    """

    direction: Direction
    groups: Sequence[GroupReport]
    warnings: Sequence[str] = ()
    elapsed_s: float = 0.0
    may_list_more: bool = False

    @property
    def offsets(self) -> Iterator[GroupOffset]:
        """The offsets of all groups."""
        return (each for group in self.groups for each in group.offsets)

    @property
    def to_commit(self) -> dict[_Place, GroupOffset]:
        """The offsets that are to be committed, by group and partition."""
        return {(each.group, each.partition): each for each in self.offsets if each.action is Action.WRITE}

    def count(self, what: Action | Exactness) -> int:
        """Return the number of offsets with this action, or with a translation of this exactness."""
        return self.counts.get(what.value, 0)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """The number of offsets by action and by exactness, those that occur."""
        actions = Counter(each.action for each in self.offsets)
        exactness = Counter(each.exactness for each in self.offsets if each.exactness is not None)
        return {each.value: count for each, count in [*actions.items(), *exactness.items()]}

    @property
    def may_pass(self) -> bool:
        """Whether a later round may do what this one could not."""
        problems = any(each.may_pass for each in self.groups) or any(each.may_pass for each in self.offsets)
        return problems or self.may_list_more

    @property
    def untranslated(self) -> Sequence[GroupReport]:
        """The groups that should follow, and have a problem."""
        return [each for each in self.groups if each.problem and not each.is_left_out]

    @property
    def left_out(self) -> Sequence[GroupReport]:
        """The groups that have no offsets of consumers: mirrors' own, and share groups."""
        return [each for each in self.groups if each.is_left_out]

    def to_json_object(self) -> dict[str, Any]:
        """Return the round as values of JSON, with the names that its attributes have."""
        return {"type": "groups", **as_json(self), "counts": dict(self.counts)}


class Commits:
    """
    The commits of several rounds, by group and partition.

    Attributes:
        done: Those that the other cluster has.
        unconfirmed: Those without an answer. Such a request may still arrive.

    """

    def __init__(self) -> None:
        """Begin without a round."""
        self.done: set[_Place] = set()
        self.unconfirmed: dict[_Place, GroupOffset] = {}

    def see(self, report: GroupsReport) -> GroupsReport:
        """Take the outcome of the next round; return it with the commits of those before it."""
        groups = [replace(each, offsets=tuple(map(self._see, each.offsets))) for each in report.groups]
        return replace(report, groups=groups)

    def _see(self, offset: GroupOffset) -> GroupOffset:
        place, action = (offset.group, offset.partition), offset.action
        is_ours = place in self.done or place in self.unconfirmed
        if action is Action.WRITTEN or (action is Action.UNCHANGED and is_ours):
            self.done.add(place)
            self.unconfirmed.pop(place, None)
            return replace(offset, action=Action.WRITTEN)
        if action is Action.UNCONFIRMED:
            self.unconfirmed[place] = offset
        return replace(offset, action=Action.UNCONFIRMED) if place in self.unconfirmed else offset

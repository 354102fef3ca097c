"""
Where partitions without a position begin: at the start of a run, and those that come later.

With ``--start latest``, all partitions begin at their ends at the first start of a group. The driver commits
these places as marks, before any task copies. At later starts, a partition that is newer than the first start
begins at its beginning. If its age is unknown, it also begins there, unless its topic was not selected
before. Such a topic counts as newer only if its log still begins at offset 0, and no record is older than the
first start.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from ...client.cluster import Cluster
from ...client.coordinator import MemberId
from ...client.offsets import EARLIEST, LATEST, list_offsets
from ...errors import ShoalError
from ...topic_partition import TopicPartition
from ..assignment import start_offsets
from ..model.first_start import FirstStart
from ..model.options import MirrorOptions
from ..model.text import first_few
from ..model.topics import TopicSelection
from ..positions import GroupOffsets, GroupPositions, warning_of_others
from ..prepare.descriptions import warning_of_expiry

__all__ = ["Beginnings", "Starts", "group_warnings"]


@dataclass(frozen=True, slots=True)
class Beginnings:
    """
    The decision where partitions begin.

    Attributes:
        state: The committed offsets of the group.
        first_start: The group's first start, to be stored with positions.
        offsets: The next offset to copy of each partition, unless its leader does not respond.
        marks: Those of partitions without a position that have to be committed.
        sentences: Notices about these partitions.
        refused: The partitions whose start cannot be committed, with the error.

    """

    state: GroupOffsets
    first_start: FirstStart
    offsets: Mapping[TopicPartition, int]
    marks: Mapping[TopicPartition, int]
    sentences: tuple[str, ...] = ()
    refused: Mapping[TopicPartition, ShoalError] = field(default_factory=dict)


class Starts:
    """
    The start offsets of partitions without a position, which a mirror looks up once.

    ``latest`` must not move on, so the offsets are kept. A partition that is created later is mirrored from
    its beginning. So is a topic that was deleted and created again: the old topic's offsets have no meaning
    for it.

    Attributes:
        first_start: The group's first start, as far as it is known.

    """

    def __init__(
        self,
        options: MirrorOptions,
        group: str,
        selection: TopicSelection,
        membership: Callable[[], MemberId] = MemberId,
        *,
        since_ms: int | None = None,
        there: Collection[TopicPartition] | None = None,
    ) -> None:
        """
        Begin without offsets.

        Args:
            selection: The topics that are selected now.
            membership: Returns the member that commits.
            since_ms: A first start of the group from this Unix time in milliseconds on counts as this
                mirror's own. By default now.
            there: The partitions that exist at the start; by default those of the first question.

        """
        self.first_start = FirstStart.now().selecting(selection)
        self._options = options
        self._group = group
        self._selection = selection
        self._membership = membership
        self._since_ms = self.first_start.at_ms if since_ms is None else since_ms
        self._there = None if there is None else frozenset(there)
        self._has_looked = False
        self._offsets: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, uuid.UUID | None] = {}

    def decide(
        self,
        source: Cluster,
        state: GroupOffsets,
        partitions: Sequence[TopicPartition],
        *,
        all_of_them: bool = False,
    ) -> Beginnings:
        """
        Decide the start positions; change nothing.

        Args:
            source: The source cluster, with metadata of the partitions.
            state: All positions of the group.
            partitions: The partitions of this mirror.
            all_of_them: False leaves out partitions whose leader does not respond now.

        """
        there = frozenset(partitions) if self._there is None else self._there
        known = {**state.starts, **{each: known.source_offset for each, known in state.positions.items()}}
        known |= state.others if state.takes_over_offsets else {}
        unknown = [each for each in partitions if each not in known]
        start_ms = self._options.start.timestamp_ms
        is_latest = start_ms == LATEST
        first = there.intersection(unknown)
        if is_latest and not state.is_empty:
            first = frozenset(self._at_their_ends(source, state, unknown, there))
        found = dict[TopicPartition, int]()
        for at, those in ((start_ms, sorted(first)), (EARLIEST, sorted({*unknown} - first))):
            found |= start_offsets(source, those, at, all_of_them=all_of_them)
        return Beginnings(
            state,
            (state.first_start or self.first_start).selecting(self._selection),
            known | found,
            found if is_latest else {},
            self._sentences(state, unknown, first) if is_latest and unknown else (),
        )

    def _at_their_ends(
        self,
        source: Cluster,
        state: GroupOffsets,
        unknown: Sequence[TopicPartition],
        there: Collection[TopicPartition],
    ) -> set[TopicPartition]:
        """Return the partitions that were there at the group's first start."""
        remembered = state.first_start
        if remembered is None:
            return set()  # an older shoal, or a consumer: nothing shows that they were there
        old = [each for each in unknown if each in there]
        if remembered.at_ms >= self._since_ms:
            return set(old)
        topics, known = source.metadata.topics, {each.topic for each in state.partitions}
        unselected = [
            each for each in old if each.topic not in known and not remembered.selected(topics[each.topic])
        ]
        firsts = list_offsets(source, dict.fromkeys(unselected, EARLIEST))
        since = list_offsets(source, dict.fromkeys(unselected, remembered.at_ms))
        return {each for each in unselected if firsts[each] != 0 or since[each] != 0}

    def _sentences(
        self, state: GroupOffsets, unknown: Collection[TopicPartition], at_ends: Collection[TopicPartition]
    ) -> tuple[str, ...]:
        option = "auto.offset.reset=latest" if self._options.takes_over_offsets else "start=latest"
        since = f"first start of group {self._group!r}"
        if state.is_empty:
            return (
                f"{since}: with {option} {len(at_ends)} partitions begin at their ends. Topics and "
                "partitions that are created from now on are mirrored from their beginnings",
            )
        if state.first_start is not None:
            since += f" ({datetime.fromtimestamp(state.first_start.at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC)"
        sentences = []
        if newer := sorted({*unknown}.difference(at_ends)):
            sentences.append(
                f"{first_few(newer)}: newer than the {since}, so mirrored from the beginning ({option} "
                "applies to older ones only)"
            )
        if at_ends:
            sentences.append(
                f"{first_few(sorted(at_ends))}: not selected before, and older than the {since}, so "
                f"mirrored from the end ({option})"
            )
        return tuple(sentences)

    def find(self, source: Cluster, partitions: Sequence[TopicPartition]) -> Beginnings | None:
        """
        Decide and commit the start positions of partitions that are new, before any task copies them.

        Args:
            source: The source cluster, with metadata of the partitions.
            partitions: The partitions to copy.

        Returns:
            The decision about those that are new; None if none are. The first decision is about the group's
            first start, too, and may have no partition.

        Raises:
            ShoalError: A position cannot be read. If the mirror has an end, also if a leader does not
                respond, or a start cannot be committed.

        """
        self._drop_changed(source, partitions)
        new = [each for each in partitions if each not in self._offsets]
        if not new and self._has_looked:
            return None
        takes_over = self._options.takes_over_offsets
        positions = GroupPositions(source, self._group, self._membership, takes_over_offsets=takes_over)
        found = self.decide(source, positions.read_state(), new, all_of_them=self._options.once)
        refused = positions.mark_starts(found.marks, found.first_start)
        for error in refused.values() if self._options.once else ():
            raise error
        self._has_looked, self.first_start = True, found.first_start
        # A position takes precedence; if it is lost later, the task searches from the beginning.
        starts = {**found.offsets, **dict.fromkeys(found.state.positions, 0)}
        self._offsets |= {each: starts[each] for each in new if each in starts and each not in refused}
        return replace(found, refused=refused)

    def _drop_changed(self, source: Cluster, partitions: Sequence[TopicPartition]) -> None:
        """Forget the topics that are gone or replaced."""
        topics = source.metadata.topics
        changed = {
            topic
            for topic, topic_id in self._topic_ids.items()
            if topic not in topics or topics[topic].topic_id != topic_id
        }
        self._offsets = {each: start for each, start in self._offsets.items() if each.topic not in changed}
        there = partitions if self._there is None else self._there
        self._there = frozenset(each for each in there if each.topic not in changed)
        known = {topic: known for topic, known in self._topic_ids.items() if topic not in changed}
        self._topic_ids = known | {each.topic: topics[each.topic].topic_id for each in partitions}

    def __getitem__(self, partition: TopicPartition) -> int:
        return self._offsets[partition]

    def __contains__(self, partition: object) -> bool:
        return partition in self._offsets


def group_warnings(
    source: Cluster, group: str, state: GroupOffsets, partitions: Collection[TopicPartition]
) -> tuple[str, ...]:
    """Return warnings of the committed offsets of a mirror's group."""
    others = {} if state.takes_over_offsets else state.others
    unused = {each: others[each] for each in partitions if each in others}
    found = warning_of_others(group, unused), warning_of_expiry(source.keeper, group)
    return tuple(filter(None, found))

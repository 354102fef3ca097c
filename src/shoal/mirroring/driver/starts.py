"""
Where partitions without a position begin: once for a run's first partitions, and for those that come later.

With ``--start latest``, all partitions begin at their ends at the first start of a group, and the driver
commits these places (:func:`settle_beginnings`). At later starts, a partition that is newer than the first
start begins at its beginning. If its age is unknown, it also begins there, unless its topic was not selected
before. Such a topic counts as newer only if its log still begins at offset 0, and no record is older than the
first start.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ...client.cluster import Cluster, patiently
from ...client.coordinator import MemberId
from ...client.offsets import EARLIEST, LATEST, list_offsets
from ...timing import DEFAULT_TIMING, Timing
from ...topic_partition import TopicPartition
from ..assignment import end_offsets, start_offsets
from ..model.first_start import FirstStart
from ..model.options import MirrorOptions
from ..model.text import first_few
from ..model.topics import TopicSelection
from ..positions import GroupOffsets, GroupPositions, warning_of_others
from ..prepare.expiring_positions import warning_of_expiry

__all__ = ["Beginnings", "Starts", "next_offsets", "read_group", "settle_beginnings"]


@dataclass(frozen=True, slots=True)
class Beginnings:
    """
    The decision about partitions without a position.

    Attributes:
        first_start: The group's first start, to be stored with positions.
        is_first: Whether this is that start. Then a partition whose leader does not respond now begins at
            its end, too.
        offsets: The start offsets of partitions without a position, if their leader responds.
        sentences: Notices about these partitions.

    """

    first_start: FirstStart
    is_first: bool
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()


def find_beginnings(
    source: Cluster,
    group: str,
    state: GroupOffsets,
    selection: TopicSelection,
    partitions: Sequence[TopicPartition],
    *,
    start_ms: int,
    option: str = "start=latest",
    seen_at_start: tuple[int, Collection[TopicPartition]] | None = None,
    timing: Timing = DEFAULT_TIMING,
) -> Beginnings:
    """
    Decide the start positions; change nothing.

    Args:
        source: The source cluster, with metadata of the partitions.
        state: All positions of the group.
        selection: The topics that are selected now.
        partitions: The partitions of this mirror.
        start_ms: ``--start``. Only ``LATEST`` needs a decision.
        option: The option that is set to latest, for notices.
        seen_at_start: If the mirror shares its group, the Unix time in milliseconds of its start, and the
            partitions that existed then. Another member may have made the group's first start since.
        timing: How long after that start others count as the same one.

    """
    remembered = state.first_start
    first_start = (remembered or FirstStart.now()).selecting(selection)
    unknown = [each for each in partitions if not state.has(each)]
    if start_ms != LATEST or not unknown:
        return Beginnings(first_start, state.is_empty)
    if state.is_empty:
        ends = end_offsets(source, unknown, source.config.isolation_level, all_of_them=False)
        what = (
            f"first start of group {group!r}: with {option} {len(unknown)} partitions begin at their ends. "
            "Topics and partitions that are created from now on are mirrored from their beginnings"
        )
        return Beginnings(first_start, True, ends, (what,))
    at_ends = _at_their_ends(source, state, unknown, seen_at_start, timing)
    newer = [each for each in unknown if each not in at_ends]
    level = source.config.isolation_level
    offsets = end_offsets(source, sorted(at_ends), level, all_of_them=False)
    offsets |= start_offsets(source, newer, EARLIEST, level, all_of_them=False)
    since = f"the first start of group {group!r}"
    if remembered is not None:
        since += f" ({datetime.fromtimestamp(remembered.at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC)"
    sentences = []
    if newer:
        sentences.append(
            f"{first_few(sorted(newer))}: newer than {since}, so mirrored from the beginning ({option} "
            "applies to older ones only)"
        )
    if at_ends:
        sentences.append(
            f"{first_few(sorted(at_ends))}: not selected before, and older than {since}, so mirrored from "
            f"the end ({option})"
        )
    return Beginnings(first_start, False, offsets, tuple(sentences))


def settle_beginnings(
    options: MirrorOptions,
    group: str,
    partitions: Sequence[TopicPartition],
    selection: TopicSelection,
    membership: MemberId,
    seen_at_start: tuple[int, Collection[TopicPartition]] | None = None,
    *,
    patience_s: float,
) -> tuple[Beginnings, Mapping[TopicPartition, int]]:
    """
    Decide and commit the start positions of partitions without one, before any task copies them.

    Args:
        group: The mirror's group, which this process is a member of.
        partitions: The partitions of this mirror.
        selection: The topics that are selected now.
        membership: The member that commits.
        seen_at_start: See :func:`find_beginnings`.
        patience_s: How long to retry transient errors.

    Returns:
        The decision, and the ends of these partitions.

    """
    takes_over = options.takes_over_offsets
    with Cluster(options.source) as source:
        positions = GroupPositions(source, group, lambda: membership, takes_over_offsets=takes_over)

        def settle() -> Beginnings:
            source.refresh({each.topic for each in partitions})
            found = find_beginnings(
                source,
                group,
                positions.read_state(),
                selection,
                partitions,
                start_ms=options.start.timestamp_ms,
                option="auto.offset.reset=latest" if takes_over else "start=latest",
                seen_at_start=seen_at_start,
                timing=options.timing,
            )
            positions.mark_starts(found.offsets, found.first_start)
            return found

        found = patiently(settle, patience_s=patience_s)
        level = source.config.isolation_level
        return found, end_offsets(source, list(found.offsets), level, all_of_them=False)


def _at_their_ends(
    source: Cluster,
    state: GroupOffsets,
    unknown: Sequence[TopicPartition],
    seen_at_start: tuple[int, Collection[TopicPartition]] | None,
    timing: Timing,
) -> set[TopicPartition]:
    """Return the partitions that were there at the group's first start."""
    remembered = state.first_start
    if remembered is None:
        return set()  # an older shoal, or a consumer: nothing shows that they were there
    found = set()
    if seen_at_start is not None and remembered.at_ms >= seen_at_start[0] - timing.one_start_ms:
        found = set(unknown) & set(seen_at_start[1])
    topics = source.metadata.topics
    known = {each.topic for each in state.partitions}
    unselected = [
        each
        for each in unknown
        if each not in found and each.topic not in known and not remembered.selected(topics[each.topic])
    ]
    return found | _older_than(source, unselected, remembered.at_ms)


def _older_than(source: Cluster, partitions: Sequence[TopicPartition], at_ms: int) -> set[TopicPartition]:
    """Return the partitions that may have records from before a time."""
    firsts = list_offsets(source, dict.fromkeys(partitions, EARLIEST))
    since = list_offsets(source, dict.fromkeys(partitions, at_ms))
    return {each for each in partitions if firsts[each] != 0 or since[each] != 0}


def read_group(
    source: Cluster, group: str, partitions: Collection[TopicPartition], *, patience_s: float
) -> tuple[GroupOffsets, tuple[str, ...]]:
    """
    Return the committed offsets of a mirror's group, and warnings about them.

    Args:
        source: The source cluster.
        partitions: The partitions of the mirror.
        patience_s: How long to retry transient errors.

    """
    state = patiently(GroupPositions(source, group, MemberId).read_state, patience_s=patience_s)
    others = {each: offset for each, offset in state.others.items() if each in set(partitions)}
    expiry = patiently(lambda: warning_of_expiry(source.keeper, group), patience_s=patience_s)
    return state, tuple(filter(None, (warning_of_others(group, others), expiry)))


def next_offsets(
    options: MirrorOptions,
    source: Cluster,
    group: str,
    state: GroupOffsets,
    partitions: Sequence[TopicPartition],
    at_cut: Mapping[TopicPartition, int],
    *,
    all_of_them: bool = True,
) -> tuple[Mapping[TopicPartition, int], Beginnings]:
    """
    Return the next offset to copy of each partition, and the decision about those without a position.

    Args:
        source: The source cluster, with metadata of the partitions.
        state: The committed offsets of the group.
        partitions: The partitions of the mirror.
        at_cut: Those that begin at the cut of a certificate.
        all_of_them: False leaves out partitions whose leader does not respond now.

    """
    start_ms = options.start.timestamp_ms
    unknown = [each for each in partitions if each not in at_cut]
    found = find_beginnings(source, group, state, options.topics, unknown, start_ms=start_ms)
    known = {
        **state.starts,
        **found.offsets,
        **{each: position.source_offset for each, position in state.positions.items()},
        **at_cut,
    }
    rest = [each for each in partitions if each not in known]
    level = source.config.isolation_level
    return known | start_offsets(source, rest, start_ms, level, all_of_them=all_of_them), found


class Starts:
    """
    The start offsets of partitions without a position, which a mirror looks up once.

    ``latest`` must not move on, so the offsets are kept. A partition that is created later is mirrored from
    its beginning. So is a topic that was deleted and created again: the old topic's offsets have no meaning
    for it.

    """

    def __init__(
        self,
        options: MirrorOptions,
        group: str,
        *,
        is_first_start: bool,
        there: Collection[TopicPartition] | None = None,
    ) -> None:
        """
        Begin without offsets.

        Args:
            is_first_start: Whether this run is the group's first: ``--start latest`` then holds for each
                partition.
            there: The partitions that exist at the start; by default those of the first look.

        """
        self._group = group
        self._once = options.once
        self._takes_over_offsets = options.takes_over_offsets
        # The other partitions have a position. If a partition's leader did not respond at the first start, it
        # must not skip records.
        is_settled = options.start.timestamp_ms == LATEST and not is_first_start
        self._begin_at = EARLIEST if is_settled else options.start.timestamp_ms
        self._offsets: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, uuid.UUID | None] = {}
        self._there = None if there is None else frozenset(there)

    def find(self, source: Cluster, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """
        Find the start offsets of partitions without a known one; return the positions of those that have one.

        Args:
            source: The source cluster, with metadata of the partitions.
            partitions: The partitions to read.

        """
        self._drop_changed(source, partitions)
        unknown = [each for each in partitions if each not in self._offsets]
        if not unknown:
            return {}
        state = GroupPositions(source, self._group, MemberId).read_state(unknown)
        # A position takes precedence; if it is lost later, the task searches from the beginning.
        self._offsets |= dict.fromkeys(state.positions, 0) | dict(state.starts)
        if self._takes_over_offsets:
            self._offsets |= state.others
        without = [each for each in unknown if each not in self._offsets]
        there = self._there or frozenset()
        for begin_at, is_there in ((self._begin_at, True), (EARLIEST, False)):
            of_time = [each for each in without if (each in there) is is_there]
            level = source.config.isolation_level
            self._offsets |= start_offsets(source, of_time, begin_at, level, all_of_them=self._once)
        return {partition: position.source_offset for partition, position in state.positions.items()}

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
        self._topic_ids = {topic: topics[topic].topic_id for topic in {each.topic for each in partitions}}

    def __getitem__(self, partition: TopicPartition) -> int:
        return self._offsets[partition]

    def __contains__(self, partition: object) -> bool:
        return partition in self._offsets

"""
Start positions of partitions without one, with ``--start latest``; decided when a mirror starts.

At the first start of a group all partitions begin at their ends. At later starts, a partition that is newer
than the first start begins at its beginning. If its age is unknown, it also begins there, unless its topic
was not selected before. Such a topic counts as newer only if its log still begins at offset 0, and no record
is older than the first start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ...client.cluster import Cluster
from ...client.offsets import EARLIEST, LATEST, list_offsets
from ...topic_partition import TopicPartition
from ..assignment import end_offsets, start_offsets
from ..model.first_start import FirstStart
from ..model.text import first_few
from ..model.topics import TopicSelection
from ..positions import GroupOffsets

__all__ = ["Beginnings", "find_beginnings"]

#: Members of a group that start within this time count as one start: each marks only its own partitions,
#: and another member may have marked its own first. It also covers the difference of their clocks.
ONE_START_MS = 60_000


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
    at_ends = _at_their_ends(source, state, unknown, seen_at_start)
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


def _at_their_ends(
    source: Cluster,
    state: GroupOffsets,
    unknown: Sequence[TopicPartition],
    seen_at_start: tuple[int, Collection[TopicPartition]] | None,
) -> set[TopicPartition]:
    """Return the partitions that were there at the group's first start."""
    remembered = state.first_start
    if remembered is None:
        return set()  # an older shoal, or a consumer: nothing shows that they were there
    found = set()
    if seen_at_start is not None and remembered.at_ms >= seen_at_start[0] - ONE_START_MS:
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

"""
The rules about one committed offset of a group, without any I/O.

In this order:

1. An offset that shoal itself brought from the other cluster is not sent back, unless it has expired there.
2. A partition without a copy, or a copy without a position, has no translation.
3. If the other cluster has the same offset already, nothing is done.
4. A group with members there is left alone: its consumers commit what they have read.
5. An offset that an open transaction there changes is left alone. Its end would keep the later commit, not
   the later offset (OffsetMetadataManager.replayEndTransactionMarker).
6. An offset without shoal's mark is never moved backwards: a consumer or an operator committed it.
7. Otherwise the translation is committed. A marked offset follows in both directions, since an operator may
   reset the group.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from ...client.group_offsets import CommittedValue
from ..model.offset_map import Exactness, OffsetMap, Stretch, Taken, TakenOffsets, Translation
from .mark import Mark

__all__ = [
    "UNREAD",
    "Action",
    "ClusterIds",
    "Direction",
    "OffsetDecision",
    "decide_offset",
    "further_from",
    "had_incident",
]


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


class OffsetDecision(NamedTuple):
    """
    The outcome of the rules for one partition.

    Attributes:
        action: The treatment of the offset.
        translation: The offset of the other cluster.
        mark: The metadata to commit, if the action is WRITE.
        is_clamped: Whether the other cluster has deleted the records of the translation.

    """

    action: Action
    translation: Translation
    mark: Mark | None = None
    is_clamped: bool = False


class ClusterIds(NamedTuple):
    """The ids of the cluster that is read and of the one that is written to; None if one has no id."""

    read: str | None
    written: str | None


class _Unread:
    """A source that nothing is read of: only arithmetic translates."""

    def count(self, first: int, end: int) -> TakenOffsets | None:
        return None

    def nth(self, first: int, number: int) -> int:
        raise IndexError(number)


UNREAD: Taken = _Unread()

_INCIDENTS = frozenset({Stretch.BROKEN, Stretch.REPEATED})


def further_from(
    mark: Mark | None, cluster_id: str | None, offset: int, taken: Taken, *, log_start: int = 0
) -> Translation | None:
    """
    Return the exact translation of an offset, counted from that of an earlier round.

    A group that reads old records moves between milestones that are far apart. From its own last offset on
    there is less to count.

    Args:
        mark: The mark of the other cluster's offset; None if it has none.
        cluster_id: The id of the cluster that is read.
        offset: The group's offset there.
        taken: Which source offsets a copy would take.
        log_start: The first offset at the other cluster. Older versions of shoal marked an offset as exact
            that they had moved to it, so nothing is counted from such a place.

    Returns:
        The translation, or None if the mark is of no use. Only right for a copy without an incident.

    Raises:
        ShoalError: The source does not respond.

    """
    if mark is None or not mark.is_from(cluster_id) or mark.exactness is not Exactness.EXACT:
        return None
    if offset <= mark.offset or mark.translation <= log_start:
        return None
    counted = taken.count(mark.offset, offset)
    if counted is None or not counted.is_complete:
        return None
    return Translation(mark.translation + counted.count, Exactness.EXACT)


def decide_offset(
    committed: CommittedValue,
    translation: Translation,
    present: CommittedValue | None,
    clusters: ClusterIds,
    *,
    is_active: bool,
    log_start: int = 0,
    begins_late: bool = False,
    had_incident: bool = True,
) -> OffsetDecision:
    """
    Apply the rules from the third on; the first two need no translation.

    Args:
        committed: The group's offset at the cluster that is read.
        present: The group's offset at the other cluster, or an error instead of it; None if it has none.
        clusters: The ids of both.
        is_active: Whether the group has members at the other cluster.
        log_start: The first offset of the partition at the other cluster. A consumer that begins before it
            would be reset by its own policy, perhaps to the end.
        begins_late: Whether the copy begins behind the offset.
        had_incident: Whether the partition ever had one; see :func:`had_incident`.

    """
    theirs = Mark.read(present) if present is not None else None
    ours = theirs if theirs is not None and theirs.is_from(clusters.read) else None
    if present is not None and ours is not None and not had_incident:
        translation = _kept(translation, committed, present, ours)
    clamped = translation.offset < log_start
    if clamped:
        translation = translation._replace(offset=log_start)
    # No later round may count on from a place that is not this offset's own.
    marked = translation._replace(exactness=Exactness.AT_LEAST) if clamped or begins_late else translation
    mark = Mark.of(clusters.read, committed, marked)
    is_there = present is not None and present.offset == translation.offset
    if is_there and (ours is None or mark.was_committed_as(ours)):
        return OffsetDecision(Action.UNCHANGED, translation, None, clamped)
    if is_active:
        return OffsetDecision(Action.ACTIVE, translation, None, clamped)
    if present is not None and present.error_code:
        return OffsetDecision(Action.REFUSED, translation, None, clamped)
    if present is not None and ours is None and present.offset > translation.offset:
        return OffsetDecision(Action.FURTHER, translation, None, clamped)
    return OffsetDecision(Action.WRITE, translation, mark, clamped)


def _kept(
    translation: Translation, committed: CommittedValue, present: CommittedValue, ours: Mark
) -> Translation:
    """
    Return the exact translation of an earlier round if this one only has a lower bound.

    Records are deleted and milestones are thinned while a group is idle. Without an incident no offset has
    changed its translation.
    """
    is_same = ours.offset == committed.offset and ours.exactness is Exactness.EXACT
    if translation.exactness is Exactness.AT_LEAST and is_same and present.offset >= translation.offset:
        return Translation(present.offset, Exactness.EXACT)
    return translation


def had_incident(offsets: OffsetMap) -> bool:
    """Whether a map knows of an incident, or does not know its beginning any more."""
    return not offsets.is_whole or any(each.stretch in _INCIDENTS for each in offsets.milestones)

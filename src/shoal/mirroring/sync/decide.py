"""
The treatment of one committed offset of a group: a pure function of what both clusters show.

In this order:

1. A partition without a copy, or a copy without a position, has no translation.
2. An offset that shoal itself brought from the other cluster is not sent back, unless it has expired there.
3. If the other cluster has the same offset already, nothing is done.
4. A group with members there is left alone: its consumers commit what they have read.
5. An offset that an open transaction there changes is left alone. Its end would keep the later commit, not
   the later offset (OffsetMetadataManager.replayEndTransactionMarker).
6. An offset without shoal's mark is never moved backwards: a consumer or an operator committed it.
7. Otherwise the translation is committed. A marked offset follows in both directions, since an operator may
   reset the group.
"""

from __future__ import annotations

from typing import NamedTuple

from ...client.group_offsets import CommittedValue
from ...error_codes import ErrorCode, named_code
from ...errors import ShoalError
from ...topic_partition import TopicPartition
from ..model.offset_map import Exactness, Translation
from .commit import UNSTABLE_THERE
from .copies import MirroredCopy
from .report import Action, Direction, GroupOffset, Mark

__all__ = ["Seen", "Sides", "decide"]

_UNSTABLE = "an open transaction commits another offset. Repeat the command when it has ended"


class Sides(NamedTuple):
    """
    The cluster that is read, and the one that is written to.

    Attributes:
        read_id: The id of the cluster that is read; None if it has none.
        written: The name of the other one.

    """

    direction: Direction
    read_id: str | None
    written: str


class Seen(NamedTuple):
    """
    One committed offset of a group, as both clusters show it.

    Attributes:
        partition: The partition at the cluster that is read.
        committed: The group's offset there, or an error instead of it.
        there: The same of the other cluster; None if it has none.
        copy: The copy; or a phrase: why it has no translation. None if the mirror does not copy the topic.
        is_active: Whether the group has members at the other cluster.
        lag: How far the offset is behind the end; None if that was not asked for.
        log_start: The first offset at the other cluster. A consumer that begins before it would be reset by
            its own policy, perhaps to the end.
        returned: The mark of an offset that shoal brought from the other cluster; else None.

    """

    group: str
    partition: TopicPartition
    committed: CommittedValue
    there: CommittedValue | None
    copy: MirroredCopy | str | None
    is_active: bool = False
    lag: int | None = None
    log_start: int = 0
    returned: Mark | None = None

    @property
    def is_translated(self) -> bool:
        """Whether the treatment of the offset needs its translation."""
        is_copied = isinstance(self.copy, MirroredCopy)
        return is_copied and not self.committed.error_code and self.returned is None

    def ours(self, sides: Sides) -> Mark | None:
        """Return the mark of the other cluster's offset if shoal translated it from this one; else None."""
        mark = None if self.there is None else Mark.read(self.there)
        return mark if mark is not None and mark.is_from(sides.read_id) else None

    def kept(self, translation: Translation, sides: Sides) -> Translation | None:
        """
        Return the exact translation of an earlier round if this one only has a lower bound; else None.

        Records are deleted and milestones are thinned while a group is idle. Without an incident no offset
        has changed its translation.
        """
        if translation.exactness is not Exactness.AT_LEAST:
            return None
        if isinstance(self.copy, MirroredCopy) and self.copy.had_incident:
            return None
        ours = self.ours(sides)
        if ours is None or ours.offset != self.committed.offset or ours.exactness is not Exactness.EXACT:
            return None
        is_kept = ours.translation >= translation.offset
        return Translation(ours.translation, Exactness.EXACT) if is_kept else None


def decide(seen: Seen, translation: Translation | ShoalError | None, sides: Sides) -> GroupOffset:
    """
    Decide about an offset.

    Args:
        translation: Its translation, or an error instead of it; None if it needs none.
        sides: Both clusters.

    """
    committed, there, copy = seen.committed, seen.there, seen.copy
    if copy is None:
        return _untranslated(seen, Action.NOT_MIRRORED)
    if committed.error_code:
        detail = _UNSTABLE if _is_unstable(committed) else _unreadable(committed)
        return _untranslated(seen, Action.REFUSED, detail)
    if seen.returned is not None and there is not None:
        return _untranslated(seen, Action.RETURNED)
    if isinstance(copy, str):
        return _untranslated(seen, Action.NO_POSITION, copy)
    if isinstance(translation, ShoalError):
        return _untranslated(seen, Action.REFUSED, str(translation))
    if seen.returned is not None:
        # The other cluster has lost the offset that this one was translated from: it gets that again.
        translation = Translation(seen.returned.offset, Exactness.EXACT)
    assert translation is not None
    return _translated(seen, copy, translation, sides)


def _translated(seen: Seen, copy: MirroredCopy, translation: Translation, sides: Sides) -> GroupOffset:
    there, ours = seen.there, seen.ours(sides)
    translation = seen.kept(translation, sides) or translation
    began = copy.begins_behind(seen.committed.offset) if sides.direction is Direction.FORWARD else None
    detail = "" if began is None else f"the copy begins at source offset {began}"
    begins_late = began is not None
    if translation.offset < seen.log_start:
        translation = translation._replace(offset=seen.log_start)
        begins_late, detail = True, f"{sides.written} has deleted earlier records"
    # A mark that says exact is one of the offset's own place.
    marked = translation._replace(exactness=Exactness.AT_LEAST) if begins_late else translation
    mark = Mark.of(sides.read_id, seen.committed, marked)
    action = _action(seen, translation, mark, ours)
    if there is not None and action is Action.REFUSED:
        detail = UNSTABLE_THERE if _is_unstable(there) else _unreadable(there)
    present = None if there is None or there.error_code else there.offset
    return GroupOffset(
        seen.group,
        seen.partition,
        seen.committed.offset,
        action,
        detail,
        copy.counterpart(sides.direction),
        *translation,
        present,
        seen.lag,
        begins_late=begins_late,
        mark=mark if action is Action.WRITE else None,
    )


def _action(seen: Seen, translation: Translation, mark: Mark, ours: Mark | None) -> Action:
    there = seen.there
    is_there = there is not None and there.offset == translation.offset
    if is_there and (ours is None or mark.was_committed_as(ours)):
        return Action.UNCHANGED
    if seen.is_active:
        return Action.ACTIVE
    if there is not None and there.error_code:
        return Action.REFUSED
    if there is not None and ours is None and there.offset > translation.offset:
        return Action.FURTHER
    return Action.WRITE


def _untranslated(seen: Seen, action: Action, detail: str = "") -> GroupOffset:
    return GroupOffset(seen.group, seen.partition, seen.committed.offset, action, detail, lag=seen.lag)


def _is_unstable(value: CommittedValue) -> bool:
    return value.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT


def _unreadable(value: CommittedValue) -> str:
    return f"a broker refuses to show the offset: {named_code(value.error_code)}"

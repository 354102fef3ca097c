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
from .report import Action, GroupOffset, Mark
from .translations import Asked, MirroredCopy

__all__ = ["Seen", "decide"]

_UNSTABLE = "an open transaction commits another offset. Repeat the command when it has ended"


class Seen(NamedTuple):
    """
    One committed offset of a group, as both clusters show it.

    Attributes:
        partition: The partition at the cluster that is read.
        counterpart: The partition at the other cluster, if the mirror copies the topic.
        committed: The group's offset there, or an error instead of it.
        there: The same of the other cluster; None if it has none.
        copy: The copy; or a phrase: why it has no translation. None if the mirror does not copy the topic.
        asked: The question about its translation; None if its treatment needs none.
        is_active: Whether the group has members at the other cluster.
        lag: How far the offset is behind the end; None if that was not asked for.
        log_start: The first offset at the other cluster. A consumer that begins before it would be reset by
            its own policy, perhaps to the end.
        began: The source offset at which the mirror began, if the offset lies before it.
        returned: The mark of an offset that shoal brought from the other cluster; else None.
        ours: The mark of the other cluster's offset if shoal translated it from this one; else None.

    """

    group: str
    partition: TopicPartition
    counterpart: TopicPartition
    committed: CommittedValue
    there: CommittedValue | None
    copy: MirroredCopy | str | None
    asked: Asked | None = None
    is_active: bool = False
    lag: int | None = None
    log_start: int = 0
    began: int | None = None
    returned: Mark | None = None
    ours: Mark | None = None

    @property
    def is_open(self) -> bool:
        """Whether the map has a lower bound alone, and no earlier round had an exact translation."""
        found = self.asked and self.asked.translation
        return found is not None and self.kept(found).exactness is Exactness.AT_LEAST

    def kept(self, translation: Translation) -> Translation:
        """
        Return a translation, or the exact one of another round instead of a lower bound, or of one ahead.

        Records are deleted and milestones are thinned while a group is idle, and another round may have read
        a later position of the mirror. Without an incident no offset has changed its translation.
        """
        ours = self.ours
        if (
            translation.exactness is not Exactness.EXACT
            and not (isinstance(self.copy, MirroredCopy) and self.copy.had_incident)
            and ours is not None
            and (ours.offset, ours.exactness) == (self.committed.offset, Exactness.EXACT)
            and ours.translation >= translation.offset
        ):
            return Translation(ours.translation, Exactness.EXACT)
        return translation


def decide(
    seen: Seen, translation: Translation | ShoalError | None, read_id: str | None, written: str
) -> GroupOffset:
    """
    Decide about an offset.

    Args:
        translation: Its translation, or an error instead of it; None if it needs none.
        read_id: The id of the cluster that is read; None if it has none.
        written: The name of the other one.

    """
    if seen.copy is None:
        return _untranslated(seen, Action.NOT_MIRRORED)
    if seen.committed.error_code:
        return _untranslated(seen, Action.REFUSED, _unreadable(seen.committed, _UNSTABLE))
    if seen.returned is not None and seen.there is not None:
        return _untranslated(seen, Action.RETURNED)
    if isinstance(seen.copy, str):
        return _untranslated(seen, Action.NO_POSITION, seen.copy)
    if isinstance(translation, ShoalError):
        return _untranslated(seen, Action.REFUSED, str(translation))
    if seen.returned is not None:
        # The other cluster has lost the offset that this one was translated from: it gets that again.
        translation = Translation(seen.returned.offset, Exactness.EXACT)
    assert translation is not None
    return _translated(seen, seen.kept(translation), read_id, written)


def _translated(seen: Seen, translation: Translation, read_id: str | None, written: str) -> GroupOffset:
    there = seen.there
    detail = "" if seen.began is None else f"the copy begins at source offset {seen.began}"
    if translation.offset < seen.log_start:
        translation = translation._replace(offset=seen.log_start)
        detail = f"{written} has deleted earlier records"
    begins_late = bool(detail)
    # A mark that says exact is one of the offset's own place.
    marked = translation._replace(exactness=Exactness.AT_LEAST) if begins_late else translation
    mark = Mark.of(read_id, seen.committed, marked)
    action = _action(seen, translation, mark)
    if there is not None and action is Action.REFUSED:
        detail = _unreadable(there, UNSTABLE_THERE)
    return GroupOffset(
        seen.group,
        seen.partition,
        seen.committed.offset,
        action,
        detail,
        seen.counterpart,
        *translation,
        None if there is None or there.error_code else there.offset,
        seen.lag,
        begins_late=begins_late,
        mark=mark if action is Action.WRITE else None,
    )


def _action(seen: Seen, translation: Translation, mark: Mark) -> Action:
    there, ours = seen.there, seen.ours
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


def _unreadable(value: CommittedValue, unstable: str) -> str:
    """Return why an offset cannot be read; ``unstable`` if an open transaction would change it."""
    if value.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
        return unstable
    return f"a broker refuses to show the offset: {named_code(value.error_code)}"

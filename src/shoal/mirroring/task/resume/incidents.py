"""
An incident that an alignment finds, as a value: its sentence, and where the partition continues.

To continue is one entry of the map: from the copy's end on, the source offset at which the mirror continues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...model.incidents import IncidentKind
from ...model.offset_map import OffsetMap, Stretch
from ...model.position import MirrorPosition
from ...model.text import offsets
from .logs import PartitionLogs

__all__ = ["Continued", "Incident", "continued"]


class Continued(NamedTuple):
    """
    The state behind an incident.

    Attributes:
        position: The position to go on from.
        lost: See :class:`~shoal.mirroring.model.incidents.Incident`.
        range_end: The end of the range by the source's present log, if that is another one; else None.

    """

    position: MirrorPosition
    lost: int | None = 0
    range_end: int | None = None


@dataclass(frozen=True, slots=True)
class Incident:
    """
    An incident that the logs show, and that the partition has not met yet.

    Attributes:
        reason: The finding, as a sentence without its full stop.
        advice: The remedy if the partition stops.
        go_on: Returns where the partition continues; raises PartitionStopped if nothing shows that.
        unmirrored_from: The first source offset whose record is missing at the destination; None: the
            position's.

    """

    kind: IncidentKind
    reason: str
    advice: str
    go_on: Callable[[], Continued]
    unmirrored_from: int | None = None

    def meet(self, logs: PartitionLogs, source_offset: int) -> Continued:
        """
        Continue after it, if its policy allows that, and report it.

        Args:
            logs: Both logs.
            source_offset: The source offset of the position at which it is met.

        Raises:
            PartitionStopped: The policy is to stop.

        """
        logs.clusters.expect_same_topics(logs.copy)
        logs.copy.meet(
            self.kind, self.reason, self.advice, offset=source_offset, unmirrored_from=self.unmirrored_from
        )
        found = self.go_on()
        again = ""
        if self.kind is IncidentKind.DESTINATION_LOSS and found.position.source_offset < source_offset:
            copied = offsets(found.position.source_offset, source_offset - 1)
            again = f", and the mirror copies source {copied} again"
        logs.copy.report_continued(self.kind, self.reason + again, found.lost)
        return found


def continued(
    logs: PartitionLogs,
    position: MirrorPosition,
    source_offset: int,
    kept: OffsetMap | None = None,
    **changes: Any,
) -> MirrorPosition:
    """Let the map lead from the copy's end to a source offset, whatever lies before it."""
    end = logs.end
    unaccounted = Stretch.REPEATED if logs.may_have_other_writers(position) else Stretch.BROKEN
    anew: dict[str, Any] = {
        "source_offset": source_offset,
        "source_leader_epoch": -1,
        "destination_offset": end,
        "begin": end,
        "plan": (),
        "milestones": (kept or position.offsets).reached(source_offset, end, unaccounted),
    }
    return replace(position, **anew | changes)

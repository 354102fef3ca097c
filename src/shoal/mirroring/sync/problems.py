"""Why the offsets of a group are not translated."""

from __future__ import annotations

from dataclasses import replace

from ...client.cluster import is_transient
from ...client.committed_offsets import Committed
from ...client.group_offsets import CommittedValue, FetchedGroup
from ...client.groups import GroupType, ListedGroup
from ...errors import ShoalError
from ..model.first_start import is_start_mark, read_first_start
from ..model.position import is_position
from .report import GroupReport

__all__ = ["report_of"]


def report_of(
    here: ListedGroup,
    offsets: FetchedGroup | ShoalError | None,
    written: str,
    there: ListedGroup | None = None,
    present: FetchedGroup | ShoalError | None = None,
) -> GroupReport:
    """
    Return a group without its offsets, and the reason if none of them is translated.

    Args:
        here: The group at the cluster whose offsets are read.
        offsets: Its offsets there; None if groups of its type commit none.
        written: The name of the other cluster.
        there: The group of this name at the other cluster; None without one.
        present: Its offsets there; None without the group.

    """
    report = GroupReport(here.name, here.type, here.state)
    problem, is_left_out = _problem_of(here, offsets, there, written)
    if is_left_out:
        return replace(report, problem=problem, is_left_out=True)
    for answer in (offsets, present):
        if isinstance(answer, ShoalError):
            return replace(report, problem=str(answer), has_failed=True, may_pass=is_transient(answer))
    return replace(report, problem=problem)


def _problem_of(
    here: ListedGroup, offsets: FetchedGroup | ShoalError | None, there: ListedGroup | None, written: str
) -> tuple[str, bool]:
    """Return the reason why no offset of a group is translated, and whether it has none of consumers."""
    if here.type is GroupType.SHARE:
        return "a share group has no committed offsets. There it begins by share.auto.offset.reset", True
    if offsets is None:
        return f"the offsets of {here.type.value} groups are not translated", False
    if isinstance(offsets, FetchedGroup):
        every = (each for topic in offsets.topics.values() for each in topic.values() if each.offset >= 0)
        are_positions = set(map(_is_of_a_mirror, every))
        if are_positions == {True}:
            return "its offsets are the positions of a mirror", True
        if True in are_positions:
            return "some of its offsets are the positions of a mirror", False
    if there is not None and not there.commits_offsets:
        kind = there.protocol_type if there.type is GroupType.CLASSIC else there.type.value
        return f"a {kind} group on {written} has this name. Rename one of them", False
    return "", False


def _is_of_a_mirror(value: CommittedValue) -> bool:
    """Whether an offset is a mirror's position, or the start mark of a partition without one."""
    committed = Committed(value.offset, value.metadata)
    is_mark = is_start_mark(committed) and read_first_start(committed) is not None
    return is_mark or is_position(value.metadata)

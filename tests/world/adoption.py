"""Refusals to take over a copy, judged: ``--adopt`` refuses no copy that is faithful."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .contents import places_in
from .judge import judge_of
from .sentences import NO_POSITION, UNFAITHFUL

if TYPE_CHECKING:
    from .tasks import TaskWorld

__all__ = ["ADOPT", "needless_refusal"]

#: The option, which each stop for want of a position names.
ADOPT = "--adopt"

#: The same if the comparison cannot end: a broker does not have an offset any more that it just named, or a
#: batch expands too far.
_CANNOT_COMPARE = ("a second try ended the same", "twice in a row", "maximum size of a decompressed batch")


def needless_refusal(world: TaskWorld, number: int, reason: str) -> str | None:
    """Return what is wrong with a stop for want of a position; None if the copy, or an event, explains it."""
    if NO_POSITION in reason and number in world.began_with - world.unaligned:
        return "it has a position"
    is_about_copy = any(each in reason for each in UNFAITHFUL)
    if not is_about_copy or any(each in reason for each in _CANNOT_COMPARE):
        return None
    # A Kafka of today would rather name no offset than show less than it has (KIP-207).
    before = None if number in world.lagging else _records_before(world, number)
    if before is None:
        return None
    if before == 0:
        return "the copy has all that the source has, up to its end"
    deleted = world.copy_log(number).log_start_offset
    if before <= deleted and "too few" not in reason:
        return f"the copy lacks {before} records at its beginning, and deleted {deleted}"
    return None


def _records_before(world: TaskWorld, number: int) -> int | None:
    """
    Return how many records the source has before a faithful copy's first one.

    None if the copy is not faithful: a record of it is another's, or out of place, or lacks before others.
    """
    partition = world.partitions[number]
    if world.are_same or world.level_has_changed or partition.is_damaged:
        return None
    judge = judge_of(world)
    copy = [judge.seen(content) for _, content in places_in(world.copy_log(number))]
    source = [
        judge.seen(each.content)
        for each in partition.of_this_topic
        if each.is_there and (each.is_shown or not world.reads_committed)
    ]
    if not copy or copy[0] not in source:
        return None
    begins = source.index(copy[0])
    return begins if source[begins : begins + len(copy)] == copy else None

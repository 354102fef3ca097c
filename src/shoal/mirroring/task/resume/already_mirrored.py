"""Whether the end of a copy is already all that a changed source has now, or its first part."""

from __future__ import annotations

from ...model.position import MirrorPosition
from .follow import count_records
from .places import Places
from .search import SourcePlace, find
from .tail import Tail, holds_at, last_batch

__all__ = ["place_behind_already_mirrored"]


def place_behind_already_mirrored(
    places: Places, position: MirrorPosition, start_offset: int
) -> SourcePlace | None:
    """
    Return the place behind the source's first records, if the records written past a position end with them.

    Another group of this topic may have mirrored them, or this one, if its position is an older one than its
    last. One batch that is the same could be an accident: a topic that was deleted is often filled again
    with records that it had before. So the first of them has to be there, too, so many records before.

    Args:
        position: The position; only records behind it count.
        start_offset: The offset at which the mirror would resume otherwise.

    """
    logs = places.logs
    written = logs.log.end - position.destination_offset
    if logs.settings.allows_other_writers or written <= 0:
        return None
    tail = last_batch(logs)
    found = find(logs, tail).places if tail else ()
    if len(found) != 1 or found[0].source_offset <= start_offset:
        return None
    size = count_records(logs, start_offset, found[0].source_offset)
    if not 0 < size <= written or not _begins_at(places, start_offset, logs.log.end - size):
        return None
    return found[0]


def _begins_at(places: Places, source_offset: int, destination_offset: int) -> bool:
    """Whether the destination has the batch of the source there that comes first from an offset on."""
    logs = places.logs
    batch = holds_at(logs, destination_offset)
    if batch is None or batch.header.base_offset != destination_offset:
        return False
    size = batch.header.last_offset_delta + 1
    first = Tail.of(batch, logs.settings)
    return any(
        count_records(logs, source_offset, each.source_offset) == size
        for each in find(logs, first).places
        if each.source_offset > source_offset
    )

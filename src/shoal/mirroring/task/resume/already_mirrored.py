"""Whether the end of a copy is already all that a changed source has now, or its first part."""

from __future__ import annotations

from ...model.incidents import Delivery
from ...model.position import MirrorPosition
from .places import Places
from .tail import Place, Tail, count_records, find, holds_at, last_batch

__all__ = ["place_behind_already_mirrored"]


def place_behind_already_mirrored(places: Places, pair: MirrorPosition, start_offset: int) -> Place | None:
    """
    Return where the source goes on if what was written past a pair ends with the source's first records.

    Another group of this topic may have mirrored them, or this one, if its position is an older one than its
    last. One batch that is the same could be an accident: a topic that was deleted is often filled again
    with records that it had before. So the first of them has to be there, too, so many records before.

    Args:
        places: The partition's logs.
        pair: What was written past it counts.
        start_offset: The source's first record that the mirror goes on with.

    """
    clusters, copy, log = places.clusters, places.copy, places.log
    written = log.end - pair.destination_offset
    if clusters.settings.delivery is Delivery.AT_LEAST_ONCE or written <= 0:
        return None
    tail = last_batch(clusters, copy, log)
    found = find(clusters, copy, tail).places if tail else ()
    if len(found) != 1 or found[0].source_offset <= start_offset:
        return None
    size = count_records(clusters, copy, start_offset, found[0].source_offset)
    if not 0 < size <= written or not _begins_at(places, start_offset, log.end - size):
        return None
    return found[0]


def _begins_at(places: Places, source_offset: int, destination_offset: int) -> bool:
    """Whether the destination has the batch of the source there that comes first from an offset on."""
    clusters, copy = places.clusters, places.copy
    batch = holds_at(clusters, copy, places.log, destination_offset)
    if batch is None or batch.header.base_offset != destination_offset:
        return False
    size = batch.header.last_offset_delta + 1
    first = Tail.of(batch, clusters.settings.max_decompressed_bytes)
    return any(
        count_records(clusters, copy, source_offset, each.source_offset) == size
        for each in find(clusters, copy, first).places
        if each.source_offset > source_offset
    )

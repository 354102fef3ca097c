"""
Whether records of another program behind a position are copies of the source's records there.

Another mirror's position may be gone. The source may have been compacted since, so that its records are no
longer the ones that follow the position. To resume behind the foreign records would copy the source's again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from ....errors import CorruptBatch, UnsupportedBatch
from ...model.position import MirrorPosition
from .places import Places, retention_is_faster
from .record_key import RecordKey, copied_key
from .source_walk import SourceRecord, SourceWalk
from .tail import is_by

__all__ = ["are_copies"]

#: The most that is read on each side from the position on, and the most records of it that are compared. Two
#: bounds, because records may be large, or many and not mirrored. One record in common shows whose they are.
_MOST_BYTES = 64 * 1024 * 1024
_MOST_RECORDS = 100_000


def are_copies(places: Places, position: MirrorPosition) -> bool:
    """
    Whether the source has, from a position on, a record that others wrote behind it to the destination.

    Records that cannot be decoded are ignored: the mirror stops when it comes to a damaged batch.

    Args:
        position: The mirror's position; its source offset may have been deleted since.

    Raises:
        ShoalError: A cluster does not answer.

    """
    with retention_is_faster():
        found: dict[int, set[int | None]] = defaultdict(set)
        for what, time in islice(_foreign(places, position), _MOST_RECORDS):
            found[what].add(time)
        if not found:
            return False
        of_source = islice(_of_source(places, position), _MOST_RECORDS)
        return any(what in found and _can_be_one_of(found[what], time) for what, time in of_source)


def _can_be_one_of(times: set[int | None], time: int | None) -> bool:
    """Whether a create time is one of several; None stands for one that a broker replaced."""
    return time is None or time in times or None in times


def _foreign(places: Places, position: MirrorPosition) -> Iterator[RecordKey]:
    read_bytes = 0
    with suppress(CorruptBatch):
        for batch in places.destination_batches(position.destination_offset):
            read_bytes += len(batch.view)
            if read_bytes > _MOST_BYTES:
                return
            if not is_by(batch.header, position.identity) and not batch.header.is_control:
                with suppress(CorruptBatch, UnsupportedBatch):
                    for record in places.logs.settings.decode(batch):
                        yield copied_key(batch.header, record)


def _of_source(places: Places, position: MirrorPosition) -> Iterator[RecordKey]:
    start = max(position.source_offset, places.source.start)
    walk = SourceWalk(places.logs, start, most_bytes=_MOST_BYTES)
    with suppress(CorruptBatch):
        for step in walk.steps():
            if isinstance(step, SourceRecord):
                yield step.key

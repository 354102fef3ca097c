"""
Whether records that somebody else wrote behind a pair are copies of what the source has there.

Another mirror's position may be gone, and the source may have been compacted since, so that its records are
no longer the ones that follow the pair. To go on behind them would mirror those again that the source has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from ....client.scan import read_decided
from ....errors import CorruptBatch, UnsupportedBatch
from ....records import RecordBatch, read_records
from ...model.position import MirrorPosition
from ..rebuilder import records_to_mirror
from .places import Places, retention_is_faster
from .tail import is_by
from .written import create_time_of

__all__ = ["are_copies"]

#: So much is read on each side, from the pair on, and so many records of it are compared: two bounds, as
#: records may be large, or many and not mirrored. One record in common shows whose they are.
_MOST_BYTES = 64 * 1024 * 1024
_MOST_RECORDS = 100_000


def are_copies(places: Places, pair: MirrorPosition) -> bool:
    """
    Whether the source has, from a pair on, a record that others wrote to the destination behind the pair.

    What cannot be decoded shows nothing: what is damaged there stops the mirror when it comes to it.

    Args:
        places: The partition's logs.
        pair: Where the mirror was; its source offset may have been deleted since.

    Raises:
        ShoalError: A cluster does not answer.

    """
    with retention_is_faster():
        found: dict[int, set[int | None]] = defaultdict(set)
        for what, time in islice(_foreign(places, pair), _MOST_RECORDS):
            found[what].add(time)
        if not found:
            return False
        of_source = islice(_of_source(places, pair), _MOST_RECORDS)
        return any(what in found and _can_be_one_of(found[what], time) for what, time in of_source)


def _can_be_one_of(times: set[int | None], time: int | None) -> bool:
    """Whether a create time is one of several; None stands for one that a broker replaced."""
    return time is None or time in times or None in times


def _foreign(places: Places, pair: MirrorPosition) -> Iterator[tuple[int, int | None]]:
    read_bytes = 0
    with suppress(CorruptBatch):
        for batch in places.destination_batches(pair.destination_offset):
            read_bytes += len(batch.view)
            if read_bytes > _MOST_BYTES:
                return
            if not is_by(batch.header, pair.identity) and not batch.header.is_control:
                yield from _records_of_foreign(places, batch)


def _records_of_foreign(places: Places, batch: RecordBatch) -> Iterator[tuple[int, int | None]]:
    with suppress(CorruptBatch, UnsupportedBatch):
        for record in read_records(batch, places.clusters.settings.max_decompressed_bytes):
            yield hash(bytes(record.body)), create_time_of(batch.header, record)


def _of_source(places: Places, pair: MirrorPosition) -> Iterator[tuple[int, int | None]]:
    settings = places.clusters.settings
    start = max(pair.source_offset, places.source.start)
    decided = read_decided(
        places.clusters.source,
        places.copy.source,
        start,
        settings.source.isolation_level,
        keep_append_time=settings.keep_append_time,
    )
    read_bytes = 0
    with suppress(CorruptBatch):
        for decision, batch in decided:
            read_bytes += len(batch.view)
            if read_bytes > _MOST_BYTES:
                return
            if not decision.is_drop:
                yield from _records_of_source(places, batch, start)


def _records_of_source(places: Places, batch: RecordBatch, start: int) -> Iterator[tuple[int, int | None]]:
    settings = places.clusters.settings
    with suppress(CorruptBatch, UnsupportedBatch):
        for record in records_to_mirror(batch, start, settings):
            is_kept = settings.keep_append_time
            time = record.timestamp if is_kept else create_time_of(batch.header, record)
            yield hash(bytes(record.body)), time

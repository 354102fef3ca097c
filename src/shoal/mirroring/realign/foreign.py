"""
Whether records that somebody else wrote behind a pair are copies of what the source has there.

Another mirror's position may be gone, and the source may have been compacted since, so that its records are
no longer the ones that follow the pair. To go on behind them would mirror those again that the source has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from ...errors import UnsupportedBatch
from ...records import read_records
from ..decoding import records_to_mirror
from ..pair import Pair
from ..reading import read_decided
from .places import Places, retention_is_faster
from .tail import is_by
from .written import create_time_of

__all__ = ["are_copies"]

#: So many batches are decoded on each side, from the pair on. One record in common shows whose they are.
_MOST_BATCHES = 256


def are_copies(places: Places, pair: Pair) -> bool:
    """
    Whether the source has, from a pair on, a record that others wrote to the destination behind the pair.

    Args:
        places: The partition's logs.
        pair: Where the mirror was; its source offset may have been deleted since.

    Raises:
        ShoalError: A cluster does not answer, or has a damaged batch.

    """
    with retention_is_faster():
        found = set(_foreign(places, pair))
        return bool(found) and any(each in found for each in _of_source(places, pair))


def _foreign(places: Places, pair: Pair) -> Iterator[tuple[int, int | None]]:
    batches = (
        batch
        for batch in places.destination_batches(pair.destination_offset)
        if not is_by(batch.header, pair.identity) and not batch.header.is_control
    )
    for batch in islice(batches, _MOST_BATCHES):
        with suppress(UnsupportedBatch):
            for record in read_records(batch, places.clusters.settings.max_decompressed_bytes):
                yield hash(bytes(record.body)), create_time_of(batch.header, record)


def _of_source(places: Places, pair: Pair) -> Iterator[tuple[int, int | None]]:
    settings = places.clusters.settings
    start = max(pair.source_offset, places.source.start)
    decided = read_decided(
        places.clusters.source,
        places.copy.source,
        start,
        settings.source.isolation_level,
        keep_append_time=settings.keep_append_time,
    )
    for decision, batch in islice(decided, _MOST_BATCHES):
        if not decision.is_drop:
            with suppress(UnsupportedBatch):
                for record in records_to_mirror(batch, start, settings):
                    yield hash(bytes(record.body)), create_time_of(batch.header, record)

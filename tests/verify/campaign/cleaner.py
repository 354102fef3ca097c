"""
Kafka's log cleaner, by its rules.

The cleaner works up to the first offset that is not cleaned yet. It removes each record whose key occurs
again before that offset, and records without a key. It removes records of aborted transactions, and old
tombstones.
Offsets stay as they are.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator

from shoal_broker import Broker
from shoal_broker.storage.log import Log
from tests.world.contents import batches_of, compacted

from .logs import Stored, replaced, stored_batches

__all__ = ["clean"]


def clean(
    rng: random.Random, broker: Broker, topic: str, aborted: Collection[int], copied: int | None = None
) -> str:
    """
    Clean a topic's log up to a random offset; return a note.

    Args:
        aborted: The offsets of records in aborted transactions.
        copied: The offset up to which a copy has the records. A copy that lags so long that it misses
            tombstones is not right: it keeps what was deleted.

    """
    log = broker.log(topic)
    starts = [batch.header.base_offset for batch in batches_of(log)]
    # The cleaner leaves the active segment alone.
    until = rng.choice(starts or [0])
    drops_tombstones = rng.random() < 0.4 and (copied is None or until <= copied)
    stored = {each.header.base_offset: each for each in stored_batches(log)}
    last = {
        each.item.key: each.offset
        for batch in stored.values()
        for each in batch.records
        if each.offset < until and each.offset not in aborted
    }
    kept = {
        each.offset
        for batch in stored.values()
        for each in batch.records
        if each.offset >= until
        or (
            each.item.key is not None
            and last.get(each.item.key) == each.offset
            and not (drops_tombstones and each.item.value is None)
        )
    }
    replaced(broker, topic, _rewritten(rng, log, stored, kept, until), log.log_end_offset)
    return f"cleaned up to {until}{' without tombstones' if drops_tombstones else ''}"


def _rewritten(
    rng: random.Random, log: Log, stored: dict[int, Stored], kept: set[int], until: int
) -> Iterator[bytes | bytearray | memoryview]:
    has_horizon = rng.random() < 0.3
    keeps_empty = rng.random() < 0.3
    for batch in batches_of(log):
        found = stored.get(batch.header.base_offset)
        if found is None or batch.header.base_offset >= until:
            yield batch.view
            continue
        left = sum(each.offset in kept for each in found.records)
        if left == batch.header.records_count:
            yield batch.view
        elif left or keeps_empty:
            yield compacted(batch, kept.__contains__, has_horizon=has_horizon)

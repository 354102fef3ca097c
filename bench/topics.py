"""The mirrored topics."""

import time
from dataclasses import dataclass
from typing import Literal

from rig.load import Codec, load_plain

__all__ = ["PARTITIONS", "RECORD_BYTES", "TOPICS", "Shape", "load"]

PARTITIONS = 4
RECORD_BYTES = 1000


@dataclass(frozen=True)
class Shape:
    """The shape of a topic's batches.

    Attributes:
        records_per_batch: Each record's value has 1,000 bytes, JSON with random words.
        megabytes: Usual size, uncompressed: a few seconds of the fastest mover.
        age_days: Age of the records. If batches are older than a day, a broker forgets their producer, and
            shoal then keeps one of a partition in flight.
        stored_with: The ``compression.type`` of the destination's topic. If a batch has another codec, the
            destination's broker compresses it again.
        partitions: Number of partitions.
        batches_per_transaction: Number of batches that a committed transaction has in each partition, with a
            marker behind them. None for a topic without transactions.
    """

    name: str
    codec: Codec
    records_per_batch: int
    megabytes: int = 1000
    age_days: int = 0
    stored_with: Codec | Literal["producer"] = "producer"
    partitions: int = PARTITIONS
    batches_per_transaction: int | None = None


TOPICS = (
    Shape("b16_lz4", "lz4", 16),  # a busy service that does not wait for its batches to fill
    # The most expensive codec to decode and encode: it takes the peers longest.
    Shape("b256_gzip", "gzip", 256, megabytes=400),
    Shape("b1024_lz4", "lz4", 1024, megabytes=1500),  # batches of about 450 KB: the cost of moving bytes
    Shape("b1_lz4", "lz4", 1, megabytes=150),  # a million batches a GB: the cost of a batch
    Shape("b16_lz4_old", "lz4", 16, age_days=30),  # a backfill
)


def load(bootstrap: str, shape: Shape, topic: str, megabytes: float) -> int:
    """Create and load a topic of this shape; return its uncompressed bytes."""
    size = int(megabytes * 1_000_000)
    # Each record is a millisecond later than the one before, and a broker refuses timestamps in its future.
    age_ms = shape.age_days * 86_400_000 + size // RECORD_BYTES
    batches = shape.batches_per_transaction
    return RECORD_BYTES * load_plain(
        bootstrap,
        topic,
        shape.codec,
        shape.records_per_batch,
        size,
        partitions=shape.partitions,
        first_timestamp_ms=int(time.time() * 1000) - age_ms,
        records_per_transaction=batches and batches * shape.records_per_batch * shape.partitions,
    )

"""The mirrored topics."""

import time
from dataclasses import dataclass

from rig.load import Codec, load_plain

__all__ = ["B1", "B16", "B256", "B1024", "PARTITIONS", "RECORD_BYTES", "Shape", "load"]

PARTITIONS = 4
RECORD_BYTES = 1000


@dataclass(frozen=True)
class Shape:
    """The shape of a topic's batches.

    Attributes:
        records_per_batch: Each record's value has 1,000 bytes, JSON with random words.
        partitions: Number of partitions.
        batches_per_transaction: Number of batches that a committed transaction has in each partition, with a
            marker behind them. None for a topic without transactions.
    """

    name: str
    codec: Codec
    records_per_batch: int
    partitions: int = PARTITIONS
    batches_per_transaction: int | None = None


#: A busy service that does not wait for its batches to fill.
B16 = Shape("b16_lz4", "lz4", 16)
#: The most expensive codec to decode and encode: it takes the peers longest.
B256 = Shape("b256_gzip", "gzip", 256)
#: Batches of about 450 KB: the cost of moving bytes.
B1024 = Shape("b1024_lz4", "lz4", 1024)
#: A million batches a GB: the cost of a batch.
B1 = Shape("b1_lz4", "lz4", 1)


def load(bootstrap: str, shape: Shape, topic: str, megabytes: float) -> int:
    """Create and load a topic of this shape; return its uncompressed bytes."""
    size = int(megabytes * 1_000_000)
    # Each record is a millisecond later than the one before, and a broker refuses timestamps in its future.
    age_ms = size // RECORD_BYTES
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

"""The mirrored topics."""

import time
from dataclasses import dataclass
from typing import Literal

from rig.load import Codec, load_plain

__all__ = ["PARTITIONS", "TOPICS", "USUAL_TOPICS", "Shape", "load"]

PARTITIONS = 4


@dataclass(frozen=True)
class Shape:
    """The shape of a topic's batches.

    Attributes:
        records_per_batch: Each record's value has 1,000 bytes, JSON with random words.
        age_days: Age of the records. If batches are older than a day, a broker forgets their producer, and
            shoal then keeps one of a partition in flight.
        stored_with: The ``compression.type`` of the destination's topic. If a batch has another codec, the
            destination's broker compresses it again.
    """

    name: str
    codec: Codec
    records_per_batch: int
    age_days: int = 0
    stored_with: Codec | Literal["producer"] = "producer"


TOPICS = (
    Shape("b16_lz4", "lz4", 16),  # a busy service that does not wait for its batches to fill
    Shape("b256_gzip", "gzip", 256),  # the most expensive codec to decode and encode
    Shape("b1024_lz4", "lz4", 1024),  # batches of about 450 KB: mostly the cost of moving bytes
    Shape("b16_lz4_old", "lz4", 16, age_days=30),  # a backfill
)

#: The topics that a run compares without ``--topics``.
USUAL_TOPICS = TOPICS[:3]


def load(bootstrap: str, shape: Shape, topic: str, megabytes: int) -> int:
    """Create and load a topic of this shape; return its uncompressed bytes."""
    total_bytes = megabytes * 1_000_000
    # An hour for the records' own milliseconds: a broker refuses timestamps in its future.
    age_ms = shape.age_days * 86_400_000 + 3_600_000
    return 1000 * load_plain(
        bootstrap,
        topic,
        shape.codec,
        shape.records_per_batch,
        total_bytes,
        partitions=PARTITIONS,
        first_timestamp_ms=int(time.time() * 1000) - age_ms,
    )

"""The topics that are mirrored."""

from dataclasses import dataclass

from rig.load import Codec, load_plain

__all__ = ["PARTITIONS", "TOPICS", "Shape", "load"]

PARTITIONS = 4


@dataclass(frozen=True)
class Shape:
    """
    What the batches of a topic are like.

    Attributes:
        records_per_batch: Each record's value has 1,000 bytes, JSON with random words.

    """

    name: str
    codec: Codec
    records_per_batch: int


TOPICS = (
    Shape("b16_lz4", "lz4", 16),  # a busy service that does not wait for its batches to fill
    Shape("b256_gzip", "gzip", 256),  # the dearest codec to open and close again
    Shape("b1024_lz4", "lz4", 1024),  # batches of about 650 KB: what is left is moving bytes
)


def load(bootstrap: str, shape: Shape, topic: str, megabytes: int) -> int:
    """Create and load a topic of this shape; return its uncompressed bytes."""
    total_bytes = megabytes * 1_000_000
    return 1000 * load_plain(
        bootstrap, topic, shape.codec, shape.records_per_batch, total_bytes, partitions=PARTITIONS
    )

"""Batches of one producer, one behind the other."""

from __future__ import annotations

from shoal.records import Codec
from tests.world.batches import batch

__all__ = ["PRODUCER_ID", "numbered"]

PRODUCER_ID = 4242


def numbered(sequence: int, *counts: int, epoch: int = 0, codecs: tuple[Codec, ...] = ()) -> list[bytearray]:
    """Build batches of one producer with so many records each, one behind the other."""
    built = []
    for number, count in enumerate(counts):
        codec = codecs[number % len(codecs)] if codecs else Codec.NONE
        built.append(
            batch(
                [b"sequence %d" % (sequence + record) for record in range(count)],
                codec=codec,
                producer_id=PRODUCER_ID,
                producer_epoch=epoch,
                base_sequence=sequence % 2**31,
            )
        )
        sequence += count
    return built

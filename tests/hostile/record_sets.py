"""Record sets that no client sends: magic 0 to 2, wrappers in wrappers, numbers that no batch has."""

from __future__ import annotations

import random

from shoal.records import Codec
from tests.fuzz.damage import HUGE_NUMBERS
from tests.world.batches import batch, marker, message, patched, raw_batch, wrapper

from .liar import damaged_bytes

__all__ = ["hostile_records"]

_OLD_CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
_NUMBERS = (0, 1, -1, 2, 5, 127, 2**31 - 1, -(2**31))
_LONG_NUMBERS = (*_NUMBERS, 2**63 - 1, -(2**63), 2**40)
_DEEPEST = 4


def hostile_records(draw: random.Random) -> bytes:
    """Return one to three batches or messages, of one format or of several, sometimes damaged as a whole."""
    made = b"".join(_one(draw) for _ in range(draw.choice((1, 1, 1, 2, 3))))
    return _damaged(made, draw) if draw.random() < 0.25 else made


def _one(draw: random.Random) -> bytes:
    makers = (_whole_batch, _wrong_numbers, _damaged_inside, _old_messages, _old_messages, _marker)
    return draw.choice(makers)(draw)


def _whole_batch(draw: random.Random) -> bytes:
    is_idempotent = draw.random() < 0.5
    return bytes(
        batch(
            draw.randint(1, 4),
            base_offset=draw.choice((0, 0, 0, 7)),
            codec=draw.choice(tuple(Codec)),
            flags=draw.choice((0, 0, 0x08, 0x10, 0x20, 0x40)),
            leader_epoch=draw.choice(_NUMBERS),
            producer_id=draw.choice(_LONG_NUMBERS) if is_idempotent else -1,
            producer_epoch=draw.choice((0, 1, 2**15 - 1)) if is_idempotent else -1,
            base_sequence=draw.choice(_NUMBERS) if is_idempotent else -1,
            holes=draw.choice(((), (), (0,))),
        )
    )


def _wrong_numbers(draw: random.Random) -> bytes:
    """Write a header that contradicts its records, with a right checksum."""
    records = bytes(batch(2))[61:]
    return bytes(
        raw_batch(
            draw.choice((b"", records, draw.randbytes(draw.randrange(40)))),
            base_offset=draw.choice(_LONG_NUMBERS),
            batch_length=draw.choice((None, None, None, *_NUMBERS)),
            magic=draw.choice((2, 2, 2, 0, 1, 3, -128, 127)),
            attributes=draw.randrange(128),
            last_offset_delta=draw.choice(_NUMBERS),
            base_timestamp=draw.choice(_LONG_NUMBERS),
            max_timestamp=draw.choice(_LONG_NUMBERS),
            producer_id=draw.choice(_LONG_NUMBERS),
            producer_epoch=draw.choice((-1, 0, 5, -(2**15), 2**15 - 1)),
            base_sequence=draw.choice(_NUMBERS),
            records_count=draw.choice(_NUMBERS),
        )
    )


def _damaged_inside(draw: random.Random) -> bytes:
    """Damage the records or the stream that they are compressed to, under a right checksum and length."""
    codec = draw.choice(tuple(Codec))
    whole = batch(draw.randint(1, 4), codec=codec)
    inside = _damaged(bytes(whole[61:]), draw)
    attributes = draw.choice((codec, codec, *Codec, 5, 7))
    made = raw_batch(inside, attributes=attributes, last_offset_delta=3, records_count=4)
    return bytes(patched(made, 21, attributes.to_bytes(2)))


def _old_messages(draw: random.Random) -> bytes:
    """Write messages of magic 0 or 1, or wrappers around them, or wrappers around wrappers."""
    magic = draw.choice((0, 1))
    made = b"".join(
        bytes(
            message(
                draw.choice((magic, magic, 1 - magic)),
                draw.choice((b"value", b"", None, draw.randbytes(30))),
                offset=draw.choice((number, number, *_LONG_NUMBERS)),
                attributes=draw.choice((0, 0, 0, *range(8))),
                key=draw.choice((None, b"key")),
                timestamp=draw.choice((1, *_LONG_NUMBERS)),
                crc=draw.choice((None, None, None, 0)),
            )
        )
        for number in range(draw.choice((0, 1, 2, 3)))
    )
    for _ in range(draw.choice((0, 1, 1, 2, _DEEPEST))):
        inner = _damaged(made, draw) if draw.random() < 0.3 else made
        made = bytes(wrapper(magic, draw.choice(_OLD_CODECS), [inner], offset=draw.choice((0, 2, 2**63 - 1))))
    return made


def _marker(draw: random.Random) -> bytes:
    return bytes(marker(draw.choice((0, 1, -1, 2**15 - 1)), draw.choice(_LONG_NUMBERS)))


def _damaged(data: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.2:
        return data + draw.choice(HUGE_NUMBERS)
    return damaged_bytes(bytes(8) + data, 0, 0, draw)[8:]

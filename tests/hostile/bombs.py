"""Small requests with a large effect: record sets that expand, of every codec and format, and long arrays.

Each is made once, since compressing it takes longer than sending it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from functools import cache, partial

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import encode_request, request_class
from shoal.records import Codec
from tests import old_messages
from tests.broker.wire import Wire
from tests.world.batches import Record, compressed, message, payload, raw_batch

from .inputs import Input, Kind

__all__ = ["BOMBS", "bomb"]

_MEGABYTE = 1 << 20
_EXPANDED = 64 * _MEGABYTE
_ARRAY = 2 * _MEGABYTE


def bomb(name: str, number: int = 0) -> Input:
    """Return a bomb as an input of a run."""
    return Input(number, Kind.BOMB, _made(name))


@cache
def _made(name: str) -> bytes:
    return BOMBS[name]()


def _batch_bomb(codec: Codec, unit: bytes) -> bytes:
    """Compress one record repeatedly, or one that is very long, without holding them in memory."""
    count = _EXPANDED // len(unit)
    records = raw_batch(
        _squeezed(codec, unit, count), attributes=codec, last_offset_delta=count - 1, records_count=count
    )
    fields = Wire.produce_fields([("orders", 0, bytes(records))])
    return bytes(encode_request(request_class(ApiKey.PRODUCE)(version=9, **fields), 1, "bomb"))


def _message_bomb(magic: int, codec: Codec, unit: bytes) -> bytes:
    inner = _squeezed(codec, unit, _EXPANDED // len(unit))
    return _old_produce(bytes(message(magic, inner, attributes=codec)))


def _squeezed(codec: Codec, unit: bytes, count: int) -> bytes:
    match codec:
        case Codec.GZIP:
            compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
            block = unit * (_MEGABYTE // len(unit))
            parts = [compressor.compress(block) for _ in range(count * len(unit) // len(block))]
            return b"".join([*parts, compressor.flush()])
        case Codec.SNAPPY:
            # In the worst case it shrinks to a twentieth; a request has 1 MB for it.
            return compressed(unit * (16 * _MEGABYTE // len(unit)), codec)
        case _:
            return compressed(unit * count, codec)


def _gzip_members() -> bytes:
    one = zlib.compressobj(9, zlib.DEFLATED, 31)
    member = one.compress(b"x") + one.flush()
    return _old_produce(bytes(message(0, member * (_MEGABYTE // len(member)), attributes=Codec.GZIP)))


def _snappy_blocks() -> bytes:
    """Write blocks of no bytes, in the framing of snappy's port to Java."""
    blocks = b"\x82SNAPPY\0" + b"\0\0\0\1\0\0\0\1" + (struct.pack(">i", 1) + b"\0") * (_MEGABYTE // 5)
    return _old_produce(bytes(message(0, blocks, attributes=Codec.SNAPPY)))


def _claims(codec: Codec) -> bytes:
    """Write a stream whose beginning claims gigabytes."""
    claimed = {
        Codec.SNAPPY: b"\xff\xff\xff\xff\x0f" + bytes(100),
        Codec.ZSTD: b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**62) + bytes(100),
    }[codec]
    fields = Wire.produce_fields([("orders", 0, bytes(raw_batch(claimed, attributes=codec)))])
    return bytes(encode_request(request_class(ApiKey.PRODUCE)(version=9, **fields), 1, "bomb"))


def _many_plain(magic: int) -> bytes:
    one = bytes(message(magic, None))
    return _old_produce(one * (_MEGABYTE // len(one)))


def _old_produce(records: bytes) -> bytes:
    return _old(ApiKey.PRODUCE, 2, 1, 1000, [("orders", [(0, records)])])


def _many_offsets() -> bytes:
    return _old(ApiKey.LIST_OFFSETS, 0, -1, [("orders", [(0, -1, 1)] * (_ARRAY // 16))])


def _many_committed() -> bytes:
    return _old(ApiKey.OFFSET_FETCH, 0, "group", [("orders", [0] * (_ARRAY // 4))])


def _many_fetched() -> bytes:
    return _old(ApiKey.FETCH, 2, -1, 0, 0, [("orders", [(0, 0, 1)] * (_ARRAY // 16))])


def _many_topics() -> bytes:
    return _old(ApiKey.METADATA, 1, ["orders"] * (_ARRAY // 8))


def _old(api: ApiKey, version: int, *fields: object) -> bytes:
    asked = old_messages.schema(api, version, is_request=True)(*fields)
    frame = old_messages.encode_request(asked, 1, "bomb")
    return struct.pack(">i", len(frame)) + frame


_SMALLEST_RECORD = payload([Record(None, None)])
_ZEROS = bytes(64)
_SMALLEST_MESSAGES = {magic: bytes(message(magic, None)) for magic in (0, 1)}

BOMBS: Mapping[str, Callable[[], bytes]] = {
    **{
        f"{what} of a batch, {codec.name.lower()}": partial(_batch_bomb, codec, unit)
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
        for what, unit in (("records", _SMALLEST_RECORD), ("zeros", _ZEROS))
    },
    **{
        f"{what} of a wrapper of magic {magic}, {codec.name.lower()}": partial(
            _message_bomb, magic, codec, unit
        )
        for magic in (0, 1)
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
        for what, unit in (("messages", _SMALLEST_MESSAGES[magic]), ("zeros", _ZEROS))
    },
    "gzip members": _gzip_members,
    "snappy blocks of no bytes": _snappy_blocks,
    "gigabytes claimed by snappy": partial(_claims, Codec.SNAPPY),
    "gigabytes claimed by zstd": partial(_claims, Codec.ZSTD),
    "messages of magic 0": partial(_many_plain, 0),
    "messages of magic 1": partial(_many_plain, 1),
    "offsets asked for": _many_offsets,
    "committed offsets asked for": _many_committed,
    "partitions fetched": _many_fetched,
    "topics described": _many_topics,
}

"""Record batches for tests, built field by field so that any field can be wrong on purpose.

This module never writes bytes with ``shoal.records``, and the checksum is
aiokafka's: the batches are independent of the code under test.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.record.util import calc_crc32c
from kafka.codec import lz4_encode_old_kafka

from shoal.records import Codec, RecordBatch, split

__all__ = [
    "CONTROL",
    "DELETE_HORIZON",
    "LOG_APPEND_TIME",
    "TRANSACTIONAL",
    "Content",
    "Record",
    "batch",
    "before_padding",
    "compressed",
    "encode",
    "marker",
    "message",
    "old_message",
    "old_wrapper",
    "patched",
    "payload",
    "raw_batch",
    "view",
    "whole_messages",
    "wrapper",
]

LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

TIMESTAMP = 1_600_000_000_000

_BEFORE_CRC = struct.Struct(">qiib")
_COVERED = struct.Struct(">hiqqqhii")

_COMPRESS = {
    Codec.NONE: bytes,
    Codec.GZIP: gzip_encode,
    Codec.SNAPPY: snappy_encode,
    Codec.LZ4: lz4_encode,
    Codec.ZSTD: zstd_encode,
}


class Content(NamedTuple):
    """A record without its offset, which a mirror changes."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Record(NamedTuple):
    """One record; the deltas are to its batch's base offset and base timestamp."""

    value: bytes | None = b"value"
    key: bytes | None = b"key"
    headers: Sequence[tuple[str, bytes | None]] = ()
    offset_delta: int = 0
    timestamp_delta: int = 0


def _varint(value: int) -> bytes:
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def payload(records: Sequence[Record], codec: Codec = Codec.NONE) -> bytes:
    """Encode the records of a batch of magic 2."""
    encoded = bytearray()
    for record in records:
        body = (
            b"\0"
            + _varint(record.timestamp_delta)
            + _varint(record.offset_delta)
            + _sized(record.key)
            + _sized(record.value)
            + _varint(len(record.headers))
            + b"".join(_sized(name.encode()) + _sized(value) for name, value in record.headers)
        )
        encoded += _varint(len(body)) + body
    return compressed(encoded, codec)


def compressed(data: bytes | bytearray, codec: Codec) -> bytes:
    """Compress with another project's codec, as a client does."""
    return bytes(_COMPRESS[codec](bytes(data)))


def raw_batch(
    records: bytes = b"",
    *,
    base_offset: int = 0,
    batch_length: int | None = None,
    leader_epoch: int = 0,
    magic: int = 2,
    crc: int | None = None,
    attributes: int = 0,
    last_offset_delta: int = 0,
    base_timestamp: int = TIMESTAMP,
    max_timestamp: int = TIMESTAMP,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    records_count: int = 1,
) -> bytearray:
    """Write a header before some bytes; length and CRC are right unless they are given."""
    covered = (
        _COVERED.pack(
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            records_count,
        )
        + records
    )
    head = _BEFORE_CRC.pack(
        base_offset, len(covered) + 9 if batch_length is None else batch_length, leader_epoch, magic
    )
    return bytearray(head + (calc_crc32c(covered) if crc is None else crc).to_bytes(4) + covered)


def batch(
    values: Sequence[bytes] | int = 1,
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    flags: int = 0,
    leader_epoch: int = 0,
    base_timestamp: int = TIMESTAMP,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    holes: Sequence[int] = (),
) -> bytearray:
    """Build a batch as a broker stores it.

    ``values`` are those of the records, or the number of records to generate; ``holes`` are
    offset deltas that compaction removed. The result is writable, as a receive buffer is.
    """
    if isinstance(values, int):
        values = [b"value %d" % number for number in range(values)]
    records = [
        Record(value, b"key %d" % delta, offset_delta=delta, timestamp_delta=delta)
        for delta, value in enumerate(values)
        if delta not in holes
    ]
    return raw_batch(
        payload(records, codec) if records else b"",
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=codec | flags,
        last_offset_delta=len(values) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=base_timestamp + max(len(values) - 1, 0),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )


def encode(
    contents: Sequence[Content],
    codec: Codec = Codec.NONE,
    *,
    base_offset: int = 0,
    deltas: Sequence[int] | None = None,
    flags: int = 0,
    size: int | None = None,
    append_time: int | None = None,
    **producer: int,
) -> bytearray:
    """Build a batch of some records.

    ``deltas`` are their offsets in it, if there are holes, and ``size``
    all its offsets. With ``append_time`` it is a LogAppendTime batch.
    """
    deltas = range(len(contents)) if deltas is None else deltas
    base_timestamp = contents[0].timestamp
    records = [
        Record(each.value, each.key, each.headers, delta, each.timestamp - base_timestamp)
        for each, delta in zip(contents, deltas, strict=True)
    ]
    return raw_batch(
        payload(records, codec),
        base_offset=base_offset,
        attributes=codec | flags | (0 if append_time is None else LOG_APPEND_TIME),
        last_offset_delta=(deltas[-1] + 1 if size is None else size) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(each.timestamp for each in contents) if append_time is None else append_time,
        records_count=len(contents),
        **producer,
    )


def marker(kind: int, producer_id: int, *, base_offset: int = 0) -> bytearray:
    """Build a transaction marker of a coordinator: 0 aborts, 1 commits."""
    record = Record(value=struct.pack(">hi", 0, 7), key=struct.pack(">hh", 0, kind))
    return raw_batch(
        payload([record]),
        base_offset=base_offset,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=0,
    )


def message(
    magic: int,
    value: bytes | None = b"value",
    *,
    offset: int = 0,
    attributes: int = 0,
    key: bytes | None = None,
    timestamp: int = TIMESTAMP,
    crc: int | None = None,
) -> bytearray:
    """Build a message of magic 0 or 1; if its attributes have a codec, its value wraps others."""
    covered = struct.pack(">bB", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        covered += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    crc = zlib.crc32(covered) if crc is None else crc
    return bytearray(struct.pack(">qiI", offset, len(covered) + 4, crc) + covered)


def wrapper(
    magic: int,
    codec: Codec,
    inner: Sequence[bytes | bytearray],
    *,
    offset: int = 0,
    flags: int = 0,
    timestamp: int = TIMESTAMP,
) -> bytearray:
    """Build a compressed message around others; lz4 of magic 0 with the wrong checksum of old clients."""
    plain = b"".join(inner)
    if codec == Codec.LZ4 and magic == 0:
        compressed = lz4_encode_old_kafka(plain)
    else:
        compressed = bytes(_COMPRESS[codec](plain))
    return message(magic, compressed, offset=offset, attributes=codec | flags, timestamp=timestamp)


def old_message(content: Content, magic: int, offset: int) -> bytearray:
    """Build a message of magic 0 or 1; it has no headers."""
    return message(magic, content.value, key=content.key, offset=offset, timestamp=content.timestamp)


def old_wrapper(
    contents: Sequence[Content], magic: int, codec: Codec, offsets: Sequence[int], *, is_relative: bool = True
) -> bytearray:
    """Build a compressed message of others, whose inner offsets magic 1 may count from its first."""
    first = offsets[0] if magic and is_relative else 0
    inner = [
        bytes(old_message(each, magic, offset - first))
        for each, offset in zip(contents, offsets, strict=True)
    ]
    newest = max(each.timestamp for each in contents)
    return wrapper(magic, codec, inner, offset=offsets[-1], timestamp=newest)


def patched(original: bytes | bytearray, position: int, replacement: bytes) -> bytearray:
    """Overwrite bytes of a batch of magic 2 and make its CRC right again."""
    changed = bytearray(original)
    changed[position : position + len(replacement)] = replacement
    changed[17:21] = calc_crc32c(bytes(changed[21:])).to_bytes(4)
    return changed


def view(data: bytes | bytearray) -> RecordBatch:
    """Return the only batch in ``data``."""
    (found,) = split(memoryview(data))
    assert len(found.view) == len(data)
    return found


def whole_messages(data: bytes) -> list[bytes]:
    """Return the messages of a record set before padding or a cut message."""
    found = []
    position = 0
    while position + 12 <= len(data):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12])
        if end > len(data):
            break
        found.append(data[position:end])
        position = end
    return found


def before_padding(data: bytes) -> bytes:
    """Return the whole messages of a record set as one."""
    return b"".join(whole_messages(data))

"""Record batches to send: kafka-python's own, those of a fetch, and wrong ones made from both."""

import struct
from collections.abc import Sequence

from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

__all__ = ["batch", "patched", "split", "with_wrong_crc"]

BASE_OFFSET = 0
LEADER_EPOCH = 12
CRC = 17
ATTRIBUTES = 21
LAST_OFFSET_DELTA = 23
PRODUCER_ID = 43
RECORDS_COUNT = 57

CONTROL = 0x20
TRANSACTIONAL = 0x10

_TIMESTAMP = 1_600_000_000_000


def batch(
    values: Sequence[bytes],
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp: int = _TIMESTAMP,
) -> bytes:
    """Build a batch as a producer does: base offset 0. Codecs 0 (none) and 1 (gzip)."""
    builder = DefaultRecordBatchBuilder(
        2, codec, False, producer_id, producer_epoch, base_sequence, 1_000_000
    )
    for offset, value in enumerate(values):
        builder.append(offset, timestamp + offset, b"key", value, [("header", b"x")])
    return bytes(builder.build())


def split(record_set: bytes) -> list[bytes]:
    """Cut a fetched record set into its whole batches."""
    batches = []
    position = 0
    while position + 12 <= len(record_set):
        (length,) = struct.unpack_from(">i", record_set, position + 8)
        whole = record_set[position : position + 12 + length]
        if len(whole) < 12 + length:
            break
        batches.append(whole)
        position += len(whole)
    return batches


def patched(original: bytes, layout: str, position: int, *values: int) -> bytes:
    """Overwrite header fields and make the CRC right again."""
    changed = bytearray(original)
    struct.pack_into(layout, changed, position, *values)
    struct.pack_into(">I", changed, CRC, calc_crc32c(bytes(changed[ATTRIBUTES:])))
    return bytes(changed)


def with_wrong_crc(original: bytes) -> bytes:
    """Flip one bit of the last byte and leave the CRC as it was."""
    return original[:-1] + bytes([original[-1] ^ 1])

"""
The control batch that ends a transaction in a partition (``EndTransactionMarker``).

One record: key ``version=0, type`` as two int16, value ``version=0`` as int16
and the coordinator's epoch as int32.
"""

from __future__ import annotations

import struct

from shoal.records import crc32c
from shoal.records.aborted import Marker

__all__ = ["end_transaction_marker"]

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_BEFORE_CRC = struct.Struct(">qiib")
_CRC = struct.Struct(">I")
_COVERED = struct.Struct(">hiqqqhii")

_TRANSACTIONAL_CONTROL = 0x30


def end_transaction_marker(
    producer_id: int, producer_epoch: int, marker: Marker, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """Return the batch, with base offset 0 and leader epoch -1."""
    # Zigzag doubles a length; all of them fit into one byte.
    key = bytes([_KEY.size * 2]) + _KEY.pack(0, marker)
    value = bytes([_VALUE.size * 2]) + _VALUE.pack(0, coordinator_epoch)
    body = b"\0\0\0" + key + value + b"\0"  # attributes, both deltas, ..., no headers
    record = bytes([len(body) * 2]) + body
    covered = (
        _COVERED.pack(
            _TRANSACTIONAL_CONTROL,
            0,  # last_offset_delta
            timestamp_ms,
            timestamp_ms,
            producer_id,
            producer_epoch,
            -1,  # base_sequence
            1,  # records_count
        )
        + record
    )
    # Leader epoch, magic and CRC are what the length counts and the CRC does not.
    length = 4 + 1 + _CRC.size + len(covered)
    return _BEFORE_CRC.pack(0, length, -1, 2) + _CRC.pack(crc32c(covered)) + covered

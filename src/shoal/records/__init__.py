"""
A RecordBatch is a view over bytes: split, read the header, decide, stamp.

Three readers open a payload. ``read_records`` and ``write_batches`` rebuild a
batch that the destination would refuse; ``down_conversion`` converts batches for
an old client, and ``up_conversion`` converts the messages that it sends. Nothing
here does I/O, or depends on Kafka's requests and responses.
"""

from .aborted import AbortedTransactions
from .batch import (
    HEADER_SIZE,
    NO_END,
    BatchHeader,
    Codec,
    RecordBatch,
    batch_at,
    has_several,
    read_header,
    split,
)
from .checksum import crc32c, verify_crc
from .compression import compress, decompress, decompress_legacy_lz4
from .decide import Decision, decide
from .fingerprint import PACKED_FINGERPRINT, fingerprint, fingerprint_plain
from .join import Joined, join_plain
from .plain import ENTRY, stamp_plain
from .rebuild import compressed, write_batch, write_batches
from .record import Record, read_key_value_headers, read_records, read_records_as, write_body
from .scan import BeyondTheEnd, CheckedCrcs, OffsetsGoBack, Scan, Walked, WrongOffset
from .stamp import stamp

__all__ = [
    "ENTRY",
    "HEADER_SIZE",
    "NO_END",
    "PACKED_FINGERPRINT",
    "AbortedTransactions",
    "BatchHeader",
    "BeyondTheEnd",
    "CheckedCrcs",
    "Codec",
    "Decision",
    "Joined",
    "OffsetsGoBack",
    "Record",
    "RecordBatch",
    "Scan",
    "Walked",
    "WrongOffset",
    "batch_at",
    "compress",
    "compressed",
    "crc32c",
    "decide",
    "decompress",
    "decompress_legacy_lz4",
    "fingerprint",
    "fingerprint_plain",
    "has_several",
    "join_plain",
    "read_header",
    "read_key_value_headers",
    "read_records",
    "read_records_as",
    "split",
    "stamp",
    "stamp_plain",
    "verify_crc",
    "write_batch",
    "write_batches",
    "write_body",
]

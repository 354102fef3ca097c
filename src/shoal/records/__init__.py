"""
A RecordBatch is a view over bytes: split, read the header, decide, stamp.

What the destination would not take as it is, is opened: ``read_records``,
then ``write_batches``; what an old client could not read, in
``down_conversion``, and what it sends, in ``up_conversion``. Nothing else here
looks into a payload, and nothing does I/O or knows Kafka's messages.
"""

from .aborted import AbortedTransactions
from .batch import HEADER_SIZE, BatchHeader, Codec, RecordBatch, has_several, read_header, split
from .checksum import crc32c, verify_crc
from .compression import compress, decompress, decompress_legacy_lz4
from .decide import Decision, decide
from .fingerprint import Fingerprint, fingerprint
from .rebuild import write_batch, write_batches
from .record import Record, read_key_value_headers, read_records, write_body
from .scan import CheckedCrcs, check_dropped, scan
from .stamp import Run, stamp, stamp_run, stamped_header

__all__ = [
    "HEADER_SIZE",
    "AbortedTransactions",
    "BatchHeader",
    "CheckedCrcs",
    "Codec",
    "Decision",
    "Fingerprint",
    "Record",
    "RecordBatch",
    "Run",
    "check_dropped",
    "compress",
    "crc32c",
    "decide",
    "decompress",
    "decompress_legacy_lz4",
    "fingerprint",
    "has_several",
    "read_header",
    "read_key_value_headers",
    "read_records",
    "scan",
    "split",
    "stamp",
    "stamp_run",
    "stamped_header",
    "verify_crc",
    "write_batch",
    "write_batches",
    "write_body",
]

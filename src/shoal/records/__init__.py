"""
A RecordBatch is a view over bytes: split, read the header, decide, stamp.

Nothing here does I/O, knows Kafka's messages, or opens a payload.
"""

from .aborted import AbortedTransactions
from .batch import HEADER_SIZE, BatchHeader, Codec, RecordBatch, read_header, split
from .checksum import crc32c, verify_crc
from .decide import Decision, decide
from .fingerprint import Fingerprint, fingerprint
from .stamp import stamp

__all__ = [
    "HEADER_SIZE",
    "AbortedTransactions",
    "BatchHeader",
    "Codec",
    "Decision",
    "Fingerprint",
    "RecordBatch",
    "crc32c",
    "decide",
    "fingerprint",
    "read_header",
    "split",
    "stamp",
    "verify_crc",
]

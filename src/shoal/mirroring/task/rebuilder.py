"""The records of a batch that cannot be copied as it is, as they have to be at the destination."""

from __future__ import annotations

from ...records import Record, RecordBatch, read_records, verify_crc
from ..model.copy_options import CopySettings

__all__ = ["records_to_mirror"]


def records_to_mirror(batch: RecordBatch, start_offset: int, settings: CopySettings) -> list[Record]:
    """
    Decode a batch.

    Args:
        batch: Of any magic.
        start_offset: Records before it are left out.
        settings: Say how large the batch may become, and which time its records get.

    Returns:
        Records with their source offsets. Their timestamps are create times,
        and append times where the settings want them, or where a message of
        magic 1 has no other.

    Raises:
        CorruptBatch: The CRC is wrong (a flipped bit must not look like a
            hole, or another format), or it does not parse.
        UnsupportedBatch: The records are larger than the limit, or Kafka has no such codec.

    """
    verify_crc(batch)
    header = batch.header
    records = read_records(batch, settings.max_decompressed_bytes)
    if settings.keep_append_time and header.magic == 2 and header.is_log_append_time:
        records = [record._replace(timestamp=header.max_timestamp) for record in records]
    return [record for record in records if record.offset >= start_offset]

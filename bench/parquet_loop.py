"""A backup on confluent-kafka (librdkafka) and pyarrow: it decodes each record, and writes Parquet."""

import argparse
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Message

from bench.confluent_loop import read_whole

__all__: list[str] = []

_ROWS = 50_000
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms")),
    ]
)


def write(source: str, topic: str, directory: Path) -> None:
    """Write a topic from its beginning to its end, as one file compressed with lz4."""
    with pq.ParquetWriter(directory / "records.parquet", _SCHEMA, compression="lz4") as writer:
        rows: list[Message] = []
        for messages in read_whole(source, topic, {}):
            rows += messages
            if len(rows) >= _ROWS:
                writer.write_table(_table(rows))
                rows.clear()
        writer.write_table(_table(rows))


def _table(rows: list[Message]) -> pa.Table:
    columns = [
        [each.key() for each in rows],
        [each.value() for each in rows],
        [each.partition() for each in rows],
        [each.offset() for each in rows],
        [each.timestamp()[1] for each in rows],
    ]
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source")
    parser.add_argument("topic")
    parser.add_argument("directory", type=Path)
    write(**vars(parser.parse_args()))

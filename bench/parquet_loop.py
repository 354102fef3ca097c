"""A backup on confluent-kafka (librdkafka) and pyarrow: it decodes each record, and writes Parquet."""

import argparse
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

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
    consumer = Consumer(
        {
            "bootstrap.servers": source,
            "group.id": "parquet-loop",  # required by librdkafka, never joined
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
    )
    unread = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in sorted(unread)])
    with pq.ParquetWriter(directory / "records.parquet", _SCHEMA, compression="lz4") as writer:
        while unread:
            rows: list[Message] = []
            while unread and len(rows) < _ROWS:
                for message in consumer.consume(1000, timeout=1):
                    error = message.error()
                    if error is None:
                        rows.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        unread.discard(message.partition())
                    else:
                        raise SystemExit(f"{topic}: {error}")
            writer.write_table(_table(rows))
    consumer.close()


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

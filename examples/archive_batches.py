"""Archive topics: write every batch to a file as it is, without decoding it.

    python examples/archive_batches.py --from source:9092 --topics orders,clicks --archive /data/archive

Each partition gets a directory with one file in the format of Kafka's own log
segments: kafka-dump-log.sh can read it, and replay_batches.py can send it
again. You can run several processes: they share the partitions, by --group.

Each batch is written to disk before its offset is committed. The archive
itself holds the position at which it continues. If a process fails at any
point, each batch is therefore still in the archive exactly once.
Without --once, the program runs until SIGINT or SIGTERM.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from shoal import RawConsumer, RawRecord, RebalanceListener, TopicPartition
from shoal.errors import ShoalError
from shoal.records import split


class Archive(RebalanceListener):
    """The files of the partitions that are assigned to this process."""

    def __init__(self, directory: Path, consumer: RawConsumer) -> None:
        self.directory = directory
        self.consumer = consumer
        self.files: dict[TopicPartition, BinaryIO] = {}

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            path = self.directory / str(partition) / f"{0:020}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            file = self.files[partition] = path.open("a+b")
            next_offset = go_to_end(file)
            if next_offset is not None:
                self.consumer.seek(partition, next_offset)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.flush()
        for partition in partitions:
            self.files.pop(partition).close()

    def write(self, record: RawRecord) -> None:
        self.files[record.topic_partition].write(record.value)

    def flush(self) -> None:
        """Flush everything to disk."""
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())


def go_to_end(file: BinaryIO) -> int | None:
    """Truncate a batch that a crash left incomplete; return the offset after the last whole one, if any."""
    file.seek(0)
    size, next_offset = 0, None
    # An archive of many gigabytes would be read in pieces, or have an index.
    for batch in split(memoryview(file.read())):
        size += len(batch.view)
        next_offset = batch.header.next_offset
    file.truncate(size)
    return next_offset


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--from", dest="source", required=True, help="the cluster, HOST:PORT")
    parser.add_argument("--topics", required=True, help="their names, separated by commas")
    parser.add_argument("--archive", type=Path, required=True, help="the directory to write to")
    parser.add_argument("--group", default="archive", help="the consumer group")
    parser.add_argument("--once", action="store_true", help="stop if no batch arrives for five seconds")
    args = parser.parse_args()

    stopping = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.append(True))
    consumer = RawConsumer(
        {
            "bootstrap.servers": args.source,
            "group.id": args.group,
            "fetch.raw.bytes": True,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    archive = Archive(args.archive, consumer)
    batches = silent_polls = 0
    with consumer:
        consumer.subscribe(args.topics.split(","), archive)
        while not stopping and not (args.once and silent_polls >= 5):
            records = consumer.poll(1.0)
            silent_polls = 0 if records or not consumer.assignment else silent_polls + 1
            for record in records:
                assert isinstance(record, RawRecord)
                archive.write(record)
            if records:
                archive.flush()
                consumer.commit()
                batches += len(records)
    print(f"{batches} batches archived")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ShoalError as error:
        sys.exit(f"archive_batches: {error}")
